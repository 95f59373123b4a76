/* Which lanes a page starts: those that were asked for, or one for each backend that is there. */

import type { Capabilities } from "#engine/capabilities";
import type { Backend } from "#wire/messages";

export interface ChosenLane {
  /** Its number within the page, which a lane that is missing keeps too. */
  lane: number;
  backend: Backend;
  missing: string | null;
}

export function chooseLanes(wanted: Backend[] | null, capabilities: Capabilities): ChosenLane[] {
  const backends = wanted ?? availableBackends(capabilities);
  return backends.map((backend, lane) => ({
    lane,
    backend,
    missing: missingReason(backend, capabilities),
  }));
}

/** What a lane of this backend has of the browser: only WebAssembly computes with threads. */
export function capabilitiesOf(backend: Backend, capabilities: Capabilities): Capabilities {
  const { wasm } = capabilities;
  return { ...capabilities, wasm: { ...wasm, threads: backend === "wasm" ? wasm.threads : 1 } };
}

/**
 * Threads of one engine, if the link does not say: all cores, but not more than pay off. Several lanes
 * of WebAssembly share the cores, or they would get in each other's way.
 */
export function chooseThreads(
  wanted: number | null,
  cores: number,
  lanes: Backend[] | null = null,
): number {
  const sharing = lanes?.filter((backend) => backend === "wasm").length ?? 1;
  return wanted ?? Math.max(1, Math.min(4, Math.floor(cores / Math.max(1, sharing))));
}

function availableBackends(capabilities: Capabilities): Backend[] {
  const order: Backend[] = ["webgpu", "webnn", "wasm"];
  return order.filter(
    (backend) => backend === "wasm" || missingReason(backend, capabilities) === null,
  );
}

function missingReason(backend: Backend, capabilities: Capabilities): string | null {
  if (backend === "wasm") {
    return capabilities.wasm.simd ? null : "this browser's WebAssembly has no vectors (SIMD)";
  }
  const info = capabilities[backend];
  return info.type === "missing" ? info.reason : null;
}
