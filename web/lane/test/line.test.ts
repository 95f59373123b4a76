/* The line: hello and welcome, cuts, resuming, endings. */

import { describe, expect, test } from "vitest";
import { keeping, LOADED, load, OUTCOME, output, run, ScriptedLane, settled } from "./scripted.ts";

describe("hello", () => {
  test("is the first message, and the welcome is waited for", async () => {
    const lane = new ScriptedLane();
    expect(lane.socket.binaryType).toBe("arraybuffer");
    lane.socket.open();
    expect(lane.socket.take()).toMatchObject([{ type: "hello", lane: 0, resume: null }]);
    lane.greet();
    expect(lane.blobs.key).toBe("key");
    await lane.ask({ type: "ping", nonce: 1 });
    expect(lane.socket.take()).toEqual([{ type: "pong", nonce: 1 }]);
  });

  test("a message before the welcome breaks the line", async () => {
    const lane = new ScriptedLane();
    lane.socket.open();
    await lane.ask({ type: "ping", nonce: 1 });
    expect(lane.socket.closed).toBe(true);
  });

  test("a server that does not answer is tried again", async () => {
    const lane = new ScriptedLane();
    lane.socket.open();
    await lane.clock.pass(15_000);
    expect(lane.sockets[0]?.closed).toBe(true);
    await lane.clock.pass(100);
    expect(lane.sockets).toHaveLength(2);
  });

  test("refused ends the lane for good, with the reason", async () => {
    const lane = new ScriptedLane();
    lane.socket.open();
    await lane.ask({ type: "refused", reason: "reload the page" });
    await lane.clock.pass(60_000);
    expect(lane.sockets).toHaveLength(1);
    expect(lane.statuses.at(-1)?.line).toEqual({ type: "ended", reason: "reload the page" });
  });
});

describe("a cut line", () => {
  test("is tried again after 100 ms · 2ⁿ up to 15 s, from the start after a welcome", async () => {
    const lane = await ScriptedLane.welcome();
    for (const waitMs of [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 15_000, 15_000]) {
      lane.socket.cut();
      const before = lane.sockets.length;
      await lane.clock.pass(waitMs - 1);
      expect(lane.sockets).toHaveLength(before);
      await lane.clock.pass(1);
      expect(lane.sockets).toHaveLength(before + 1);
    }
    lane.socket.open();
    lane.greet();
    await lane.reconnect();
  });

  test("without a ping for three heartbeats it is taken for dead", async () => {
    const lane = await ScriptedLane.welcome({ heartbeatMs: 1000 });
    await lane.clock.pass(2000);
    await lane.ask({ type: "ping", nonce: 1 });
    await lane.clock.pass(2999);
    expect(lane.socket.closed).toBe(false);
    await lane.clock.pass(1);
    expect(lane.sockets[0]?.closed).toBe(true);
  });

  test("after resuming, kept answers come again and work goes on", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(run(1));
    await lane.answer(OUTCOME);
    await lane.ask(run(2));
    lane.engine.current.part([output(new Uint8Array([5]))]);
    const hello = await lane.reconnect();
    expect(hello.resume).toEqual({ session: "s", requests: [1, 2] });
    lane.greet({ resumed: true });
    expect(lane.socket.take()).toMatchObject([
      { type: "outcome", request: 1 },
      { type: "part", request: 2 },
    ]);
    await lane.answer(OUTCOME);
    await lane.ask(run(3, "a", { kept: "t" }));
    expect(lane.socket.take()).toMatchObject([{ type: "outcome", request: 2 }]);
    expect(lane.engine.current.name).toBe("run a");
  });

  test("what happens during the cut is told afterwards", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(run(1));
    lane.socket.cut();
    lane.engine.current.reject("device", "the GPU was lost", true);
    await settled();
    await lane.comeBack();
    expect(lane.socket.take()).toMatchObject([
      { type: "lost", reason: "the GPU was lost" },
      { type: "error", request: 1, kind: "device" },
    ]);
  });

  test("an answer from before a loss does not come after it", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(load(1, "c"));
    lane.socket.cut();
    await lane.answer(LOADED);
    lane.engine.onBroken("the GPU was lost");
    await lane.comeBack();
    expect(lane.socket.take()).toMatchObject([
      { type: "loaded", request: 1 },
      { type: "lost", reason: "the GPU was lost" },
    ]);
    // Nor when it is asked for.
    await lane.ask(load(1, "c"));
    expect(lane.socket.take().map(({ type }) => type)).toEqual(["loaded", "lost"]);
  });

  test("a loss is told even if something was loaded since", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(run(1));
    await lane.ask(load(2, "c"));
    lane.socket.cut();
    lane.engine.current.reject("device", "the GPU was lost", true);
    await settled();
    await lane.answer(LOADED);
    await lane.comeBack();
    expect(lane.socket.take()).toMatchObject([
      { type: "lost" },
      { type: "error", request: 1 },
      { type: "loaded", request: 2 },
    ]);
  });

  test("a loss is told again until something after it is acknowledged", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(run(1));
    await lane.answer(OUTCOME);
    lane.engine.onBroken("the GPU was lost");
    await lane.ask({ type: "ack", requests: [1] });
    lane.socket.cut();
    await lane.comeBack();
    expect(lane.socket.take()).toMatchObject([{ type: "lost" }]);
    await lane.ask(run(2));
    await lane.ask({ type: "ack", requests: [2] });
    lane.socket.cut();
    await lane.comeBack();
    expect(lane.socket.take()).toMatchObject([]);
  });

  test("a large answer is not overtaken by the loss after it", async () => {
    const lane = await ScriptedLane.loaded();
    lane.socket.bufferedAmount = 100 * 2 ** 20;
    await lane.ask(run(1, "a", { keep: "u" }));
    await lane.answer({ ...keeping("u"), outputs: [output(new Uint8Array(2 ** 20))] });
    lane.engine.onBroken("the GPU was lost");
    await lane.ask(load(2, "a"));
    await lane.answer(LOADED);
    await lane.ask({ type: "ping", nonce: 1 });
    expect(lane.socket.take()).toMatchObject([{ type: "pong" }]);
    lane.socket.bufferedAmount = 0;
    await lane.clock.pass(5);
    expect(lane.socket.take().map(({ type }) => type)).toEqual(["outcome", "lost", "loaded"]);
  });

  test("if Holdfast does not resume, the lane starts empty", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask(run(1));
    const old = lane.engine;
    await lane.reconnect();
    lane.greet({ resumed: false, session: "other" });
    await settled();
    expect(old.terminated).toBe(true);
    expect(lane.socket.take()).toEqual([]);
    await lane.ask(run(1));
    expect(lane.socket.take()).toMatchObject([{ type: "error", request: 1, kind: "caller" }]);
    expect((await lane.reconnect()).resume?.session).toBe("other");
  });

  test("bytes that make no sense break the line, and the lane comes back", async () => {
    const lane = await ScriptedLane.welcome();
    lane.socket.sayRaw(new ArrayBuffer(3));
    expect(lane.socket.take()).toMatchObject([{ type: "error", request: null, kind: "protocol" }]);
    expect(lane.socket.closed).toBe(true);
    await lane.clock.pass(100);
    expect(lane.sockets).toHaveLength(2);
  });

  test("an unknown message breaks the line", async () => {
    const lane = await ScriptedLane.welcome();
    await lane.ask({ type: "dance" } as never);
    expect(lane.socket.take()).toMatchObject([{ type: "error", kind: "protocol" }]);
  });

  test("when the network is back it is tried at once", async () => {
    const lane = await ScriptedLane.welcome();
    lane.socket.cut();
    lane.lane.retryNow();
    expect(lane.sockets).toHaveLength(2);
  });
});

describe("endings", () => {
  test("leave for good says bye and lets go of everything", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask({ type: "leave", reason: "Holdfast ends", comeBack: false });
    expect(lane.socket.take()).toEqual([{ type: "bye", reason: "Holdfast ends" }]);
    expect(lane.engine.terminated).toBe(true);
    await lane.clock.pass(60_000);
    expect(lane.sockets).toHaveLength(1);
  });

  test("leave for a while lets go of everything and comes back as a new lane", async () => {
    const lane = await ScriptedLane.loaded();
    await lane.ask({ type: "leave", reason: "restarting", comeBack: true });
    expect(lane.engine.terminated).toBe(true);
    await lane.clock.pass(100);
    lane.socket.open();
    expect(lane.socket.take()).toMatchObject([{ type: "hello", resume: null }]);
  });

  test("stop says bye, and start begins anew", async () => {
    const lane = await ScriptedLane.loaded();
    lane.blobs.holdBack = true;
    await lane.ask(load(1, "c"));
    lane.lane.stop("stopped here");
    expect(lane.blobs.held[0]?.signal.aborted).toBe(true);
    expect(lane.socket.take()).toEqual([{ type: "bye", reason: "stopped here" }]);
    lane.lane.start();
    lane.socket.open();
    expect(lane.socket.take()).toMatchObject([{ type: "hello", resume: null }]);
  });
});

describe("what the device can spare", () => {
  const HIDDEN = {
    onBattery: null,
    batteryLevel: null,
    savesData: false,
    hidden: true,
    share: 0.5,
  };

  test("is told when it changes", async () => {
    const lane = await ScriptedLane.welcome();
    lane.lane.setPower(HIDDEN);
    await settled();
    expect(lane.socket.take()).toEqual([{ type: "power", power: HIDDEN }]);
  });

  test("is told by the next hello if it changed while the line was cut", async () => {
    const lane = await ScriptedLane.welcome();
    lane.socket.cut();
    lane.lane.setPower(HIDDEN);
    await lane.clock.pass(100);
    lane.socket.open();
    expect(lane.socket.take()).toMatchObject([{ type: "hello", power: HIDDEN }]);
  });

  test("is told after the welcome if it changed after the hello", async () => {
    const lane = await ScriptedLane.welcome();
    lane.socket.cut();
    await lane.clock.pass(100);
    lane.socket.open();
    lane.socket.take();
    lane.lane.setPower(HIDDEN);
    lane.greet({ resumed: true });
    await settled();
    expect(lane.socket.take()).toEqual([{ type: "power", power: HIDDEN }]);
  });
});
