/*
 * Keeps the screen on while the page computes, where the browser can and wants to: a phone that goes
 * to sleep takes its lanes along. The browser lets go of it whenever the page is hidden.
 */

export class WakeLock {
  #wanted = false;
  #held: WakeLockSentinel | null = null;

  /** To be called again whenever the page is shown. */
  async hold(): Promise<void> {
    this.#wanted = true;
    if (this.#held && !this.#held.released) {
      return;
    }
    // Refused without a reason that would matter to anybody, such as a battery that is low.
    const held = await navigator.wakeLock?.request("screen").catch(() => null);
    this.#held = held ?? null;
    if (!this.#wanted) {
      this.release();
    }
  }

  release(): void {
    this.#wanted = false;
    this.#held?.release().catch(() => {});
    this.#held = null;
  }
}
