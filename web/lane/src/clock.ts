/* Time and chance, passed in so that tests own them. */

export interface Clock {
  /** Milliseconds of a monotonic clock. */
  now(): number;
  /** Calls back after a while, unless the function that it returns is called before. */
  after(ms: number, callback: () => void): () => void;
  /** A number from 0 up to 1. */
  random(): number;
}

const LONGEST_TIMER_MS = 2 ** 31 - 1;

export const browserClock: Clock = {
  now: () => performance.now(),
  after(ms, callback) {
    // More than a timer can count would be over at once.
    const timer = setTimeout(callback, Math.min(ms, LONGEST_TIMER_MS));
    return () => clearTimeout(timer);
  },
  random: () => Math.random(),
};

/** 100 ms · 2ⁿ, at most 15 s, with up to half of it taken off by chance so that lanes spread out. */
export function backOffMs(attempt: number, clock: Clock): number {
  return Math.min(15_000, 100 * 2 ** attempt) * (1 - clock.random() / 2);
}
