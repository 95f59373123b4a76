/* Locks by name, across the lanes and tabs of a browser where it has them, else within this worker. */

export interface Locks {
  /** Does `work` while nobody else holds the lock. An abort ends the waiting, not the work. */
  hold<T>(name: string, work: () => Promise<T>, signal?: AbortSignal): Promise<T>;
  /** Does `work` if nobody holds the lock now; else gives null. */
  tryHold<T>(name: string, work: () => Promise<T>): Promise<T | null>;
}

export function browserLocks(): Locks {
  const locks = (navigator as { locks?: LockManager }).locks;
  if (!locks) return new LocalLocks();
  return {
    hold: (name, work, signal) => locks.request(name, signal ? { signal } : {}, work),
    tryHold: (name, work) =>
      locks.request(name, { ifAvailable: true }, (lock) => (lock ? work() : null)),
  };
}

export class LocalLocks implements Locks {
  readonly #last = new Map<string, Promise<unknown>>();

  hold<T>(name: string, work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const before = this.#last.get(name) ?? Promise.resolve();
    const result = before.then(() => {
      signal?.throwIfAborted();
      return work();
    });
    const ended = result
      .catch(() => {})
      .then(() => {
        if (this.#last.get(name) === ended) this.#last.delete(name);
      });
    this.#last.set(name, ended);
    return result;
  }

  async tryHold<T>(name: string, work: () => Promise<T>): Promise<T | null> {
    return this.#last.has(name) ? null : this.hold(name, work);
  }
}
