/*
 * The join link: what its fragment asks for. A fragment never leaves the browser, so the token in it
 * reaches no log.
 */

import type { Backend } from "#wire/messages";

export interface Link {
  token: string;
  /** One lane each, and several of one kind if it is there twice; null to take what there is. */
  lanes: Backend[] | null;
  /** Threads of WebAssembly; null to choose. */
  threads: number | null;
  /** What the page calls itself, so that whoever started the browser knows it; null to choose. */
  page: string | null;
}

/** Whether Holdfast started the browser. A person who opens a link is never given a page's name. */
export function isLaunched(link: Link): boolean {
  return link.page !== null;
}

const BACKENDS: readonly Backend[] = ["webgpu", "webnn", "wasm"];

/** Null if there is no token in it. Fails, in words for a person, if the rest makes no sense. */
export function parseLink(fragment: string): Link | null {
  const fields = new URLSearchParams(fragment.replace(/^#/, ""));
  const token = fields.get("token");
  if (!token) {
    return null;
  }
  return {
    token,
    lanes: parseLanes(fields.get("lanes")),
    threads: parseThreads(fields.get("threads")),
    page: fields.get("page"),
  };
}

function parseLanes(text: string | null): Backend[] | null {
  if (!text || text === "auto") {
    return null;
  }
  return text.split(",").map((name) => {
    const backend = BACKENDS.find((one) => one === name.trim());
    if (!backend) {
      throw new Error(`The link asks for a lane “${name}”; there are ${BACKENDS.join(", ")}.`);
    }
    return backend;
  });
}

function parseThreads(text: string | null): number | null {
  if (text === null) {
    return null;
  }
  const threads = Number(text);
  if (!Number.isInteger(threads) || threads < 1 || threads > 64) {
    throw new Error(`The link asks for ${text} threads; it has to be a number from 1 to 64.`);
  }
  return threads;
}
