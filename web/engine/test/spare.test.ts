/* Memory that comes back is used again where it fits, and not without end. */

import { expect, test } from "vitest";
import { Spare } from "#engine/spare";

test("a copy is made in memory of just its size", () => {
  const spare = new Spare();
  const [small, fitting] = [new ArrayBuffer(2), new ArrayBuffer(3)];
  spare.give(small);
  spare.give(fitting);
  const copy = spare.copy(new Uint8Array([1, 2, 3]));
  expect(copy.buffer).toBe(fitting);
  expect([...copy]).toEqual([1, 2, 3]);
});

test("memory is used by one at a time", () => {
  const spare = new Spare();
  spare.give(new ArrayBuffer(3));
  const bytes = new Uint8Array([1, 2, 3]);
  expect(spare.copy(bytes).buffer).not.toBe(spare.copy(bytes).buffer);
});

test("where nothing fits the memory is new", () => {
  const spare = new Spare();
  spare.give(new ArrayBuffer(4));
  const bytes = new Uint8Array([1, 2, 3]);
  const copy = spare.copy(bytes);
  expect(copy).toEqual(bytes);
  expect(copy.buffer).not.toBe(bytes.buffer);
});

test("only so much is held, and the oldest goes first", () => {
  const spare = new Spare();
  const old = new ArrayBuffer(1000);
  spare.give(old);
  spare.give(new ArrayBuffer(64 * 1024 * 1024));
  expect(spare.copy(new Uint8Array(1000)).buffer).not.toBe(old);
  const large = new ArrayBuffer(65 * 1024 * 1024);
  spare.give(large);
  expect(spare.copy(new Uint8Array(65 * 1024 * 1024)).buffer).not.toBe(large);
});
