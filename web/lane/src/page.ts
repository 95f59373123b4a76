/*
 * The join page: reads the link, starts a worker for each lane, and shows a person what they do.
 */

import type { Capabilities } from "#engine/capabilities";
import { isMobile } from "#engine/mobile";
import { chooseLanes, chooseThreads } from "#lane/choose-lanes";
import { backOffMs, browserClock } from "#lane/clock";
import { LaneWorker } from "#lane/lane-worker";
import { isLaunched, type Link } from "#lane/link";
import { PowerWatch } from "#lane/power";
import { questionFor, shareWords } from "#lane/share";
import { hasConsent, pageId, rememberConsent, takeLink } from "#lane/tab";
import { View } from "#lane/view";
import { WakeLock } from "#lane/wake-lock";
import { headline, type LaneView, sentence } from "#lane/words";
import type { FromWorker, ToWorker } from "#lane/worker-messages";
import type { PowerInfo } from "#wire/messages";

const LOOKING = "Looking at what this browser can do.";

const view = new View();
const wakeLock = new WakeLock();
let workers: LaneWorker[] = [];
let views: LaneView[] = [];
let running = false;
/** The owner was asked whether the device may take part, and has not answered yet. */
let asking = false;
/** The owner has answered; the tab may not be able to remember it. */
let consented = false;
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
  const owned = { launched: isLaunched(link), mobile: isMobile(navigator) };
  const power = await PowerWatch.open(owned.launched, (changed) => powerChanged(changed));
  const takePart = () => {
    const question = consented || hasConsent() ? null : questionFor(power.now, owned);
    return question ? ask(question) : start(link, page, power);
  };
  const powerChanged = (changed: PowerInfo) => {
    for (const worker of workers) {
      worker.setPower(changed);
    }
    const isAsked = !consented && !hasConsent() && questionFor(changed, owned) !== null;
    if (running && isAsked) {
      stop("what this device can spare has changed");
      void takePart();
    } else if (asking) {
      // The question is another one now, or not needed any more.
      void takePart();
    } else {
      showHeadline(changed);
    }
  };
  view.onToggle(() => {
    if (running) {
      return stop("it was stopped in the browser");
    }
    if (asking) {
      consented = true;
      rememberConsent();
    }
    void takePart();
  });
  window.addEventListener("hashchange", () => {
    // Another link was opened in this tab.
    if (location.hash.includes("token=")) {
      location.reload();
    }
  });
  window.addEventListener("pagehide", () => stop("the page was closed"));
  window.addEventListener("pageshow", ({ persisted }) => {
    if (persisted) {
      void takePart();
    }
  });
  document.addEventListener("visibilitychange", awake);
  document.addEventListener("resume", awake);
  setInterval(() => showHeadline(power.now), 1000);
  await takePart();
}

/** Shows a question. The button answers it. */
async function ask({ title, detail }: { title: string; detail: string }): Promise<void> {
  asking = true;
  running = false;
  view.clearLanes();
  view.showHeadline({ state: "waiting", title, detail });
  view.showToggle("Take part");
}

async function start(link: Link, page: string, power: PowerWatch): Promise<void> {
  asking = false;
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
  const threads = chooseThreads(link.threads, navigator.hardwareConcurrency, link.lanes);
  const looked = await look(threads, mine);
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
    const setup = { token: link.token, page, lane, backend, capabilities, power: power.now };
    const onChange = () => {
      if (running && mine === starts) {
        show(capabilities, power.now);
      }
    };
    const entry = new LaneWorker({ setup, spawn, clock: browserClock, onChange });
    entry.start(spare);
    spare = undefined;
    workers.push(entry);
    views.push(entry.view);
  }
  spare?.terminate();
  show(capabilities, power.now);
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
  showHeadline(null);
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

function show(capabilities: Capabilities, power: PowerInfo): void {
  for (const each of views) {
    view.showLane(each, capabilities);
  }
  const stored = views.map(({ status }) => status?.stats.cacheBytes ?? 0);
  view.showBrowser(capabilities, Math.max(0, ...stored));
  showHeadline(power);
}

function showHeadline(power: PowerInfo | null): void {
  // While the browser is looked at there is nothing to sum up, and a question stays.
  if (asking || (views.length === 0 && stopReason === null)) {
    return;
  }
  const shown = headline(views, performance.now(), stopReason);
  const less = power && shown.state === "connected" ? shareWords(power) : null;
  view.showHeadline(less ? { ...shown, detail: `${shown.detail} ${less}` } : shown);
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
