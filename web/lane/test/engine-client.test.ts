/* The engine over its worker: answers, parts, failures, endings. */

import { expect, test } from "vitest";
import type { Broken, FromEngine, ToEngine } from "#lane/engine-calls";
import { EngineClient, type EngineWorker } from "#lane/engine-client";

class ScriptedWorker implements EngineWorker {
  onmessage: EngineWorker["onmessage"] = null;
  onerror: EngineWorker["onerror"] = null;
  onmessageerror: EngineWorker["onmessageerror"] = null;
  readonly posted: { message: ToEngine; transfer: Transferable[] }[] = [];
  terminated = false;

  postMessage(message: ToEngine, transfer: Transferable[]): void {
    this.posted.push({ message, transfer });
  }
  terminate(): void {
    this.terminated = true;
  }
  say(message: FromEngine): void {
    this.onmessage?.({ data: message } as MessageEvent<FromEngine>);
  }
}

const OPTIONS = { backend: "wasm" as const, threads: 1, ortBase: "/ort/" };

test("buffers change hands once each", () => {
  const worker = new ScriptedWorker();
  const client = new EngineClient(worker, OPTIONS);
  const shared = new Uint8Array(16);
  const files = { segment: "s", dims: {}, warmUp: [], outputs: [] };
  const brought = new Uint8Array(4);
  const input = { input: "w", dtype: "u8", dims: [4] };
  const lifted = [
    { ...input, weight: "c", bytes: brought },
    { ...input, weight: "d", bytes: null },
  ];
  const weights = [
    { name: "a", bytes: shared.subarray(0, 8) },
    { name: "b", bytes: shared.subarray(8) },
  ];
  const graph = new Uint8Array(1);
  void client.load({ ...files, graph, weights, lifted }, () => {});
  expect(worker.posted[0]?.message).toEqual({ type: "open", options: OPTIONS });
  expect(worker.posted[1]?.transfer).toEqual([graph.buffer, shared.buffer, brought.buffer]);
});

test("answers, parts and failures find their call", async () => {
  const worker = new ScriptedWorker();
  const client = new EngineClient(worker, OPTIONS);
  const parts: string[] = [];
  const run = client.run({ steps: [], body: new Uint8Array(0) }, (outputs) =>
    parts.push(...outputs.map(({ name }) => name)),
  );
  const get = client.get("t");
  const value = { dtype: "u8", dims: [0], bytes: new Uint8Array(0) };
  worker.say({ type: "part", id: 0, outputs: [{ step: 0, name: "y", value }] });
  const failure = { kind: "memory" as const, message: "too much", fatal: false, lostSegment: "s" };
  worker.say({ type: "failed", id: 1, failure });
  const outcome = { outputs: [], steps: [], kept: [], heapBytes: 5 };
  worker.say({ type: "answer", id: 0, answer: outcome });
  expect(await run).toEqual(outcome);
  expect(parts).toEqual(["y"]);
  await expect(get).rejects.toMatchObject({ name: "EngineError", ...failure });
});

test("ending it fails what is under way and what comes after", async () => {
  const worker = new ScriptedWorker();
  const client = new EngineClient(worker, OPTIONS);
  const run = client.run({ steps: [], body: new Uint8Array(0) }, () => {});
  client.terminate();
  expect(worker.terminated).toBe(true);
  await expect(run).rejects.toMatchObject({ kind: "device", fatal: true });
  await expect(client.stats()).rejects.toMatchObject({ fatal: true });
});

test("a worker that fails is ended, and whoever made it is told", async () => {
  const worker = new ScriptedWorker();
  const told: Broken[] = [];
  const client = new EngineClient(worker, OPTIONS, (broken) => told.push(broken));
  const run = client.run({ steps: [], body: new Uint8Array(0) }, () => {});
  worker.onerror?.({ message: "out of memory", preventDefault: () => {} } as ErrorEvent);
  await expect(run).rejects.toMatchObject({ fatal: true });
  expect(worker.terminated).toBe(true);
  expect(told).toEqual([{ reason: expect.stringContaining("out of memory"), backendGone: false }]);
});

test.each([
  [false, "device"],
  [true, "state_lost"],
])("a worker that tells of its loss is ended, and all are told", async (backendGone, kind) => {
  const worker = new ScriptedWorker();
  const told: Broken[] = [];
  const client = new EngineClient(worker, OPTIONS, (broken) => told.push(broken));
  const run = client.run({ steps: [], body: new Uint8Array(0) }, () => {});
  worker.say({ type: "broken", reason: "the GPU was lost", backendGone });
  expect(worker.terminated).toBe(true);
  expect(told).toEqual([{ reason: "the GPU was lost", backendGone }]);
  const error = { kind, fatal: true, message: "the GPU was lost" };
  await expect(run).rejects.toMatchObject(error);
  await expect(client.stats()).rejects.toMatchObject(error);
});
