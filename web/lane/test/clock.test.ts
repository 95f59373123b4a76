import { afterEach, expect, test, vi } from "vitest";
import { browserClock } from "#lane/clock";

afterEach(() => {
  vi.useRealTimers();
});

test.each([2 ** 31, 2 ** 40, Number.POSITIVE_INFINITY])("%d ms are not over at once", (ms) => {
  vi.useFakeTimers();
  const called = vi.fn();
  browserClock.after(ms, called);
  // What fake timers do with a wait that a real one cannot count is their own affair.
  expect(vi.getTimerCount()).toBe(1);
  vi.advanceTimersByTime(2 ** 31 - 2);
  expect(called).not.toHaveBeenCalled();
});

test("a wait is over when its time has come, unless it was stopped", () => {
  vi.useFakeTimers();
  const [called, stopped] = [vi.fn(), vi.fn()];
  browserClock.after(10, called);
  browserClock.after(10, stopped)();
  vi.advanceTimersByTime(10);
  expect(called).toHaveBeenCalledOnce();
  expect(stopped).not.toHaveBeenCalled();
});
