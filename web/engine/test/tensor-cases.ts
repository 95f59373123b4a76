/*
 * Tensors that are kept: of every type, where they are said to be, read and copied in parts.
 */

import type { TensorWindow } from "#wire/messages";
import type { Case } from "./cases.ts";
import { equal, f32, fails, files, output } from "./fixture.ts";
import { writeOnnx } from "./onnx-writer.ts";

/** Bytes of one element. */
export const WIDTHS = {
  f32: 4,
  f16: 2,
  f64: 8,
  i8: 1,
  u8: 1,
  i16: 2,
  u16: 2,
  i32: 4,
  u32: 4,
  i64: 8,
  u64: 8,
  bool: 1,
  bf16: 2,
};

export const TENSOR_CASES: readonly Case[] = [
  {
    name: "keeps tensors of every element type",
    async run(fixture) {
      for (const [dtype, byteLen] of Object.entries(WIDTHS)) {
        for (const count of [1, 3, 8]) {
          const bytes = new Uint8Array(byteLen * count).map((_, position) =>
            dtype === "bool" ? position % 2 : position % 60,
          );
          await fixture.engine.put("typed", { dtype, dims: [count], bytes });
          const back = await fixture.engine.get("typed");
          const { deviceTensorBytes } = await fixture.engine.stats();
          const onDevice = fixture.backend === "wasm" ? 0 : byteLen * count;
          equal(deviceTensorBytes, onDevice, `bytes of ${dtype} on the device`);
          equal([back.dtype, back.dims, [...back.bytes]], [dtype, [count], [...bytes]], dtype);
        }
      }
      for (const [dtype, byteLen] of Object.entries({ u4: 3, i4: 3, u2: 2, i2: 2 })) {
        const bytes = new Uint8Array(byteLen).fill(1);
        await fixture.engine.put("typed", { dtype, dims: [5], bytes });
        equal([...(await fixture.engine.get("typed")).bytes], [...bytes], dtype);
        const longer = { dtype, dims: [5], bytes: new Uint8Array(5) };
        await fails(fixture.engine.put("typed", longer), "caller", `takes ${byteLen} bytes`);
      }
      const scalar = { dtype: "i16", dims: [], bytes: new Uint8Array([1, 2]) };
      await fixture.engine.put("typed", scalar);
      equal([...(await fixture.engine.get("typed")).bytes], [1, 2], "a scalar");
      await fixture.engine.put("typed", { dtype: "f32", dims: [0, 3], bytes: new Uint8Array() });
      equal((await fixture.engine.get("typed")).dims, [0, 3]);
      await fixture.engine.drop("typed");
      const unknown = { dtype: "f8e4m3", dims: [1], bytes: new Uint8Array(1) };
      await fails(fixture.engine.put("typed", unknown), "caller", "f8e4m3");
    },
  },
  {
    name: "feeds a model from the page's memory what it takes from nowhere else",
    async run(fixture) {
      const value = (name: string, dtype: "f64" | "f32") => ({ name, dtype, dims: [4] });
      const node = (op: string, input: string, output: string) => ({
        op,
        inputs: [input],
        outputs: [output],
      });
      // Few enough on the processor for a model of the others.
      const others = ["a", "b", "c", "d"].map((name, at, names) =>
        node("Relu", name, names[at + 1] ?? "e"),
      );
      const graph = writeOnnx({
        nodes: [node("Identity", "x", "y"), ...others],
        inputs: [value("x", "f64"), value("a", "f32")],
        outputs: [value("y", "f64"), value("e", "f32")],
      });
      await fixture.load(files("odd", graph, { outputs: ["y", "e"] }));
      const bytes = new Uint8Array(new Float64Array([1, -2, 3, -4]).buffer);
      await fixture.engine.put("x", { dtype: "f64", dims: [4], bytes });
      const a = f32([4], [1, -2, 3, -4]);
      const outputs = { y: { returned: true }, e: { returned: true } };
      const run = () => fixture.run([{ segment: "odd", inputs: { x: "x", a }, outputs }]);
      const outcome = await run();
      const y = outcome.outputs.find(({ name }) => name === "y");
      equal([...(y?.value.bytes ?? [])], [...bytes]);
      equal(output(outcome, "e"), [1, 0, 3, 0]);
      await fixture.engine.put("x", { dtype: "bf16", dims: [4], bytes: new Uint8Array(8) });
      await fails(run(), "caller", "`x`", "f64", "bf16");
      await fixture.engine.unload("odd");
      await fixture.engine.drop("x");
    },
  },
  {
    name: "reads a part of a kept tensor, and refuses what is no part of it",
    async run(fixture) {
      const parts: [TensorWindow, number[]][] = [
        [{ offset: 4, dims: [2, 4], strides: [4, 1] }, [4, 5, 6, 7, 8, 9, 10, 11]],
        [{ offset: 1, dims: [3, 2], strides: [4, 1] }, [1, 2, 5, 6, 9, 10]],
        [{ offset: 0, dims: [2, 2], strides: [8, 2] }, [0, 2, 8, 10]],
        [{ offset: 11, dims: [], strides: [] }, [11]],
        [{ offset: 12, dims: [0, 4], strides: [4, 1] }, []],
      ];
      for (const dtype of ["u8", "bf16", "f32", "i16", "u64"] as const) {
        const byteLen = WIDTHS[dtype];
        const bytes = new Uint8Array(12 * byteLen).map((_, at) => Math.floor(at / byteLen));
        await fixture.engine.put("whole", { dtype, dims: [3, 4], bytes });
        for (const [window, expected] of parts) {
          const part = await fixture.engine.get("whole", window);
          const elements = expected.flatMap((value) => Array(byteLen).fill(value));
          equal([part.dims, [...part.bytes]], [window.dims, elements], dtype);
        }
        for (const outside of [
          { offset: 12, dims: [], strides: [] },
          { offset: 4, dims: [3, 4], strides: [4, 1] },
          { offset: 0, dims: [2], strides: [] },
          { offset: -1, dims: [2], strides: [1] },
        ]) {
          await fails(fixture.engine.get("whole", outside), "caller", "is no part of");
        }
      }
      const halves = new Uint8Array(24).map((_, at) => at);
      await fixture.engine.put("whole", { dtype: "f16", dims: [3, 4], bytes: halves });
      // Some of them begin within four bytes, which a GPU does not copy.
      for (const [offset, width] of [
        [0, 4],
        [4, 4],
        [2, 2],
        [1, 2],
      ] as const) {
        const window = { offset, dims: [2, width], strides: [4, 1] };
        const byteLen = await fixture.engine.copy("whole", window, "part");
        const part = await fixture.engine.get("part");
        const { bytes: expected } = await fixture.engine.get("whole", window);
        equal([part.dims, [...part.bytes]], [window.dims, [...expected]], `from ${offset}`);
        const { tensorBytes, deviceTensorBytes } = await fixture.engine.stats();
        equal([byteLen, tensorBytes], [4 * width, 24 + 4 * width]);
        equal(deviceTensorBytes, fixture.backend === "wasm" ? 0 : tensorBytes);
      }
      await fixture.engine.copy("whole", null, "part");
      await fixture.engine.put("whole", { dtype: "u8", dims: [1], bytes: new Uint8Array(1) });
      equal([...(await fixture.engine.get("part")).bytes], [...halves], "a copy is its own");
      await fixture.engine.drop("part");
      // More runs than are worth a copy each.
      const many = new Uint8Array(6000).map((_, at) => at % 251);
      await fixture.engine.put("whole", { dtype: "u8", dims: [2000, 3], bytes: many });
      const column = await fixture.engine.get("whole", { offset: 1, dims: [2000], strides: [3] });
      equal([...column.bytes], [...many.filter((_, at) => at % 3 === 1)]);
      await fixture.engine.drop("whole");
    },
  },
];
