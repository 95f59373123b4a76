/* Time and chance, passed in so that tests own them. */

export interface Clock {
  /** Milliseconds of a monotonic clock. */
  now(): number;
  /** Calls back after a while, unless the function that it returns is called before. */
  after(ms: number, callback: () => void): () => void;
  /** A number from 0 up to 1. */
  random(): number;
}

export const browserClock: Clock = {
  now: () => performance.now(),
  after(ms, callback) {
    const timer = setTimeout(callback, ms);
    return () => clearTimeout(timer);
  },
  random: () => Math.random(),
};

/** 100 ms · 2ⁿ, at most 15 s, with up to half of it taken off by chance so that lanes spread out. */
export function backOffMs(attempt: number, clock: Clock): number {
  return Math.min(15_000, 100 * 2 ** attempt) * (1 - clock.random() / 2);
}
