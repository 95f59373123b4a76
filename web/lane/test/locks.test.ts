/* Locks, places and aborts. */

import { expect, test } from "vitest";
import { eitherSignal, unlessAborted } from "#lane/abort";
import { LocalLocks, openLocks } from "#lane/locks";
import { Places } from "#lane/places";
import { settled } from "./scripted.ts";

const never = new AbortController().signal;

test("a lock is held by one at a time, and let go when its work fails", async () => {
  const locks = new LocalLocks();
  const order: string[] = [];
  let finish = () => {};
  const first = locks.hold("a", async () => {
    await new Promise<void>((resolve) => {
      finish = resolve;
    });
    order.push("first");
    throw new Error("failed");
  });
  const second = locks.hold("a", async () => order.push("second"));
  expect(await locks.tryHold("a", async () => true)).toBeNull();
  expect(await locks.tryHold("b", async () => true)).toBe(true);
  finish();
  await expect(first).rejects.toThrow("failed");
  await second;
  expect(order).toEqual(["first", "second"]);
  expect(await locks.tryHold("a", async () => true)).toBe(true);
});

test("an abort ends the waiting for a lock, and those behind still wait for the one before", async () => {
  const locks = new LocalLocks();
  const abort = new AbortController();
  let finish = () => {};
  const first = locks.hold(
    "a",
    () =>
      new Promise<void>((resolve) => {
        finish = resolve;
      }),
  );
  await settled();
  const aborted = locks.hold("a", async () => "never", abort.signal);
  let third = "waits";
  const done = locks.hold("a", async () => {
    third = "done";
  });
  abort.abort(new Error("enough"));
  await expect(aborted).rejects.toThrow("enough");
  await settled();
  expect(third).toBe("waits");
  finish();
  await Promise.all([first, done]);
  expect(third).toBe("done");
});

test("an abort ends the waiting for a place, and costs no place", async () => {
  const places = new Places(1);
  const abort = new AbortController();
  let finish = () => {};
  const first = places.take(
    () =>
      new Promise<void>((resolve) => {
        finish = resolve;
      }),
    never,
  );
  await settled();
  const aborted = places.take(async () => "never", abort.signal);
  const third = places.take(async () => "done", never);
  abort.abort(new Error("enough"));
  await expect(aborted).rejects.toThrow("enough");
  finish();
  await first;
  expect(await third).toBe("done");
  expect(await places.take(async () => "again", never)).toBe("again");
});

test("a browser that refuses its locks does without", async () => {
  const refusing = {
    request: async () => {
      throw new DOMException("denied", "SecurityError");
    },
  };
  expect(await openLocks(refusing as unknown as LockManager)).toBeInstanceOf(LocalLocks);
  expect(await openLocks(undefined)).toBeInstanceOf(LocalLocks);
  const willing = { request: async (_: string, __: unknown, work: () => unknown) => work() };
  const locks = await openLocks(willing as unknown as LockManager);
  expect(locks).not.toBeInstanceOf(LocalLocks);
  expect(await locks.hold("a", async () => 7)).toBe(7);
});

test("what is aborted already does not begin to wait", async () => {
  const waiting = unlessAborted(new Promise(() => {}), AbortSignal.abort(new Error("enough")));
  await expect(waiting).rejects.toThrow("enough");
  expect(await unlessAborted(Promise.resolve(7), never)).toBe(7);
});

test.each(["with", "without"])("either signal aborts, %s help of the browser", (how) => {
  const { any } = AbortSignal;
  if (how === "without") Reflect.deleteProperty(AbortSignal, "any");
  try {
    const [one, other] = [new AbortController(), new AbortController()];
    const either = eitherSignal(one.signal, other.signal);
    expect(either.aborted).toBe(false);
    other.abort("the other");
    one.abort("the one");
    expect(either.reason).toBe("the other");
    expect(eitherSignal(never, one.signal).aborted).toBe(true);
  } finally {
    AbortSignal.any = any;
  }
});
