import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { poked } from "#engine/poke";

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

function later<T>(give: () => T): Promise<T> {
  return new Promise((resolve, reject) =>
    setTimeout(() => {
      try {
        resolve(give());
      } catch (error) {
        reject(error);
      }
    }, 10),
  );
}

it("pokes the queue while it waits, and not afterwards", async () => {
  const submit = vi.fn();
  const waiting = poked({ submit }, () => later(() => 7), true);
  await vi.advanceTimersByTimeAsync(10);
  expect(await waiting).toBe(7);
  const pokes = submit.mock.calls.length;
  expect(pokes).toBeGreaterThan(1);
  expect(submit).toHaveBeenCalledWith([]);
  await vi.advanceTimersByTimeAsync(100);
  expect(submit).toHaveBeenCalledTimes(pokes);
});

it("stops poking when the work fails", async () => {
  const submit = vi.fn();
  const waiting = poked(
    { submit },
    () =>
      later(() => {
        throw new Error("lost");
      }),
    true,
  );
  const failed = expect(waiting).rejects.toThrow("lost");
  await vi.advanceTimersByTimeAsync(10);
  await failed;
  expect(vi.getTimerCount()).toBe(0);
});

it("does not poke where it is not needed", async () => {
  const submit = vi.fn();
  const waiting = poked({ submit }, () => later(() => 7), false);
  await vi.advanceTimersByTimeAsync(10);
  expect(await waiting).toBe(7);
  expect(submit).not.toHaveBeenCalled();
});
