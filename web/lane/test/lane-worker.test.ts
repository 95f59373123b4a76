/* The worker of a lane, seen from the page: it is told things, and started again when it fails. */

import { expect, test } from "vitest";
import type { LaneStatus } from "#lane/lane-status";
import { GOODBYE_MS, LaneWorker, type PageWorker } from "#lane/lane-worker";
import type { FromWorker, LaneSetup, ToWorker } from "#lane/worker-messages";
import { ScriptedClock } from "./scripted.ts";

class ScriptedWorker implements PageWorker {
  onmessage: PageWorker["onmessage"] = null;
  onerror: PageWorker["onerror"] = null;
  readonly told: ToWorker["type"][] = [];
  setup: LaneSetup | null = null;
  terminated = false;

  postMessage(message: ToWorker): void {
    this.told.push(message.type);
    if (message.type === "start") {
      this.setup = message.setup;
    }
  }
  terminate(): void {
    this.terminated = true;
  }
  say(message: FromWorker): void {
    this.onmessage?.({ data: message } as MessageEvent<FromWorker>);
  }
}

function lane() {
  const clock = new ScriptedClock();
  const workers: ScriptedWorker[] = [];
  const setup = { lane: 0, backend: "wasm" } as LaneSetup;
  const spawn = () => {
    const worker = new ScriptedWorker();
    workers.push(worker);
    return worker;
  };
  const changes: (string | null)[] = [];
  const worker: LaneWorker = new LaneWorker({
    setup,
    spawn,
    clock,
    onChange: () => changes.push(worker.view.failure),
  });
  worker.start();
  return { worker, workers, clock, changes };
}

const CONNECTED = { line: { type: "connected", name: "x" } } as LaneStatus;

test("a worker that fails is ended, and another started after 100 ms · 2ⁿ", async () => {
  const { worker, workers, clock, changes } = lane();
  workers[0]?.say({ type: "status", status: CONNECTED });
  workers[0]?.say({ type: "failed", reason: "no memory" });
  expect(workers[0]?.terminated).toBe(true);
  expect(worker.view).toMatchObject({ failure: "no memory", status: null });
  await clock.pass(100);
  expect(workers).toHaveLength(2);
  workers[1]?.onerror?.({ message: "" } as ErrorEvent);
  await clock.pass(199);
  expect(workers).toHaveLength(2);
  await clock.pass(1);
  expect(workers.map(({ told }) => told)).toEqual([["start"], ["start"], ["start"]]);
  workers[2]?.say({ type: "status", status: CONNECTED });
  expect(changes).toEqual([null, "no memory", "its script cannot be loaded", null]);
  workers[2]?.say({ type: "failed", reason: "no memory" });
  await clock.pass(100);
  expect(workers).toHaveLength(4);
});

test("one that is stopped says goodbye and is ended in any case, and is not started again", async () => {
  const { worker, workers, clock } = lane();
  worker.retryNow();
  worker.stop("stopped");
  expect(workers[0]?.told).toEqual(["start", "retry", "stop"]);
  expect(workers[0]?.terminated).toBe(false);
  await clock.pass(GOODBYE_MS);
  expect(workers[0]?.terminated).toBe(true);
  await clock.pass(60_000);
  expect(workers).toHaveLength(1);
});

test("one that was stopped while it waited to be started again stays stopped", async () => {
  const { worker, workers, clock } = lane();
  workers[0]?.say({ type: "failed", reason: "no memory" });
  worker.stop("stopped");
  await clock.pass(60_000);
  expect(workers).toHaveLength(1);
  const { worker: other, workers: others } = lane();
  other.stop("stopped");
  others[0]?.say({ type: "stopped" });
  expect(others[0]?.terminated).toBe(true);
});

test("what the device can spare is told, and told again to a worker that takes over", async () => {
  const { worker, workers, clock } = lane();
  const power = {
    onBattery: true,
    batteryLevel: 0.1,
    savesData: false,
    hidden: false,
    share: 0.25,
  };
  worker.setPower(power);
  expect(workers[0]?.told).toEqual(["start", "power"]);
  expect(workers[0]?.setup?.power).not.toEqual(power);
  workers[0]?.say({ type: "failed", reason: "out of memory" });
  await clock.pass(100);
  expect(workers[1]?.setup?.power).toEqual(power);
});
