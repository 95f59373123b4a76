/*
 * The join page: reads the link, starts a worker for each lane, and shows a person what they do.
 */

import type { Capabilities } from "#engine/capabilities";
import { chooseLanes, chooseThreads } from "#lane/choose-lanes";
import { backOffMs, browserClock } from "#lane/clock";
import { LaneWorker } from "#lane/lane-worker";
import type { Link } from "#lane/link";
import { pageId, takeLink } from "#lane/tab";
import { View } from "#lane/view";
import { WakeLock } from "#lane/wake-lock";
import { headline, type LaneView, sentence } from "#lane/words";
import type { FromWorker, ToWorker } from "#lane/worker-messages";

const LOOKING = "Looking at what this browser can do.";

const view = new View();
const wakeLock = new WakeLock();
let workers: LaneWorker[] = [];
let views: LaneView[] = [];
let running = false;
/** Why a person or the browser stopped the page. */
let stopReason: string | null = null;
/** Counts starts, so that one that was stopped while it looked at the browser goes no further. */
let starts = 0;

void main();

async function main(): Promise<void> {
  if (!window.isSecureContext) {
    return explain(
      "This address is not secure",
      "Browsers give a GPU, storage and cryptography only to pages that come over https or from localhost. Open the link with https, or on the machine that runs Holdfast.",
    );
  }
  let link: Link | null;
  try {
    link = takeLink();
  } catch (error) {
    return explain("This link makes no sense", (error as Error).message);
  }
  if (!link) {
    return explain(
      "A link is needed",
      "Run “holdfast join” where Holdfast runs: it prints a link that lets this browser join. Open that link here.",
    );
  }
  // Some browsers ask the person, and one never answers: nothing waits for it.
  void navigator.storage?.persist?.().catch(() => {});
  const page = link.page ?? (await pageId());
  view.onToggle(() => (running ? stop("it was stopped in the browser") : void start(link, page)));
  window.addEventListener("hashchange", () => {
    // Another link was opened in this tab.
    if (location.hash.includes("token=")) {
      location.reload();
    }
  });
  window.addEventListener("pagehide", () => stop("the page was closed"));
  window.addEventListener("pageshow", ({ persisted }) => {
    if (persisted) {
      void start(link, page);
    }
  });
  document.addEventListener("visibilitychange", awake);
  document.addEventListener("resume", awake);
  setInterval(showHeadline, 1000);
  await start(link, page);
}

async function start(link: Link, page: string): Promise<void> {
  starts += 1;
  const mine = starts;
  for (const worker of workers) {
    worker.end();
  }
  workers = [];
  views = [];
  running = true;
  stopReason = null;
  void wakeLock.hold();
  view.clearLanes();
  view.showToggle("Stop");
  view.showHeadline({ state: "starting", title: "Starting…", detail: LOOKING });
  const looked = await look(chooseThreads(link.threads, navigator.hardwareConcurrency), mine);
  if (!looked) {
    return;
  }
  const { capabilities, worker } = looked;
  let spare: Worker | undefined = worker;
  for (const { lane, backend, missing } of chooseLanes(link.lanes, capabilities)) {
    if (missing !== null) {
      views.push({ lane, backend, missing, failure: null, status: null, statusAt: 0 });
      continue;
    }
    const setup = { token: link.token, page, lane, backend, capabilities };
    const onChange = () => {
      if (running && mine === starts) {
        show(capabilities);
      }
    };
    const entry = new LaneWorker({ setup, spawn, clock: browserClock, onChange });
    entry.start(spare);
    spare = undefined;
    workers.push(entry);
    views.push(entry.view);
  }
  spare?.terminate();
  show(capabilities);
}

/** What the browser has, as seen by a worker: some give less to workers than to pages. */
async function look(
  threads: number,
  mine: number,
): Promise<{ capabilities: Capabilities; worker: Worker } | null> {
  const isStill = () => running && mine === starts;
  for (let attempt = 0; isStill(); attempt += 1) {
    const worker = spawn();
    try {
      const capabilities = await probe(worker, threads);
      if (isStill()) {
        return { capabilities, worker };
      }
      worker.terminate();
    } catch (error) {
      worker.terminate();
      if (!isStill()) {
        break;
      }
      const detail = `${sentence((error as Error).message)} Trying again.`;
      view.showHeadline({ state: "waiting", title: "This page does not work yet", detail });
      const forMs = backOffMs(attempt, browserClock);
      await new Promise<void>((resolve) => browserClock.after(forMs, resolve));
    }
  }
  return null;
}

function probe(worker: Worker, threads: number): Promise<Capabilities> {
  return new Promise((resolve, reject) => {
    worker.onerror = ({ message }) => reject(new Error(message || "its script cannot be loaded"));
    worker.onmessage = ({ data }: MessageEvent<FromWorker>) => {
      if (data.type === "probed") {
        resolve(data.capabilities);
      } else if (data.type === "failed") {
        reject(new Error(data.reason));
      }
    };
    worker.postMessage({ type: "probe", threads } satisfies ToWorker);
  });
}

function stop(reason: string): void {
  if (!running) {
    return;
  }
  stopReason = reason;
  for (const worker of workers) {
    worker.stop(reason);
  }
  showHeadline();
}

/** The page was shown again, or let out of the freezer: timers may have slept. */
function awake(): void {
  if (!running || document.visibilityState !== "visible") {
    return;
  }
  void wakeLock.hold();
  for (const worker of workers) {
    worker.retryNow();
  }
}

function show(capabilities: Capabilities): void {
  for (const each of views) {
    view.showLane(each, capabilities);
  }
  const stored = views.map(({ status }) => status?.stats.cacheBytes ?? 0);
  view.showBrowser(capabilities, Math.max(0, ...stored));
  showHeadline();
}

function showHeadline(): void {
  // While the browser is looked at there is nothing to sum up.
  if (views.length === 0 && stopReason === null) {
    return;
  }
  const shown = headline(views, performance.now(), stopReason);
  view.showHeadline(shown);
  if (shown.state !== "stopped") {
    return;
  }
  running = false;
  wakeLock.release();
  view.showToggle("Start again");
}

function spawn(): Worker {
  return new Worker(new URL("./io-worker.js", import.meta.url), {
    type: "module",
    name: "holdfast lane",
  });
}

function explain(title: string, detail: string): void {
  view.showToggle(null);
  view.showHeadline({ state: "stopped", title, detail: sentence(detail) });
}
