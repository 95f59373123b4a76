/*
 * Runs a worker script in a real browser and hands back what it reports. The page is served with
 * the headers that Holdfast's own pages have.
 */

import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { build } from "esbuild";
import { Chromium } from "./chromium.ts";

const ORT_DIST = join(import.meta.dirname, "../../node_modules/onnxruntime-web/dist");

const HEADERS = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Content-Security-Policy":
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'",
};

/**
 * Opens a page with the script `page`, which may start `/worker.js`, and gives what it posts to
 * `/report`. `files` adds files by address.
 */
export async function runInBrowser<T>(
  scripts: { page: string; worker: string },
  options: { files?: Record<string, string>; limitMs: number },
): Promise<T> {
  const page = await bundle(scripts.page);
  const worker = await bundle(scripts.worker);
  let report: (value: T) => void = () => undefined;
  const reported = new Promise<T>((resolve) => {
    report = resolve;
  });
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const path = new URL(request.url ?? "/", "http://localhost").pathname;
    if (path === "/report") {
      response.writeHead(204, HEADERS).end();
      report(JSON.parse(await textOf(request)));
    } else if (path === "/") {
      send(response, "text/html", '<!doctype html><script type="module" src="/page.js"></script>');
    } else if (path === "/page.js" || path === "/worker.js") {
      send(response, "text/javascript", path === "/page.js" ? page : worker);
    } else if (path.startsWith("/ort/")) {
      const type = path.endsWith(".wasm") ? "application/wasm" : "text/javascript";
      send(response, type, readFileSync(join(ORT_DIST, path.slice("/ort/".length))));
    } else if (options.files?.[path]) {
      send(response, "application/octet-stream", readFileSync(options.files[path]));
    } else {
      response.writeHead(404, HEADERS).end();
    }
  };
  const server = createServer((request, response) => {
    answer(request, response).catch((error) => response.writeHead(500, HEADERS).end(String(error)));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const browser = Chromium.launch(`http://127.0.0.1:${port}/`);
  let limit: NodeJS.Timeout | undefined;
  try {
    const tooLong = new Promise<never>((_, reject) => {
      const complain = () => reject(new Error(`no report within ${options.limitMs} ms`));
      limit = setTimeout(complain, options.limitMs);
    });
    const ended = browser.exit().then(() => {
      throw new Error("the browser ended before it reported");
    });
    return await Promise.race([reported, tooLong, ended]);
  } finally {
    clearTimeout(limit);
    await browser.close();
    server.closeAllConnections();
    server.close();
  }
}

async function bundle(entry: string): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [entry],
    bundle: true,
    write: false,
    format: "esm",
    target: "es2023",
  });
  return outputFiles[0]?.text ?? "";
}

function send(response: ServerResponse, type: string, body: string | Uint8Array): void {
  response.writeHead(200, { ...HEADERS, "Content-Type": type }).end(body);
}

async function textOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) {
    chunks.push(chunk as Buffer);
  }
  return Buffer.concat(chunks).toString("utf8");
}
