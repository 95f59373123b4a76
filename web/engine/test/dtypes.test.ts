import { expect, it } from "vitest";
import { DTYPES, dtypeNamed, dtypeOfOrt, elementCount } from "#engine/dtypes";

it("finds every type by both of its names", () => {
  for (const dtype of DTYPES) {
    expect(dtypeNamed(dtype.name)).toBe(dtype);
    if (dtype.ort !== null) {
      expect(dtypeOfOrt(dtype.ort)).toBe(dtype);
    }
  }
});

it("names a type that it does not know", () => {
  expect(() => dtypeNamed("f8e5m2")).toThrow("`f8e5m2`");
  expect(() => dtypeOfOrt("string")).toThrow("`string`");
});

it("views aligned bytes without a copy, and others with one", () => {
  const body = new Uint8Array(24);
  new DataView(body.buffer).setFloat32(8, 1.5, true);
  new DataView(body.buffer).setFloat32(13, 2.5, true);
  const aligned = dtypeNamed("f32").view(body.subarray(8, 12));
  expect([aligned.buffer === body.buffer, [...aligned]]).toEqual([true, [1.5]]);
  const skewed = dtypeNamed("f32").view(body.subarray(13, 17));
  expect([skewed.buffer === body.buffer, [...skewed]]).toEqual([false, [2.5]]);
});

it("counts one element in a scalar and none in an empty tensor", () => {
  expect([elementCount([]), elementCount([2, 3]), elementCount([2, 0])]).toEqual([1, 6, 0]);
});
