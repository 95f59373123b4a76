/* Requests, one at a time: order, answers that are kept, deadlines, cancelling, losing the engine. */

import { describe, expect, test, vi } from "vitest";
import { GRACE_MS, IDLE_MS } from "#lane/lane";
import { REQUESTS_LIMIT } from "#lane/requests";
import { split } from "#wire/frame";
import { HEADER_LIMIT } from "#wire/messages";
import {
  keeping,
  LOADED,
  load,
  loadLifted,
  OUTCOME,
  output,
  put,
  run,
  ScriptedLane,
  settled,
} from "./scripted.ts";

describe("answers", () => {
  test("a program's outcome is settled before it is told", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(run(1));
    await lane.clock.pass(5);
    await lane.ask(run(2));
    await lane.answer(OUTCOME);
    await lane.clock.pass(7);
    await lane.answer(OUTCOME);
    expect(lane.engine.calls.slice(-4)).toEqual(["run a", "settle true", "run a", "settle true"]);
    expect(lane.socket.take()).toMatchObject([
      { type: "outcome", request: 1, queuedMs: 0, steps: OUTCOME.steps },
      { type: "outcome", request: 2, queuedMs: 0 },
    ]);
  });

  test("tensors that come back lie at multiples of 8", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(run(1));
    const outputs = [output(new Uint8Array([1, 2, 3])), output(new Uint8Array([4]), "z", 0)];
    await lane.answer({ ...OUTCOME, outputs });
    const [received] = lane.socket.received;
    expect(received?.message).toMatchObject({
      outputs: [{ value: { offset: 0, byteLen: 3 } }, { value: { offset: 8, byteLen: 1 } }],
    });
    expect([...(received?.body ?? [])]).toEqual([1, 2, 3, 0, 0, 0, 0, 0, 4]);
  });

  test("parts come before the outcome, even when they are large", async () => {
    const lane = await ScriptedLane.loaded();
    lane.socket.bufferedAmount = 100 * 2 ** 20;
    await lane.ask(run(1));
    lane.engine.current.part([output(new Uint8Array(2 ** 20))]);
    await lane.answer(OUTCOME);
    await lane.ask({ type: "ping", nonce: 1 });
    expect(lane.socket.take()).toEqual([{ type: "pong", nonce: 1 }]);
    lane.socket.bufferedAmount = 0;
    await lane.clock.pass(5);
    expect(lane.socket.take().map(({ type }) => type)).toEqual(["part", "outcome"]);
  });

  test("the memory of a large answer that came through goes back to the engine", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(run(1));
    const outputs = [output(new Uint8Array(2 ** 21)), output(new Uint8Array(8), "z", 0)];
    await lane.answer({ ...OUTCOME, outputs });
    await lane.ask({ type: "ack", requests: [1] });
    expect(lane.engine.calls.at(-1)).toBe(`take back ${2 ** 21}`);
  });

  test("it stays where it is while something is being sent, perhaps the same once more", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(run(1));
    lane.socket.bufferedAmount = 100 * 2 ** 20;
    await lane.answer({ ...OUTCOME, outputs: [output(new Uint8Array(2 ** 21))] });
    await lane.ask({ type: "ack", requests: [1] });
    expect(lane.engine.calls.filter((call) => call.startsWith("take back"))).toEqual([]);
  });

  test("a request that is under way is not done twice", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(run(1));
    await lane.ask(run(1));
    expect(lane.engine.calls.filter((call) => call === "run a")).toHaveLength(1);
    expect(lane.socket.take()).toEqual([]);
  });

  test("a request that was answered gets the kept answer until it is acknowledged", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(run(1));
    await lane.answer(OUTCOME);
    const [answer] = lane.socket.take();
    await lane.ask(run(1));
    expect(lane.socket.take()).toEqual([answer]);
    await lane.ask({ type: "ack", requests: [1] });
    await lane.ask(run(1));
    expect(lane.engine.calls.filter((call) => call === "run a")).toHaveLength(2);
  });

  test("past the limit new requests are told that the lane is busy, and are not remembered", async () => {
    const lane = await ScriptedLane.loaded();
    for (let request = 0; request < REQUESTS_LIMIT; request += 1) {
      lane.socket.say({ type: "drop", request, tensor: "nothing" });
    }
    await settled();
    lane.socket.take();
    await lane.ask(run(5000));
    expect(lane.socket.take()).toMatchObject([{ type: "error", request: 5000, kind: "busy" }]);
    await lane.ask({ type: "ack", requests: [0] });
    await lane.ask(run(5000));
    await lane.answer(OUTCOME);
    expect(lane.socket.take()).toMatchObject([{ type: "outcome", request: 5000 }]);
  });

  test("stats, pings and acknowledgements do not wait for a run", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(run(1));
    await lane.ask({ type: "ping", nonce: 3 });
    await lane.ask({ type: "stats", request: 2 });
    expect(lane.socket.take()).toMatchObject([
      { type: "pong", nonce: 3 },
      {
        type: "stats",
        request: 2,
        stats: { segments: 2, tensors: 1, tensorBytes: 8, unacknowledged: 0, engineHeapBytes: 5 },
      },
    ]);
  });

  test("an answer that the wire does not take is an error, and the lane goes on", async () => {
    const lane = await ScriptedLane.loaded();
    const steps = Array.from({ length: 100_000 }, () => ({ runMs: 0.123456, readbackMs: 0 }));
    await lane.ask(run(1));
    await lane.answer({ ...OUTCOME, steps });
    await lane.ask(run(2));
    lane.engine.current.part([output(new Uint8Array(1), "y".repeat(HEADER_LIMIT))]);
    await lane.answer(OUTCOME);
    await lane.ask(run(3, "n".repeat(100_000)));
    const answers = [
      { type: "error", request: 1, kind: "protocol", message: expect.stringContaining("limit") },
      { type: "error", request: 2, kind: "protocol", message: expect.stringContaining("limit") },
      { type: "error", request: 3, kind: "caller" },
    ];
    const told = lane.socket.take();
    expect(told).toMatchObject(answers);
    expect(JSON.stringify(told[2]).length).toBeLessThan(5000);
    lane.socket.cut();
    await lane.comeBack();
    expect(lane.socket.take()).toMatchObject(answers);
    await lane.ask(run(4));
    await lane.answer(OUTCOME);
    expect(lane.socket.take()).toMatchObject([{ type: "outcome", request: 4 }]);
  });

  test("a body that does not fit into memory fails its request, and the line stays", async () => {
    const lane = await ScriptedLane.loaded();
    const byteLen = 600_000;
    const frames = [...split(0, put(1, "u", byteLen), [new Uint8Array(byteLen)], 300_000)];
    vi.stubGlobal("Uint8Array", withoutRoomFor(byteLen));
    for (const bytes of frames.flat()) {
      lane.socket.sayRaw(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
    }
    vi.unstubAllGlobals();
    expect(lane.socket.take()).toMatchObject([{ type: "error", request: 1, kind: "memory" }]);
    await lane.ask(run(2));
    await lane.answer(OUTCOME);
    expect(lane.socket.take()).toMatchObject([{ type: "outcome", request: 2 }]);
    expect(lane.sockets).toHaveLength(1);
  });

  test("memory that a run takes shows", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(run(1));
    await lane.answer({ ...OUTCOME, heapBytes: 77 });
    await lane.ask({ type: "stats", request: 2 });
    expect(lane.socket.take()[1]).toMatchObject({ stats: { engineHeapBytes: 77 } });
  });

  test("a failure that is not fatal leaves the engine as it is", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(run(1));
    lane.engine.current.reject("caller", "wrong shape");
    await settled();
    expect(lane.socket.take()).toEqual([
      { type: "error", request: 1, kind: "caller", message: "wrong shape" },
    ]);
    await lane.ask(run(2));
    await lane.answer(OUTCOME);
    expect(lane.engines).toHaveLength(1);
  });

  test("a segment that the engine let go is lost, and no other of its program", async () => {
    const lane = await ScriptedLane.loaded();
    const [trunk, head] = [run(1, "b"), run(1, "a")];
    await lane.ask({ ...trunk, steps: [...trunk.steps, ...head.steps] });
    lane.engine.current.reject("device", "kernel failed", false, "a");
    await settled();
    await lane.ask(run(2, "a"));
    await lane.ask(run(3, "b"));
    expect(lane.socket.take()).toMatchObject([
      { request: 1, kind: "device" },
      { request: 2, kind: "state_lost" },
    ]);
    expect(lane.engine.current.name).toBe("run b");
    await lane.answer(OUTCOME);
    await lane.ask(load(4, "a"));
    expect(lane.engine.current.name).toBe("load a");
  });
});

describe("what is not there", () => {
  test("is the caller's fault if it never was", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(run(1, "c"));
    await lane.ask(run(2, "a", { kept: "u" }));
    await lane.ask({ type: "get", request: 3, tensor: "u", window: null });
    await lane.ask({ type: "drop", request: 4, tensor: "u" });
    await lane.ask({ type: "unload", request: 5, segment: "c" });
    const answers = lane.socket.take();
    expect(answers).toHaveLength(5);
    for (const answer of answers) {
      expect(answer).toMatchObject({ type: "error", kind: "caller" });
    }
  });

  test("a tensor outside of the body is against the protocol", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(put(1, "u", 16), [new Uint8Array(8)]);
    expect(lane.socket.take()).toMatchObject([{ type: "error", request: 1, kind: "protocol" }]);
  });

  test("what passes the lane's limit for tensors is not kept", async () => {
    const lane = await ScriptedLane.loaded({ tensorLimitBytes: 100 });
    await lane.ask(put(1, "u", 93), [new Uint8Array(93)]);
    expect(lane.socket.take()).toMatchObject([{ type: "error", request: 1, kind: "memory" }]);
    await lane.ask(put(2, "u", 92), [new Uint8Array(92)]);
    await lane.answer();
    await lane.ask(run(3, "a", { keep: "v" }));
    expect(lane.socket.take()).toMatchObject([
      { type: "done", request: 2 },
      { type: "error", request: 3, kind: "memory" },
    ]);
    await lane.ask(run(4, "a", { keep: "u" }));
    expect(lane.engine.current.name).toBe("run a");
  });
});

describe("tensors and segments", () => {
  test("put, get and drop", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask({ type: "get", request: 1, tensor: "t", window: null });
    await lane.answer({ dtype: "u8", dims: [2], bytes: new Uint8Array([8, 9]) });
    expect([...(lane.socket.received[0]?.body ?? [])]).toEqual([8, 9]);
    await lane.ask({ type: "drop", request: 2, tensor: "t" });
    await lane.ask({ type: "get", request: 3, tensor: "t", window: null });
    await lane.ask({ type: "unload", request: 4, segment: "a" });
    expect(lane.socket.take()).toMatchObject([
      { type: "tensor", request: 1, value: { dtype: "u8", dims: [2], offset: 0, byteLen: 2 } },
      { type: "done", request: 2 },
      { type: "error", request: 3, kind: "caller" },
      { type: "done", request: 4 },
    ]);
  });

  test("what a program keeps is there for the next", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(run(1, "a", { keep: "hidden" }));
    await lane.ask(run(2, "b", { kept: "hidden" }));
    await lane.answer(keeping("hidden"));
    await lane.answer(OUTCOME);
    expect(lane.socket.take()).toMatchObject([
      { type: "outcome", kept: [{ tensor: "hidden", dtype: "f32", dims: [2] }] },
      { type: "outcome", kept: [] },
    ]);
  });

  test("a put over what a program kept takes its room", async () => {
    const lane = await ScriptedLane.loaded({ tensorLimitBytes: 16 });
    await lane.ask(run(1, "a", { keep: "u" }));
    lane.engine.tensorBytes += 8;
    await lane.answer(keeping("u"));
    await lane.ask(put(2, "v"), [new Uint8Array(8)]);
    await lane.ask(put(3, "u"), [new Uint8Array(8)]);
    await lane.answer();
    expect(lane.socket.take()).toMatchObject([
      { type: "outcome", request: 1 },
      { type: "error", request: 2, kind: "memory" },
      { type: "done", request: 3 },
    ]);
  });

  test("a segment that is ready is told so at once", async () => {
    const lane = await ScriptedLane.loaded();
    const placement = "1 of 4 nodes on the processor (Hardmax)";
    await lane.ask(load(1, "c"));
    await lane.answer({ ...LOADED, placement });
    lane.socket.take();
    await lane.ask(load(2, "c"));
    const traffic = { downloadedBytes: 0, cachedBytes: 0 };
    expect(lane.socket.take()).toMatchObject([
      { type: "loaded", request: 2, traffic, createMs: 0, placement },
    ]);
  });

  test("a segment that went with its device is not told to be ready", async () => {
    const lane = await ScriptedLane.loaded();
    lane.engine.dead = "the GPU was lost";
    await lane.ask(load(1, "a"));
    expect(lane.socket.take()).toMatchObject([
      { type: "lost", reason: "the GPU was lost" },
      { type: "error", request: 1, kind: "device" },
    ]);
  });
});

describe("loads", () => {
  test("runs go on while blobs come, and those that need the segment wait", async () => {
    const lane = await ScriptedLane.loaded();
    lane.blobs.holdBack = true;
    await lane.ask(load(1, "c"));
    await lane.ask(load(2, "d"));
    await lane.ask(run(3, "c"));
    await lane.ask(run(4, "a"));
    expect(lane.blobs.held).toHaveLength(2);
    await lane.answer(OUTCOME);
    expect(lane.socket.take()).toMatchObject([{ type: "outcome", request: 4 }]);
    lane.blobs.held[0]?.give();
    await settled();
    lane.engine.current.phase("create");
    await lane.answer({ createMs: 2, warmUpMs: null, warmUpError: null, placement: null });
    await lane.answer(OUTCOME);
    expect(lane.socket.take()).toMatchObject([
      { type: "progress", request: 1, phase: "create", doneBytes: 10, totalBytes: 10 },
      { type: "loaded", request: 1, traffic: { downloadedBytes: 3, cachedBytes: 4 }, createMs: 2 },
      { type: "outcome", request: 3 },
    ]);
  });

  test("a lifted weight that a segment has brought is not fetched again", async () => {
    const lane = await ScriptedLane.welcome();
    await lane.ask(loadLifted(1, "a", "w"));
    await lane.answer(LOADED);
    await lane.ask(loadLifted(2, "b", "w"));
    await lane.answer(LOADED);
    await lane.ask(loadLifted(3, "c", "other"));
    await lane.answer(LOADED);
    const [a, b, c] = ["sha256-a", "sha256-b", "sha256-c"];
    expect(lane.blobs.asked).toEqual([[a, "sha256-w"], [b], [c, "sha256-other"]]);
    const brought = lane.engine.loads.map(({ lifted }) => lifted[0]?.bytes);
    expect(brought).toEqual([new Uint8Array(0), null, new Uint8Array(0)]);
    await lane.ask({ type: "stats", request: 4 });
    expect(lane.socket.take().at(-1)).toMatchObject({ stats: { liftedBytes: 7 } });
  });

  test("a lifted weight that goes while its load waits is fetched after all", async () => {
    const lane = await ScriptedLane.welcome();
    await lane.ask(loadLifted(1, "a", "w"));
    await lane.answer(LOADED);
    lane.blobs.holdBack = true;
    await lane.ask(loadLifted(2, "b", "w"));
    await lane.ask({ type: "unload", request: 3, segment: "a" });
    lane.blobs.held[0]?.give();
    await settled();
    expect(lane.blobs.asked.slice(1)).toEqual([["sha256-b"], ["sha256-w"]]);
    expect(lane.engine.loads).toHaveLength(1);
    lane.blobs.held[1]?.give();
    await settled();
    expect(lane.engine.loads[1]?.lifted[0]?.bytes).toEqual(new Uint8Array(0));
    await lane.answer(LOADED);
    expect(lane.socket.take().at(-1)).toMatchObject({
      type: "loaded",
      request: 2,
      traffic: { downloadedBytes: 6, cachedBytes: 8 },
    });
  });

  test("a lifted weight that was lost with the engine is fetched for the next one", async () => {
    const lane = await ScriptedLane.welcome();
    await lane.ask(loadLifted(1, "a", "w"));
    await lane.answer(LOADED);
    lane.engine.onBroken("the GPU was lost");
    await lane.ask(loadLifted(2, "b", "w"));
    expect(lane.blobs.asked.at(-1)).toEqual(["sha256-b", "sha256-w"]);
  });

  test("a lane whose browser gives nothing to compute on any more goes", async () => {
    const lane = await ScriptedLane.welcome();
    await lane.ask(load(1, "a"));
    lane.engine.onBroken("no GPU adapter", true);
    lane.engine.current.reject("state_lost", "no GPU adapter", true);
    await settled();
    // The GPU may just not be back yet.
    expect(lane.socket.take()).toMatchObject([{ type: "lost" }, { type: "error", request: 1 }]);
    await lane.ask(load(2, "a"));
    lane.engine.onBroken("no GPU adapter", true);
    await settled();
    // No answer: it may be given by another lane.
    expect(lane.socket.take()).toEqual([{ type: "bye", reason: "no GPU adapter" }]);
    expect(lane.engines.every(({ terminated }) => terminated)).toBe(true);
  });

  test("a lane that computes in between stays", async () => {
    const lane = await ScriptedLane.welcome();
    for (let request = 1; request < 9; request += 2) {
      await lane.ask(load(request, "a"));
      lane.engine.onBroken("no GPU adapter", true);
      lane.engine.current.reject("state_lost", "no GPU adapter", true);
      await settled();
      await lane.ask(load(request + 1, "a"));
      await lane.answer(LOADED);
      lane.engine.onBroken("the GPU was lost");
    }
    expect(lane.socket.take().map(({ type }) => type)).not.toContain("bye");
  });

  test("the engine starts while the first blobs come, and not before", async () => {
    const lane = await ScriptedLane.welcome();
    expect(lane.engines).toHaveLength(0);
    lane.blobs.holdBack = true;
    await lane.ask(load(1, "c"));
    expect(lane.engines).toHaveLength(1);
    expect(lane.engine.calls).toEqual([]);
  });

  test("progress is told at most ten times a second", async () => {
    const lane = await ScriptedLane.welcome();
    lane.blobs.holdBack = true;
    await lane.ask(load(1, "c"));
    for (let bytes = 1; bytes <= 10; bytes += 1) {
      lane.blobs.held[0]?.progress(bytes);
      await lane.clock.pass(30);
    }
    expect(
      lane.socket.take().map((message) => message.type === "progress" && message.doneBytes),
    ).toEqual([1, 5, 9]);
  });

  test("a load that fails lets the others go on", async () => {
    const lane = await ScriptedLane.loaded();
    lane.blobs.holdBack = true;
    await lane.ask(load(1, "c"));
    await lane.ask(run(2, "c"));
    lane.blobs.held[0]?.fail(new Error("no network"));
    await settled();
    expect(lane.socket.take()).toMatchObject([
      { type: "error", request: 1, kind: "device", message: "no network" },
      { type: "error", request: 2, kind: "caller" },
    ]);
  });

  test("a load that is cancelled stops its downloads", async () => {
    const lane = await ScriptedLane.welcome();
    lane.blobs.holdBack = true;
    await lane.ask(load(1, "c"));
    await lane.ask({ type: "cancel", request: 1 });
    expect(lane.blobs.held[0]?.signal.aborted).toBe(true);
    expect(lane.socket.take()).toMatchObject([{ type: "error", request: 1, kind: "cancelled" }]);
    // It was started for nothing.
    expect(lane.engine.terminated).toBe(false);
    await lane.clock.pass(IDLE_MS);
    expect(lane.engine.terminated).toBe(true);
  });

  test("a load that is cancelled in the engine is undone", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(load(1, "c"));
    await lane.ask({ type: "cancel", request: 1 });
    await lane.answer(LOADED);
    await lane.ask(run(2, "c"));
    expect(lane.engine.calls.at(-1)).toBe("unload c");
    expect(lane.socket.take()).toMatchObject([
      { type: "error", request: 1, kind: "cancelled" },
      { type: "error", request: 2, kind: "caller" },
    ]);
  });

  test("blobs do not pile up in memory", async () => {
    const lane = await ScriptedLane.welcome();
    lane.blobs.holdBack = true;
    await lane.ask(load(1, "c", 600 * 2 ** 20));
    await lane.ask(load(2, "d", 600 * 2 ** 20));
    expect(lane.blobs.held).toHaveLength(1);
    lane.blobs.held[0]?.give();
    await settled();
    await lane.answer(LOADED);
    expect(lane.blobs.held).toHaveLength(2);
  });
});

describe("giving up", () => {
  test("a deadline is answered at once, and an engine that comes back keeps its state", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(run(1, "a", { deadlineMs: 50, keep: "u" }));
    await lane.clock.pass(50);
    expect(lane.socket.take()).toMatchObject([{ type: "error", request: 1, kind: "timeout" }]);
    expect(lane.engine.cancels).toBe(1);
    lane.engine.current.part([output(new Uint8Array(1))]);
    await lane.answer(OUTCOME);
    expect(lane.engine.calls.at(-1)).toBe("settle false");
    await lane.clock.pass(GRACE_MS);
    await lane.ask({ type: "get", request: 2, tensor: "u", window: null });
    await lane.ask(run(3));
    await lane.answer(OUTCOME);
    expect(lane.socket.take()).toMatchObject([
      { type: "error", request: 2, kind: "caller" },
      { type: "outcome", request: 3 },
    ]);
    expect(lane.engines).toHaveLength(1);
  });

  test("an engine that does not come back is replaced, and what needs it is told", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(run(1));
    await lane.ask(run(2, "b"));
    await lane.ask({ type: "get", request: 3, tensor: "t", window: null });
    await lane.ask(put(4, "u"), [new Uint8Array(8)]);
    await lane.ask({ type: "cancel", request: 1 });
    expect(lane.socket.take()).toMatchObject([{ type: "error", request: 1, kind: "cancelled" }]);
    const stuck = lane.engine;
    await lane.clock.pass(GRACE_MS - 1);
    expect(stuck.terminated).toBe(false);
    await lane.clock.pass(1);
    expect(stuck.terminated).toBe(true);
    await lane.answer();
    expect(lane.engines).toHaveLength(2);
    expect(lane.socket.take()).toMatchObject([
      { type: "lost", reason: expect.stringContaining("run 1") },
      { type: "error", request: 2, kind: "state_lost" },
      { type: "error", request: 3, kind: "state_lost" },
      { type: "done", request: 4 },
    ]);
    await lane.ask({ type: "stats", request: 5 });
    expect(lane.socket.take()).toMatchObject([
      { stats: { segments: 0, tensors: 1, engineRestarts: 1 } },
    ]);
  });

  test("a request that expires or is cancelled while it waits never starts", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(run(1));
    await lane.ask(run(2, "a", { deadlineMs: 20 }));
    await lane.ask(run(3, "a"));
    await lane.ask({ type: "cancel", request: 3 });
    await lane.clock.pass(20);
    expect(lane.socket.take()).toMatchObject([
      { request: 3, kind: "cancelled" },
      { request: 2, kind: "timeout" },
    ]);
    await lane.answer(OUTCOME);
    expect(lane.engine.calls.filter((call) => call === "run a")).toHaveLength(1);
    expect(lane.engine.cancels).toBe(0);
  });

  test("what cannot be undone is done and told so, although it was cancelled", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(put(1, "u"), [new Uint8Array(8)]);
    await lane.ask({ type: "cancel", request: 1 });
    expect(lane.socket.take()).toEqual([]);
    await lane.answer();
    await lane.ask(run(2, "a", { kept: "u" }));
    expect(lane.socket.take()).toMatchObject([{ type: "done", request: 1 }]);
    expect(lane.engine.current.name).toBe("run a");
    // What only waits does not begin.
    await lane.ask({ type: "unload", request: 3, segment: "a" });
    await lane.ask({ type: "cancel", request: 3 });
    expect(lane.socket.take()).toMatchObject([{ type: "error", request: 3, kind: "cancelled" }]);
  });

  test("cancelling what is answered or unknown changes nothing", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(run(1));
    await lane.answer(OUTCOME);
    lane.socket.take();
    await lane.ask({ type: "cancel", request: 1 });
    await lane.ask({ type: "cancel", request: 77 });
    expect(lane.socket.take()).toEqual([]);
    expect(lane.engine.cancels).toBe(0);
  });

  test("a deadline of a program that is done is forgotten", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(run(1, "a", { deadlineMs: 50 }));
    await lane.answer(OUTCOME);
    lane.socket.take();
    await lane.clock.pass(60);
    expect(lane.socket.take()).toEqual([]);
  });
});

describe("losing the engine", () => {
  test("a fatal failure answers the request, tells the loss, and the next one gets a new engine", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(run(1));
    lane.engine.current.reject("device", "the GPU was lost", true);
    await settled();
    expect(lane.engines[0]?.terminated).toBe(true);
    expect(lane.socket.take()).toEqual([
      { type: "lost", reason: "the GPU was lost" },
      { type: "error", request: 1, kind: "device", message: "the GPU was lost" },
    ]);
    await lane.ask(run(2));
    expect(lane.socket.take()).toMatchObject([{ type: "error", request: 2, kind: "state_lost" }]);
    expect(lane.engines).toHaveLength(1);
    await lane.ask(load(3, "a"));
    await lane.answer(LOADED);
    await lane.ask(run(4));
    await lane.answer(OUTCOME);
    expect(lane.engines).toHaveLength(2);
    expect(lane.socket.take()).toMatchObject([{ type: "loaded" }, { type: "outcome", request: 4 }]);
  });

  test("an engine that holds nothing any more is ended, which is no loss", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask({ type: "unload", request: 1, segment: "a" });
    await lane.ask({ type: "unload", request: 2, segment: "b" });
    await lane.clock.pass(IDLE_MS);
    expect(lane.engine.terminated).toBe(false);
    await lane.ask({ type: "drop", request: 3, tensor: "t" });
    await lane.clock.pass(IDLE_MS - 1);
    expect(lane.engine.terminated).toBe(false);
    await lane.clock.pass(1);
    expect(lane.engine.terminated).toBe(true);
    await lane.ask({ type: "stats", request: 4 });
    await lane.ask(run(5));
    await lane.ask(load(6, "a"));
    await lane.answer(LOADED);
    expect(lane.engines).toHaveLength(2);
    expect(lane.socket.take()).toMatchObject([
      { type: "done" },
      { type: "done" },
      { type: "done" },
      { type: "stats", stats: { engineRestarts: 0, engineHeapBytes: null } },
      { type: "error", request: 5, kind: "caller" },
      { type: "loaded", request: 6 },
    ]);
  });

  test("an engine that gets work before it is ended stays", async () => {
    const lane = await ScriptedLane.welcome();
    await lane.ask(load(1, "a"));
    await lane.answer(LOADED);
    await lane.ask({ type: "unload", request: 2, segment: "a" });
    await lane.clock.pass(IDLE_MS - 1);
    lane.blobs.holdBack = true;
    await lane.ask(load(3, "a"));
    await lane.clock.pass(IDLE_MS);
    expect(lane.engine.terminated).toBe(false);
  });

  test("an engine that breaks while nothing runs is told too", async () => {
    const lane = await ScriptedLane.loaded();
    lane.engine.onBroken("out of memory");
    expect(lane.socket.take()).toEqual([{ type: "lost", reason: "out of memory" }]);
    expect(lane.engine.terminated).toBe(true);
  });
});

function withoutRoomFor(byteLen: number) {
  return new Proxy(Uint8Array, {
    construct(target, given) {
      if (given[0] === byteLen) {
        throw new RangeError("Array buffer allocation failed");
      }
      return Reflect.construct(target, given);
    },
  });
}
