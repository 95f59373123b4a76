/* Locks by name, across the lanes and tabs of a browser where it has them, else within this worker. */

import { unlessAborted } from "#lane/abort";

export interface Locks {
  /** Does `work` while nobody else holds the lock. An abort ends the waiting, not the work. */
  hold<T>(name: string, work: () => Promise<T>, signal?: AbortSignal): Promise<T>;
  /** Does `work` if nobody holds the lock now; else gives null. */
  tryHold<T>(name: string, work: () => Promise<T>): Promise<T | null>;
}

/** A browser that denies storage may have locks and refuse them: so one is tried. */
export async function openLocks(locks: LockManager | undefined): Promise<Locks> {
  try {
    if (!locks) return new LocalLocks();
    await locks.request("holdfast-probe", { ifAvailable: true }, () => {});
  } catch {
    return new LocalLocks();
  }
  return {
    hold: (name, work, signal) => locks.request(name, signal ? { signal } : {}, work),
    tryHold: (name, work) =>
      locks.request(name, { ifAvailable: true }, (lock) => (lock ? work() : null)),
  };
}

export class LocalLocks implements Locks {
  readonly #last = new Map<string, Promise<unknown>>();

  async hold<T>(name: string, work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const before = this.#last.get(name) ?? Promise.resolve();
    let release = () => {};
    const mine = new Promise<void>((resolve) => {
      release = resolve;
    });
    const last = before.then(() => mine);
    this.#last.set(name, last);
    try {
      await (signal ? unlessAborted(before, signal) : before);
      return await work();
    } finally {
      release();
      if (this.#last.get(name) === last) this.#last.delete(name);
    }
  }

  async tryHold<T>(name: string, work: () => Promise<T>): Promise<T | null> {
    return this.#last.has(name) ? null : this.hold(name, work);
  }
}
