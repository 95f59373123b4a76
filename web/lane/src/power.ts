/*
 * Watches what the device can spare: its battery, whether its owner saves data, and whether anybody
 * looks at the page. Only a page can see that; workers are told.
 */

import { withLimit } from "#engine/limit";
import { type PowerFacts, shareOf, UNKNOWN_POWER } from "#lane/share";
import type { PowerInfo } from "#wire/messages";

/** How long the browser may take to tell of its battery. */
const BATTERY_MS = 2000;

interface Battery extends EventTarget {
  charging: boolean;
  level: number;
}

/** Parts of `navigator` that not every browser has, and that TypeScript does not know. */
interface PowerNavigator {
  getBattery?: () => Promise<Battery>;
  connection?: EventTarget & { saveData?: boolean };
}

export class PowerWatch {
  readonly #launched: boolean;
  readonly #onChange: (power: PowerInfo) => void;
  #battery: Battery | null = null;
  #now: PowerInfo = { ...UNKNOWN_POWER, share: 1 };

  /** `launched` says that the browser was started to compute, and belongs to who started it. */
  static async open(launched: boolean, onChange: (power: PowerInfo) => void): Promise<PowerWatch> {
    const watch = new PowerWatch(launched, onChange);
    await watch.#open();
    return watch;
  }

  private constructor(launched: boolean, onChange: (power: PowerInfo) => void) {
    this.#launched = launched;
    this.#onChange = onChange;
  }

  get now(): PowerInfo {
    return this.#now;
  }

  async #open(): Promise<void> {
    const { getBattery, connection } = navigator as PowerNavigator;
    try {
      const asked = getBattery?.call(navigator);
      this.#battery = asked ? await withLimit(asked, BATTERY_MS, "the battery") : null;
    } catch {
      // A browser that does not tell is one without a battery.
    }
    this.#now = this.#look();
    const look = () => this.#changed();
    this.#battery?.addEventListener("chargingchange", look);
    this.#battery?.addEventListener("levelchange", look);
    connection?.addEventListener?.("change", look);
    document.addEventListener("visibilitychange", look);
  }

  #look(): PowerInfo {
    const { connection } = navigator as PowerNavigator;
    const facts: PowerFacts = {
      onBattery: this.#battery ? !this.#battery.charging : null,
      batteryLevel: this.#battery?.level ?? null,
      savesData: connection?.saveData === true,
      hidden: document.visibilityState === "hidden",
    };
    return { ...facts, share: shareOf(facts, this.#launched) };
  }

  #changed(): void {
    const seen = this.#look();
    const isSame = (Object.keys(seen) as (keyof PowerInfo)[]).every(
      (key) => seen[key] === this.#now[key],
    );
    if (!isSame) {
      this.#now = seen;
      this.#onChange(seen);
    }
  }
}
