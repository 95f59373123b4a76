/* What a device offers, and what its owner is asked. */

import { describe, expect, test } from "vitest";
import { questionFor, shareOf, shareWords, UNKNOWN_POWER } from "#lane/share";

const BATTERY = { ...UNKNOWN_POWER, onBattery: true, batteryLevel: 0.8 };
const OWN = { launched: false, mobile: false };
const PHONE = { launched: false, mobile: true };
const PLUGGED = { ...UNKNOWN_POWER, onBattery: false, batteryLevel: 0.05 };

describe("a share", () => {
  test.each([
    ["of which nothing is known", UNKNOWN_POWER, 1],
    ["on a good battery", BATTERY, 1],
    ["on a low battery", { ...BATTERY, batteryLevel: 0.19 }, 0.25],
    ["on an empty battery", { ...BATTERY, batteryLevel: 0.09 }, 0],
    ["on a battery of unknown level", { ...BATTERY, batteryLevel: null }, 1],
    ["that charges an empty battery", PLUGGED, 1],
    ["in the background", { ...UNKNOWN_POWER, hidden: true }, 0.5],
    ["in the background on a low battery", { ...BATTERY, batteryLevel: 0.15, hidden: true }, 0.125],
    ["that saves data", { ...UNKNOWN_POWER, savesData: true }, 1],
  ])("of a device %s", (_, facts, share) => {
    expect(shareOf(facts, false)).toBe(share);
    expect(shareOf(facts, true), "a launched browser gives all it has").toBe(1);
  });

  test("that is less than all is explained, and one that is not is not", () => {
    const low = { ...BATTERY, batteryLevel: 0.15, share: 0.25 };
    expect(shareWords(low)).toBe("It asks for less work while its battery is low.");
    expect(shareWords({ ...low, hidden: true, share: 0 })).toBe(
      "It asks for no work while its battery is low and the page is hidden.",
    );
    expect(shareWords({ ...BATTERY, hidden: true, share: 0.5 })).toBe(
      "It asks for less work while the page is hidden.",
    );
    expect(shareWords({ ...BATTERY, share: 1 })).toBeNull();
  });
});

describe("the owner", () => {
  test.each([
    ["on battery", BATTERY, "Take part on battery?", "80\u00a0% left"],
    [
      "saving data",
      { ...UNKNOWN_POWER, savesData: true },
      "Take part with your data?",
      "saves data",
    ],
    [
      "on battery and saving data",
      { ...BATTERY, savesData: true },
      "Take part on battery, and with your data?",
      "saves data",
    ],
  ])("%s is asked", (_, facts, title, detail) => {
    expect(questionFor(facts, OWN)).toEqual({ title, detail: expect.stringContaining(detail) });
    const started = { launched: true, mobile: true };
    expect(questionFor(facts, started), "a launched browser is never asked").toBeNull();
  });

  test("of a phone that tells nothing of its battery is asked, too", () => {
    const detail = expect.stringContaining("may run on its battery");
    expect(questionFor(UNKNOWN_POWER, PHONE)).toEqual({ title: "Take part on battery?", detail });
    expect(questionFor({ ...UNKNOWN_POWER, savesData: true }, PHONE)).toEqual({
      title: "Take part on battery, and with your data?",
      detail,
    });
    expect(questionFor(PLUGGED, PHONE), "it told that it is plugged in").toBeNull();
    expect(questionFor(UNKNOWN_POWER, { ...PHONE, launched: true })).toBeNull();
  });

  test.each([
    ["plugged in", PLUGGED],
    ["unknown", UNKNOWN_POWER],
    ["hidden", { ...UNKNOWN_POWER, hidden: true }],
  ])("of a device that is %s is not asked", (_, facts) => {
    expect(questionFor(facts, OWN)).toBeNull();
  });
});
