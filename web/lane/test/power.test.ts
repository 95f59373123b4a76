/* The watch over battery, data saver and visibility, with and without what browsers have of it. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { PowerWatch } from "#lane/power";
import type { PowerInfo } from "#wire/messages";

class Battery extends EventTarget {
  charging = false;
  level = 0.5;
}

class Connection extends EventTarget {
  saveData = false;
}

let page: EventTarget & { visibilityState: string };

beforeEach(() => {
  page = Object.assign(new EventTarget(), { visibilityState: "visible" });
  vi.stubGlobal("document", page);
});

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test("tells of the battery, of data and of visibility, and of their changes", async () => {
  const battery = new Battery();
  const connection = new Connection();
  vi.stubGlobal("navigator", { getBattery: async () => battery, connection });
  const told: PowerInfo[] = [];
  const watch = await PowerWatch.open(false, (power) => told.push(power));
  const first = { onBattery: true, batteryLevel: 0.5, savesData: false, hidden: false, share: 1 };
  expect(watch.now).toEqual(first);
  expect(told).toEqual([]);

  battery.level = 0.15;
  battery.dispatchEvent(new Event("levelchange"));
  connection.saveData = true;
  connection.dispatchEvent(new Event("change"));
  page.visibilityState = "hidden";
  page.dispatchEvent(new Event("visibilitychange"));
  battery.charging = true;
  battery.dispatchEvent(new Event("chargingchange"));
  expect(told.map(({ share }) => share)).toEqual([0.25, 0.25, 0.125, 0.5]);
  expect(watch.now).toMatchObject({ onBattery: false, savesData: true, hidden: true });
});

test("does not tell of what is the same", async () => {
  const battery = new Battery();
  vi.stubGlobal("navigator", { getBattery: async () => battery });
  const onChange = vi.fn();
  await PowerWatch.open(false, onChange);
  battery.dispatchEvent(new Event("levelchange"));
  page.dispatchEvent(new Event("visibilitychange"));
  expect(onChange).not.toHaveBeenCalled();
});

test.each([
  ["has no such thing", {}],
  ["refuses", { getBattery: () => Promise.reject(new Error("not here")) }],
])("a browser that %s offers everything", async (_, navigator) => {
  vi.stubGlobal("navigator", navigator);
  const watch = await PowerWatch.open(false, () => {});
  expect(watch.now).toMatchObject({ onBattery: null, batteryLevel: null, share: 1 });
});

test("a browser that never answers is not waited for", async () => {
  vi.useFakeTimers();
  vi.stubGlobal("navigator", { getBattery: () => new Promise(() => {}) });
  const opening = PowerWatch.open(false, () => {});
  await vi.advanceTimersByTimeAsync(2000);
  expect((await opening).now.onBattery).toBeNull();
});

test("a launched browser tells what is, and offers everything", async () => {
  const battery = new Battery();
  battery.level = 0.01;
  vi.stubGlobal("navigator", { getBattery: async () => battery });
  const watch = await PowerWatch.open(true, () => {});
  expect(watch.now).toMatchObject({ onBattery: true, batteryLevel: 0.01, share: 1 });
});
