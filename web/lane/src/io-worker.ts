/*
 * The worker that owns a lane's socket, cache and answers. It never computes, so it can always
 * answer. Timers of workers are not slowed down when the tab is hidden.
 */

import { probe } from "#engine/capabilities";
import { Blobs } from "#lane/blobs";
import { BlobCache, type BlobStorage, noStorage } from "#lane/cache";
import { openIndexedDb } from "#lane/cache-indexeddb";
import { openOpfs } from "#lane/cache-opfs";
import { capabilitiesOf } from "#lane/choose-lanes";
import { browserClock } from "#lane/clock";
import { EngineClient } from "#lane/engine-client";
import { Lane } from "#lane/lane";
import { openLocks } from "#lane/locks";
import { openSocket } from "#lane/socket";
import type { FromWorker, LaneSetup, ToWorker } from "#lane/worker-messages";
import { PROTOCOL_VERSION } from "#wire/messages";

declare const HOLDFAST_VERSION: string;

const scope = self as unknown as DedicatedWorkerGlobalScope;
let lane: Lane | null = null;
/** A lane takes a while to create: what is said meanwhile is for the lane, not for nobody. */
let handled = Promise.resolve();

scope.onmessage = ({ data }: MessageEvent<ToWorker>) => {
  handled = handled
    .then(() => handle(data))
    .catch((error) => say({ type: "failed", reason: String(error?.message ?? error) }));
};
scope.addEventListener("online", () => lane?.retryNow());

async function handle(message: ToWorker): Promise<void> {
  switch (message.type) {
    case "probe":
      return say({ type: "probed", capabilities: await probe(message.threads) });
    case "start":
      lane = await createLane(message.setup);
      return lane.start();
    case "retry":
      return lane?.retryNow();
    case "power":
      return lane?.setPower(message.power);
    case "stop":
      lane?.stop(message.reason);
      lane = null;
      say({ type: "stopped" });
  }
}

async function createLane(started: LaneSetup): Promise<Lane> {
  const { token, page, lane, backend, power, ...setup } = started;
  const capabilities = capabilitiesOf(backend, setup.capabilities);
  const locks = await openLocks(navigator.locks);
  const quotaBytes = await askQuota();
  const cache = new BlobCache(await openStorage(), locks, quotaBytes);
  await cache.open();
  const storage = { kind: cache.kind, quotaBytes, usedBytes: cache.usedBytes };
  const protocol = PROTOCOL_VERSION;
  const engine = {
    backend,
    threads: capabilities.wasm.threads,
    ortBase: new URL("./ort/", import.meta.url).href,
  };
  return new Lane({
    hello: {
      protocol,
      version: HOLDFAST_VERSION,
      page,
      lane,
      backend,
      ...capabilities,
      storage,
      power,
    },
    openSocket: () => openSocket(scope.location.origin, token),
    createEngine: (onBroken) => {
      const address = new URL("./engine-worker.js", import.meta.url);
      const worker = new Worker(address, { type: "module", name: `holdfast ${backend} engine` });
      return new EngineClient(worker, engine, onBroken);
    },
    blobs: new Blobs({ fetch: scope.fetch.bind(scope), cache, locks, clock: browserClock }),
    clock: browserClock,
    onStatus: (status) => say({ type: "status", status }),
  });
}

async function openStorage(): Promise<BlobStorage> {
  return openOpfs().catch(() => openIndexedDb().catch(() => noStorage));
}

async function askQuota(): Promise<number | null> {
  const storage = (navigator as { storage?: StorageManager }).storage;
  return (await storage?.estimate().catch(() => null))?.quota ?? null;
}

function say(message: FromWorker): void {
  scope.postMessage(message);
}
