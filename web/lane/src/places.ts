/* Lets so many work at once. */

import { unlessAborted } from "#lane/abort";

export class Places {
  readonly #waiting: (() => void)[] = [];
  #free: number;

  constructor(count: number) {
    this.#free = count;
  }

  /** Does `work` once there is a place. An abort ends the waiting, not the work. */
  async take<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
    await this.#enter(signal);
    try {
      signal.throwIfAborted();
      return await work();
    } finally {
      this.#leave();
    }
  }

  async #enter(signal: AbortSignal): Promise<void> {
    if (this.#free > 0) {
      this.#free -= 1;
      return;
    }
    let enter = () => {};
    const entered = new Promise<void>((resolve) => {
      enter = resolve;
    });
    this.#waiting.push(enter);
    try {
      await unlessAborted(entered, signal);
    } catch (error) {
      const at = this.#waiting.indexOf(enter);
      if (at >= 0) this.#waiting.splice(at, 1);
      // It got its place at the same moment.
      else this.#leave();
      throw error;
    }
  }

  #leave(): void {
    const next = this.#waiting.shift();
    if (next) next();
    else this.#free += 1;
  }
}
