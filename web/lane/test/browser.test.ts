/* The built page in a real Chromium, with Holdfast's part played by the test. */

import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import type { BlobRef, ToLane } from "#wire/messages";
import { Chromium } from "../../engine/test/chromium.ts";
import { writeOnnx } from "../../engine/test/onnx-writer.ts";
import { FakeHoldfast, type LaneConnection } from "./fake-holdfast.ts";

const LIMIT_MS = 120_000;
/** Of the matrices of a program that takes too long: 4 products of 140 G operations each. */
const SIDE = 1024;
/** Far longer than the grace of an engine that was given up. */
const ENDLESS_MS = 30_000;
let holdfast: FakeHoldfast;
let browser: Chromium | null = null;

beforeAll(() => {
  execFileSync(process.execPath, [join(import.meta.dirname, "../../build.mjs")]);
});

beforeEach(async () => {
  holdfast = await FakeHoldfast.start();
});

afterEach(async () => {
  await browser?.close();
  browser = null;
  await holdfast.close();
});

test(
  "a model loads by its hash, runs, and is not downloaded again after a reload",
  async () => {
    const load = addModel();
    browser = Chromium.launch(holdfast.link("wasm"));
    const lane = await holdfast.lane();
    expect(lane.hello).toMatchObject({ protocol: 1, backend: "wasm", lane: 0, resume: null });
    expect(lane.hello?.storage.kind).toBe("opfs");
    expect(lane.hello?.machine.crossOriginIsolated).toBe(true);
    lane.welcome();
    lane.send({ ...load, request: 1 });
    const loaded = await lane.next("loaded", 1);
    expect(loaded.message.traffic).toEqual({ downloadedBytes: total(load), cachedBytes: 0 });
    expect(await run(lane, 2)).toEqual([17, 30, 25, 42]);
    lane.send({ type: "stats", request: 3 });
    expect((await lane.next("stats")).message.stats).toMatchObject({
      segments: 1,
      unacknowledged: 2,
      cacheBytes: total(load),
      downloadedBytes: total(load),
    });

    holdfast.commands.push("reload");
    const again = await holdfast.lane();
    expect(again.hello?.page).toBe(lane.hello?.page);
    expect(again.hello?.storage.usedBytes).toBe(total(load));
    again.welcome();
    again.send({ ...load, request: 1 });
    const cached = await again.next("loaded", 1);
    expect(cached.message.traffic).toEqual({ downloadedBytes: 0, cachedBytes: total(load) });
    expect(await run(again, 2)).toEqual([17, 30, 25, 42]);
    expect([...holdfast.downloads.values()]).toEqual([1, 1, 1]);
  },
  LIMIT_MS,
);

test(
  "every backend of the browser has a lane that gives the right answer",
  async () => {
    const load = addModel();
    browser = Chromium.launch(holdfast.link("auto"));
    const backends: unknown[] = [];
    for (let count = 0; count < 3; count += 1) {
      const lane = await holdfast.lane();
      backends.push(lane.hello?.backend);
      expect(lane.hello?.wasm.threads === 1 || lane.hello?.backend === "wasm").toBe(true);
      lane.welcome();
      lane.send({ ...load, request: 1 });
      await lane.next("loaded", 1);
      expect(await run(lane, 2)).toEqual([17, 30, 25, 42]);
    }
    expect(backends.sort()).toEqual(["wasm", "webgpu", "webnn"]);
    expect([...holdfast.downloads.values()]).toEqual([1, 1, 1]);
  },
  LIMIT_MS,
);

test(
  "an answer that the line swallowed comes after it is back",
  async () => {
    browser = Chromium.launch(holdfast.link("wasm"));
    const lane = await holdfast.lane();
    lane.welcome();
    lane.send({ ...addModel(), request: 1 });
    await lane.next("loaded", 1);
    lane.send({ type: "ack", requests: [1] });
    askRun(lane, 2);
    lane.cut();
    const back = await holdfast.lane();
    const resume = back.hello?.resume;
    expect(resume?.session).toBe("session-of-the-test");
    back.welcome({ resumed: true });
    // The request may have been lost with the line too: then it has to be asked again.
    if (!resume?.requests.includes(2)) {
      askRun(back, 2);
    }
    expect(await outcome(back, 2)).toEqual([17, 30, 25, 42]);
    expect(await run(back, 3)).toEqual([17, 30, 25, 42]);
  },
  LIMIT_MS,
);

test(
  "an engine that does not come back is replaced while the lane goes on answering",
  async () => {
    browser = Chromium.launch(holdfast.link("wasm"));
    const lane = await holdfast.lane();
    lane.welcome();
    const model = addModel();
    lane.send({ ...model, request: 1 });
    await lane.next("loaded", 1);
    lane.send({ ...addProducts("one", 1), request: 10 });
    await lane.next("loaded", 10);
    // The first run is slower than those that follow.
    await timeOf(lane, 11, "one");
    const one = Math.max(await timeOf(lane, 12, "one"), 1);
    lane.send({ ...addProducts("endless", Math.ceil(ENDLESS_MS / one)), request: 2 });
    await lane.next("loaded", 2);
    askProducts(lane, 3, "endless", 100);
    askRun(lane, 4);
    await expect(lane.next("outcome", 3)).rejects.toThrow('"kind":"timeout"');
    lane.send({ type: "ping", nonce: 1 });
    await lane.next("pong");
    expect(lane.received.some(({ message }) => message.type === "lost")).toBe(false);
    expect((await lane.next("lost")).message.reason).toContain("run 3");
    await expect(outcome(lane, 4)).rejects.toThrow('"kind":"state_lost"');
    lane.received.length = 0;
    lane.send({ ...model, request: 5 });
    expect((await lane.next("loaded", 5)).message.traffic.downloadedBytes).toBe(0);
    expect(await run(lane, 6)).toEqual([17, 30, 25, 42]);
  },
  LIMIT_MS,
);

test(
  "the stop button says goodbye, and starts again",
  async () => {
    browser = Chromium.launch(holdfast.link("wasm"));
    const lane = await holdfast.lane();
    lane.welcome();
    lane.send({ type: "ping", nonce: 7 });
    expect((await lane.next("pong")).message.nonce).toBe(7);
    holdfast.commands.push("press");
    expect((await lane.next("bye")).message.reason).toContain("stopped");
    holdfast.commands.push("press");
    const again = await holdfast.lane();
    expect(again.hello?.resume).toBeNull();
  },
  LIMIT_MS,
);

type Load = Extract<ToLane, { type: "load" }>;

/** `y = x · [[1, 2], [3, 4]] + [10, 20]` with its weights in blobs of their own. */
function addModel(): Load {
  const w = holdfast.addBlob(bytesOf([1, 2, 3, 4]));
  const b = holdfast.addBlob(bytesOf([10, 20]));
  const graph = writeOnnx({
    nodes: [
      { op: "MatMul", inputs: ["x", "w"], outputs: ["xw"] },
      { op: "Add", inputs: ["xw", "b"], outputs: ["y"] },
    ],
    inputs: [{ name: "x", dtype: "f32", dims: ["rows", 2] }],
    outputs: [{ name: "y", dtype: "f32", dims: ["rows", 2] }],
    weights: [
      { name: "w", dims: [2, 2], file: w.name, byteLen: w.byteLen },
      { name: "b", dims: [2], file: b.name, byteLen: b.byteLen },
    ],
  });
  return {
    type: "load",
    request: 0,
    segment: "linear",
    graph: holdfast.addBlob(graph),
    weights: [w, b],
    lifted: [],
    dims: { rows: 2 },
    warmUp: [{ name: "x", dtype: "f32", dims: [2, 2] }],
    outputs: ["y"],
  };
}

/** Small inputs, and as many large products in a row as are asked for. */
function addProducts(segment: string, count: number): Load {
  const square = (number: number) => (number === count ? "y" : `square ${number}`);
  const products = Array.from({ length: count }, (_, number) => ({
    op: "MatMul",
    inputs: [square(number), square(number)],
    outputs: [square(number + 1)],
  }));
  const graph = writeOnnx({
    nodes: [{ op: "MatMul", inputs: ["column", "row"], outputs: [square(0)] }, ...products],
    inputs: [
      { name: "column", dtype: "f32", dims: [SIDE, 1] },
      { name: "row", dtype: "f32", dims: [1, SIDE] },
    ],
    outputs: [{ name: "y", dtype: "f32", dims: [SIDE, SIDE] }],
  });
  const blob = holdfast.addBlob(graph);
  const rest = { weights: [], lifted: [], dims: {}, warmUp: [], outputs: ["y"] };
  return { type: "load", request: 0, segment, graph: blob, ...rest };
}

function askProducts(
  lane: LaneConnection,
  request: number,
  segment: string,
  deadlineMs: number,
): void {
  const value = { dtype: "f32", dims: [SIDE, 1], offset: 0, byteLen: SIDE * 4 };
  const inputs = [
    { name: "column", from: { type: "inline" as const, value } },
    { name: "row", from: { type: "inline" as const, value: { ...value, dims: [1, SIDE] } } },
  ];
  const outputs = [{ name: "y", to: { returned: false, keep: null } }];
  const steps = [{ segment, inputs, outputs, early: false }];
  lane.send({ type: "run", request, deadlineMs, steps }, [bytesOf(ones())]);
}

/** How many milliseconds the engine takes for it on this machine. */
async function timeOf(lane: LaneConnection, request: number, segment: string): Promise<number> {
  askProducts(lane, request, segment, LIMIT_MS);
  const { message } = await lane.next("outcome", request);
  return message.steps[0]?.runMs ?? 0;
}

function ones(): number[] {
  return new Array(SIDE).fill(1);
}

function total({ graph, weights }: Load): number {
  return [graph, ...weights].reduce((sum, blob: BlobRef) => sum + blob.byteLen, 0);
}

function run(lane: LaneConnection, request: number): Promise<number[]> {
  askRun(lane, request);
  return outcome(lane, request);
}

function askRun(lane: LaneConnection, request: number): void {
  const value = { dtype: "f32", dims: [2, 2], offset: 0, byteLen: 16 };
  const step = {
    segment: "linear",
    inputs: [{ name: "x", from: { type: "inline" as const, value } }],
    outputs: [{ name: "y", to: { returned: true, keep: null } }],
    early: false,
  };
  lane.send({ type: "run", request, deadlineMs: 30_000, steps: [step] }, [bytesOf([1, 2, 3, 4])]);
}

async function outcome(lane: LaneConnection, request: number): Promise<number[]> {
  const { message, body } = await lane.next("outcome", request);
  const value = message.outputs[0]?.value;
  expect(value).toMatchObject({ dtype: "f32", dims: [2, 2], offset: 0, byteLen: 16 });
  return [...new Float32Array(body.slice().buffer)];
}

function bytesOf(values: number[]): Uint8Array<ArrayBuffer> {
  return new Uint8Array(new Float32Array(values).buffer);
}
