/* What the page says to a person, in plain words. */

import type { Capabilities } from "#engine/capabilities";
import type { LaneStatus } from "#lane/lane-status";
import type { Backend } from "#wire/messages";

/** A lane as the page knows it. */
export interface LaneView {
  lane: number;
  backend: Backend;
  /** Why it was not started. */
  missing: string | null;
  /** Why its worker ended; it is started again. */
  failure: string | null;
  status: LaneStatus | null;
  /** When the status came, on the clock that `headline` is given. */
  statusAt: number;
}

export interface Headline {
  state: "starting" | "connected" | "waiting" | "stopped";
  title: string;
  detail: string;
}

const BACKEND_NAMES: Record<Backend, string> = {
  webgpu: "WebGPU",
  webnn: "WebNN",
  wasm: "WebAssembly",
};

const RUNNING: Record<string, string> = {
  run: "Computing",
  load: "Loading a model",
  unload: "Letting a model go",
  put: "Taking in data",
  get: "Handing out data",
  drop: "Letting data go",
};

/** All lanes in a few words; `stopReason` is why the page was stopped, if it was. */
export function headline(
  lanes: LaneView[],
  now: number,
  stopReason: string | null = null,
): Headline {
  if (stopReason !== null) {
    return { state: "stopped", title: "Stopped", detail: sentence(stopReason) };
  }
  const lines = lanes.flatMap(({ status }) => status?.line ?? []);
  const connected = lines.filter((line) => line.type === "connected").length;
  const started = lanes.filter((lane) => lane.missing === null).length;
  if (started === 0) {
    return {
      state: "stopped",
      title: "This browser cannot help",
      detail: "None of the lanes that the link asks for could be started; see below why.",
    };
  }
  if (connected > 0) {
    const title =
      connected === started ? "Connected" : `Connected with ${connected} of ${started} lanes`;
    return { state: "connected", title, detail: "This browser computes for Holdfast." };
  }
  const waiting = lanes.flatMap(({ status, statusAt }) =>
    status?.line.type === "waiting" ? { ...status.line, until: statusAt + status.line.forMs } : [],
  )[0];
  if (waiting) {
    const seconds = Math.ceil(Math.max(0, waiting.until - now) / 1000);
    const when = seconds > 0 ? `Trying again in ${seconds} s.` : "Trying again now.";
    const detail = `${sentence(waiting.reason)} ${when}`;
    return { state: "waiting", title: "Not connected", detail };
  }
  const ended = lines.find((line) => line.type === "ended");
  if (ended && lines.every((line) => line.type === "ended")) {
    return { state: "stopped", title: "Stopped", detail: sentence(ended.reason) };
  }
  return { state: "starting", title: "Connecting…", detail: "Looking for Holdfast." };
}

export function laneTitle(backend: Backend): string {
  return BACKEND_NAMES[backend];
}

/** What the lane computes on, as far as the browser tells. */
export function adapterWords(backend: Backend, capabilities: Capabilities): string {
  const { webgpu, webnn, wasm } = capabilities;
  if (backend === "webgpu" && webgpu.type === "available") {
    const name = webgpu.description || `${webgpu.vendor} ${webgpu.architecture}`.trim();
    return name || "a GPU that the browser does not name";
  }
  if (backend === "webnn" && webnn.type === "available") {
    return `on what the browser calls “${webnn.chosen}”`;
  }
  if (backend === "wasm") {
    return `processor, ${wasm.threads} ${wasm.threads === 1 ? "thread" : "threads"}`;
  }
  return "";
}

/** As crates/devices/src/lane/adapter.rs has it. */
const SOFTWARE = /swiftshader|llvmpipe|lavapipe|softpipe|basic render|software/i;

export function isSoftware({ webgpu }: Capabilities): boolean {
  if (webgpu.type === "missing") {
    return false;
  }
  const { vendor, architecture, device, description, fallback } = webgpu;
  return fallback || SOFTWARE.test(`${vendor} ${architecture} ${device} ${description}`);
}

/** What is wrong with a lane, if anything is. */
export function laneTrouble({ missing, failure, status }: LaneView): string | null {
  if (missing !== null) {
    return sentence(`Not started: ${missing}`);
  }
  if (failure !== null) {
    return `${sentence(`It failed: ${failure}`)} Starting it again.`;
  }
  const told = status?.line.type === "ended" ? status.line.reason : status?.lastError;
  return told ? sentence(told) : null;
}

/** The lines of a lane's card. */
export function laneFacts(status: LaneStatus): [string, string][] {
  const { stats } = status;
  const idle = status.downloads && status.waiting > 0 ? "Getting models" : "Nothing";
  const doing = status.running ? (RUNNING[status.running] ?? status.running) : idle;
  const waiting = status.waiting > 0 ? `, ${status.waiting} waiting` : "";
  const facts: [string, string][] = [
    ["Doing", doing + waiting],
    [
      "Model parts",
      `${stats.segments}${stats.segments > 0 ? ` (${byteWords(status.segmentBytes)})` : ""}`,
    ],
    ["Requests done", `${status.done}${status.failed > 0 ? `, ${status.failed} failed` : ""}`],
  ];
  if (stats.engineHeapBytes !== null) {
    facts.push(["WebAssembly memory", byteWords(stats.engineHeapBytes)]);
  }
  if (stats.tensors > 0) {
    facts.push(["Data kept", byteWords(stats.tensorBytes)]);
  }
  if (stats.engineRestarts > 0) {
    facts.push(["Engine restarts", String(stats.engineRestarts)]);
  }
  return facts;
}

export function browserFacts(
  { browser, machine, webgpu, webnn, wasm }: Capabilities,
  cacheBytes: number,
): [string, string][] {
  const facts: [string, string][] = [
    ["Browser", `${browser.name} ${browser.version}, ${browser.platform}`],
    [
      "Processor",
      `${machine.cores} cores${wasm.threads === 1 && machine.cores > 1 ? ", one thread only" : ""}`,
    ],
  ];
  if (machine.memoryGib !== null) {
    facts.push(["Memory", `${machine.memoryGib} GiB or more`]);
  }
  if (cacheBytes > 0) {
    facts.push(["Stored for next time", byteWords(cacheBytes)]);
  }
  if (webgpu.type === "missing") {
    facts.push(["No WebGPU", sentence(webgpu.reason)]);
  }
  if (webnn.type === "missing") {
    facts.push(["No WebNN", sentence(webnn.reason)]);
  }
  return facts;
}

export function byteWords(bytes: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 10 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** As a sentence, with hashes cut to what a person can compare. */
export function sentence(text: string): string {
  const trimmed = text.trim().replaceAll(/\b(sha256-[0-9a-f]{8})[0-9a-f]{56}\b/g, "$1…");
  const capital = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?…]$/.test(capital) ? capital : `${capital}.`;
}
