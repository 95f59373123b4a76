/*
 * The join page: reads the link, starts a worker for each lane, and shows a person what they do.
 */

import type { Capabilities } from "#engine/capabilities";
import { chooseLanes, chooseThreads } from "#lane/choose-lanes";
import { type Link, parseLink } from "#lane/link";
import { View } from "#lane/view";
import { headline, type LaneView, sentence } from "#lane/words";
import type { FromWorker, ToWorker } from "#lane/worker-messages";

const LINK_KEY = "holdfast-link";
const PAGE_KEY = "holdfast-page";
/** How long a lane may take to say goodbye. */
const GOODBYE_MS = 500;
const LOOKING = "Looking at what this browser can do.";

interface RunningLane {
  view: LaneView;
  worker: Worker | null;
}

const view = new View();
let lanes: RunningLane[] = [];
let capabilities: Capabilities | null = null;
let running = false;
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
  const page = link.page ?? (await pageId());
  view.onToggle(() => (running ? stop("it was stopped in the browser") : void start(link, page)));
  window.addEventListener("hashchange", () => {
    // Another link was opened in this tab.
    if (location.hash.includes("token=")) location.reload();
  });
  window.addEventListener("pagehide", () => stop("the page was closed"));
  window.addEventListener("pageshow", ({ persisted }) => {
    if (persisted) void start(link, page);
  });
  setInterval(showHeadline, 1000);
  await start(link, page);
}

async function start(link: Link, page: string): Promise<void> {
  starts += 1;
  const mine = starts;
  for (const { worker } of lanes) worker?.terminate();
  lanes = [];
  running = true;
  view.clearLanes();
  view.showToggle("Stop");
  view.showHeadline({ state: "starting", title: "Starting…", detail: LOOKING });
  const first = spawn();
  let found: Capabilities;
  try {
    found = await probe(first, chooseThreads(link.threads, navigator.hardwareConcurrency));
  } catch (error) {
    first.terminate();
    explain("This page does not work here", (error as Error).message);
    return;
  }
  if (!running || mine !== starts) {
    first.terminate();
    return;
  }
  capabilities = found;
  view.showBrowser(found, 0);
  const workers = [first];
  lanes = chooseLanes(link.lanes, found).lanes.map(({ lane, backend, missing }) => {
    const view: LaneView = { lane, backend, missing, status: null, statusAt: 0 };
    if (missing !== null) return { view, worker: null };
    const setup = { token: link.token, page, lane, backend, capabilities: found };
    return open(view, workers.pop() ?? spawn(), { type: "start", setup });
  });
  for (const unused of workers) unused.terminate();
  for (const entry of lanes) view.showLane(entry.view, found);
  showHeadline();
}

function open(view: LaneView, worker: Worker, message: ToWorker): RunningLane {
  const entry = { view, worker };
  worker.onmessage = ({ data }: MessageEvent<FromWorker>) => heard(entry, data);
  worker.onerror = ({ message }) => heard(entry, { type: "failed", reason: message });
  tell(worker, message);
  return entry;
}

function stop(reason: string): void {
  if (!running) return;
  running = false;
  for (const { worker } of lanes) {
    if (!worker) continue;
    tell(worker, { type: "stop", reason });
    setTimeout(() => worker.terminate(), GOODBYE_MS);
  }
  view.showHeadline({ state: "stopped", title: "Stopped", detail: sentence(reason) });
  view.showToggle("Start again");
}

function heard(entry: RunningLane, message: FromWorker): void {
  if (!capabilities || !lanes.includes(entry)) return;
  if (message.type === "status") {
    entry.view.status = message.status;
    entry.view.statusAt = performance.now();
  } else if (message.type === "failed") {
    entry.view.missing = message.reason || "its worker failed";
    entry.worker?.terminate();
  } else if (message.type === "stopped") {
    entry.worker?.terminate();
  }
  view.showLane(entry.view, capabilities);
  const stored = lanes.map((lane) => lane.view.status?.stats.cacheBytes ?? 0);
  view.showBrowser(capabilities, Math.max(...stored));
  showHeadline();
}

function showHeadline(): void {
  if (lanes.length === 0) return;
  const shown = headline(
    lanes.map((entry) => entry.view),
    performance.now(),
  );
  view.showHeadline(shown);
  if (shown.state === "stopped") {
    running = false;
    view.showToggle("Start again");
  }
}

/** What the browser has, as seen by a worker: some give less to workers than to pages. */
function probe(worker: Worker, threads: number): Promise<Capabilities> {
  return new Promise((resolve, reject) => {
    worker.onerror = ({ message }) => reject(new Error(message || "its script cannot be loaded"));
    worker.onmessage = ({ data }: MessageEvent<FromWorker>) => {
      if (data.type === "probed") resolve(data.capabilities);
      else if (data.type === "failed") reject(new Error(data.reason));
    };
    tell(worker, { type: "probe", threads });
  });
}

function spawn(): Worker {
  return new Worker(new URL("./io-worker.js", import.meta.url), {
    type: "module",
    name: "holdfast lane",
  });
}

function tell(worker: Worker, message: ToWorker): void {
  worker.postMessage(message);
}

function explain(title: string, detail: string): void {
  view.showToggle(null);
  view.showHeadline({ state: "stopped", title, detail: sentence(detail) });
}

/** Takes the token out of the address bar, and keeps it for a reload of this tab. */
function takeLink(): Link | null {
  const fresh = location.hash.length > 1 && parseLink(location.hash) ? location.hash : null;
  if (fresh) {
    sessionStorage.setItem(LINK_KEY, fresh);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return parseLink(fresh ?? sessionStorage.getItem(LINK_KEY) ?? "");
}

/** The same across reloads, but not in a copy of the tab, which copies the storage too. */
async function pageId(): Promise<string> {
  const kept = sessionStorage.getItem(PAGE_KEY);
  if (kept && (await isMine(kept))) return kept;
  const made = crypto.randomUUID();
  sessionStorage.setItem(PAGE_KEY, made);
  await isMine(made);
  return made;
}

/** Holds a lock with the page's name for as long as the page lives. */
function isMine(page: string): Promise<boolean> {
  if (!navigator.locks) return Promise.resolve(true);
  return new Promise((resolve) => {
    void navigator.locks.request(`holdfast-page-${page}`, { ifAvailable: true }, (lock) => {
      resolve(lock !== null);
      return lock && new Promise(() => {});
    });
  });
}
