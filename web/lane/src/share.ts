/*
 * What a device offers of itself, and whether its owner is asked first. Computing drains a battery
 * and getting models takes data: both belong to somebody.
 */

import type { PowerInfo } from "#wire/messages";

/** What the browser tells of the device. */
export type PowerFacts = Omit<PowerInfo, "share">;

/** Below this a battery counts as low, and below that as empty. */
const LOW_LEVEL = 0.2;
const EMPTY_LEVEL = 0.1;

/** A device of which nothing is known offers everything. */
export const UNKNOWN_POWER: PowerFacts = {
  onBattery: null,
  batteryLevel: null,
  savesData: false,
  hidden: false,
};

/**
 * From 0 to 1: a quarter on a low battery, nothing on one that is nearly empty, and half of that in
 * the background, where the person does something else. A browser that was started to compute gives
 * all it has.
 */
export function shareOf(
  { onBattery, batteryLevel, hidden }: PowerFacts,
  launched: boolean,
): number {
  if (launched) {
    return 1;
  }
  const level = onBattery ? (batteryLevel ?? 1) : 1;
  const offered = level < EMPTY_LEVEL ? 0 : level < LOW_LEVEL ? 0.25 : 1;
  return hidden ? offered / 2 : offered;
}

/** Whose device it is, and what kind of one. */
export interface Owned {
  /** The browser was started to compute, and belongs to who started it. */
  launched: boolean;
  mobile: boolean;
}

/** What to ask the owner before the device takes part; null if there is nothing to ask. */
export function questionFor(
  { onBattery, batteryLevel, savesData }: PowerFacts,
  { launched, mobile }: Owned,
): { title: string; detail: string } | null {
  // Most browsers of phones do not tell of the battery, which is there.
  const mayDrain = onBattery ?? mobile;
  if (launched || !(mayDrain || savesData)) {
    return null;
  }
  const level = batteryLevel === null ? "" : ` (${Math.round(batteryLevel * 100)}\u00a0% left)`;
  const battery = onBattery
    ? `This device runs on its battery${level}, and computing uses it up.`
    : "This device may run on its battery, and computing uses it up.";
  const data = "This device saves data, and a model can take hundreds of megabytes.";
  const title = mayDrain
    ? savesData
      ? "Take part on battery, and with your data?"
      : "Take part on battery?"
    : "Take part with your data?";
  const why = [mayDrain ? battery : null, savesData ? data : null].filter((text) => text !== null);
  return { title, detail: `${why.join(" ")} Nothing is done until you say so.` };
}

/** Why the device offers less than it could; null if it does not. */
export function shareWords({ share, hidden, onBattery, batteryLevel }: PowerInfo): string | null {
  if (share >= 1) {
    return null;
  }
  const isLow = onBattery === true && (batteryLevel ?? 1) < LOW_LEVEL;
  const whys = [isLow ? "its battery is low" : null, hidden ? "the page is hidden" : null];
  const why = whys.filter((text) => text !== null).join(" and ");
  return share === 0
    ? `It asks for no work while ${why}.`
    : `It asks for less work while ${why || "it is asked to"}.`;
}
