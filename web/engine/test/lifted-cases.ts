/*
 * Weights that segments take as inputs: one copy on the GPU for all of them, for as long as one of
 * them is there; and a clear word where there is no GPU.
 */

import type { LiftedFile, SegmentFiles } from "#engine/engine";
import type { Case } from "./cases.ts";
import { equal, type Fixture, f32, fails, files, linear, output } from "./fixture.ts";
import { writeOnnx } from "./onnx-writer.ts";

/** A size of buffers that nothing else here has. */
const SIDE = 64;
const WEIGHT_BYTES = SIDE * SIDE * 4;

export const LIFTED_CASES: readonly Case[] = [
  {
    name: "feeds segments from one copy of a lifted weight, until the last of them is unloaded",
    backends: ["webgpu"],
    async run(fixture) {
      const own = fixture.watchBuffers(WEIGHT_BYTES);
      const expected = await unlifted(fixture);
      own.stop();
      equal(own.made >= 2, true, "copies of segments that bring their own");
      const buffers = fixture.watchBuffers(WEIGHT_BYTES);
      for (const operator of OPERATORS) {
        // Whoever comes second need not bring the bytes.
        const times = await fixture.load(product(operator, operator === "Relu" ? weight() : null));
        equal(times.warmUpError, null);
        equal(times.warmUpMs !== null, true, "a first run");
      }
      equal(await answers(fixture), expected, "both");
      equal([buffers.made, buffers.alive], [1, 1], "copies on the GPU");
      equal((await fixture.engine.stats()).liftedBytes, WEIGHT_BYTES);
      await fixture.engine.unload("Relu");
      equal(await answer(fixture, "Neg"), expected[1], "the one that is left");
      equal((await fixture.engine.stats()).liftedBytes, WEIGHT_BYTES);
      await fixture.engine.unload("Neg");
      equal((await fixture.engine.stats()).liftedBytes, 0);
      equal([buffers.made, buffers.alive], [1, 0], "copies on the GPU");
      buffers.stop();
    },
  },
  {
    name: "leaves no lifted weight behind, however often its segment comes and goes beside another",
    backends: ["webgpu"],
    async run(fixture) {
      await fixture.load(linear("beside"));
      const buffers = fixture.watchBuffers(WEIGHT_BYTES);
      for (const time of [1, 2, 3]) {
        await fixture.load(product("Relu", weight()));
        await answer(fixture, "Relu");
        equal([buffers.made, buffers.alive], [time, 1], `copies at time ${time}`);
        await fixture.engine.unload("Relu");
        equal(buffers.alive, 0, `copies after time ${time}`);
        equal((await fixture.engine.stats()).liftedBytes, 0);
      }
      buffers.stop();
      const step = { segment: "beside", inputs: { x: f32([2, 2], [1, 0, 0, 1]) } };
      const outcome = await fixture.run([{ ...step, outputs: { y: { returned: true } } }]);
      equal(output(outcome, "y"), [11, 22, 13, 24], "the one beside it");
      await fixture.engine.unload("beside");
    },
  },
  {
    name: "does not hold weights of its own twice where the processor helps out",
    backends: ["webgpu"],
    async run(fixture) {
      const held = async (files: SegmentFiles, placement: string | null) => {
        const buffers = fixture.watchBuffers(WEIGHT_BYTES);
        equal((await fixture.load(files)).placement, placement, "placement");
        buffers.stop();
        await fixture.engine.unload(files.segment);
        return buffers.alive;
      };
      const count = 4;
      const plain = await held(withWeightsInside(count, ["Relu"]), null);
      equal(plain >= count, true, "buffers of weights that it brings");
      const helped = "1 of 6 nodes on the processor (Hardmax)";
      const mixed = await held(withWeightsInside(count, ["Relu", "Hardmax"]), helped);
      // ONNX Runtime makes room for a weight before it sees that its file is not there.
      equal(mixed <= plain + 1, true, `${mixed} buffers instead of ${plain}`);
    },
  },
  {
    name: "reads one lifted weight as tensors of two shapes",
    backends: ["webgpu"],
    async run(fixture) {
      const flat = { ...lifted(null), input: "flat", dims: [SIDE * SIDE] };
      const segment = product("Relu", weight(), { alsoFlat: true });
      await fixture.load({ ...segment, lifted: [...segment.lifted, flat] });
      equal((await fixture.engine.stats()).liftedBytes, WEIGHT_BYTES);
      const outcome = await fixture.run([
        { segment: "Relu", inputs: { x: X }, outputs: { copy: { returned: true } } },
      ]);
      equal(
        output(outcome, "copy"),
        [...WEIGHT].map((value) => -value),
      );
      await fixture.engine.unload("Relu");
    },
  },
  {
    name: "does not take a lifted weight from a program",
    backends: ["webgpu"],
    async run(fixture) {
      await fixture.load(product("Relu", weight()));
      const w = f32([SIDE, SIDE], [...WEIGHT]);
      const step = { segment: "Relu", inputs: { x: X, w }, outputs: { y: {} } };
      await fails(fixture.run([step]), "caller", "no input `w`", "it has x");
      await fixture.engine.unload("Relu");
    },
  },
  {
    name: "leaves nothing behind of a lifted weight whose segment cannot be loaded",
    backends: ["webgpu"],
    async run(fixture) {
      const buffers = fixture.watchBuffers(WEIGHT_BYTES);
      const load = (change: Partial<LiftedFile>, graph: Partial<SegmentFiles> = {}) => {
        const changed = { ...lifted(weight()), ...change };
        return fixture.load({ ...product("Relu", null), ...graph, lifted: [changed] });
      };
      const size = `f32[${SIDE}, ${SIDE}]`;
      await fails(load({}, { graph: new Uint8Array([1, 2, 3]) }), "caller", "Relu");
      await fails(load({ dims: [SIDE * SIDE] }), "caller", "`w`", size, `f32[${SIDE * SIDE}]`);
      await fails(load({ dtype: "i32" }), "caller", "`w`", size, `i32[${SIDE}, ${SIDE}]`);
      const few = load({ dims: [SIDE, 2] });
      await fails(few, "caller", "`w`", "f32[64, 2]", "512 bytes", `has ${WEIGHT_BYTES}`);
      const wide = load({ dtype: "f64", dims: [SIDE, SIDE / 2] });
      await fails(wide, "device", "f64", "cannot be lifted");
      await fails(load({ input: "v" }), "caller", "`v`", "not an input");
      await fails(load({ bytes: null }), "device", "`w`", "not here");
      equal((await fixture.engine.stats()).liftedBytes, 0);
      equal(buffers.alive, 0, "copies on the GPU");
      await load({});
      await fixture.engine.unload("Relu");
      buffers.stop();
    },
  },
  {
    name: "lets a lifted weight go with a session that failed while it ran",
    backends: ["webgpu"],
    async run(fixture) {
      await fixture.load(product("Relu", weight(), { width: "width" }));
      const step = (x: typeof X) => ({ segment: "Relu", inputs: { x }, outputs: { y: {} } });
      const narrow = f32([1, 3], [1, 2, 3]);
      equal((await fails(fixture.run([step(narrow)]), "caller")).lostSegment, "Relu");
      equal((await fixture.engine.stats()).liftedBytes, 0);
      await fails(fixture.load(product("Relu", null)), "device", "not here");
      await fixture.load(product("Relu", weight()));
      await fixture.run([step(X)]);
      await fixture.engine.unload("Relu");
    },
  },
  {
    name: "has a lifted weight again after a first run that failed",
    backends: ["webgpu"],
    async run(fixture) {
      const warmUp = [{ name: "x", dtype: "f32", dims: [1, 3] }];
      const cold = { ...product("Relu", weight(), { width: "width" }), warmUp };
      const times = await fixture.load(cold);
      equal(times.warmUpError?.includes("Relu"), true, String(times.warmUpError));
      equal((await fixture.engine.stats()).liftedBytes, WEIGHT_BYTES);
      equal(await answer(fixture, "Relu"), (await unlifted(fixture))[0]);
      await fixture.engine.unload("Relu");
    },
  },
  {
    name: "says that lifted weights need WebGPU",
    backends: ["wasm", "webnn"],
    async run(fixture) {
      await fails(fixture.load(product("Relu", weight())), "device", "need WebGPU", "`w`");
      equal((await fixture.engine.stats()).liftedBytes, 0);
      await fixture.load(withWeightInside("Relu"));
      await fixture.engine.unload("Relu");
    },
  },
];

const OPERATORS = ["Relu", "Neg"] as const;

type Operator = (typeof OPERATORS)[number];

const WEIGHT = Float32Array.from({ length: SIDE * SIDE }, (_, at) => Math.sin(at));
const X = f32(
  [1, SIDE],
  Array.from({ length: SIDE }, (_, at) => Math.cos(at)),
);

function weight(): Uint8Array<ArrayBuffer> {
  return new Uint8Array(WEIGHT.slice().buffer);
}

function lifted(bytes: Uint8Array<ArrayBuffer> | null): LiftedFile {
  return { input: "w", weight: "file-of-w", dtype: "f32", dims: [SIDE, SIDE], bytes };
}

/** `y = operator(x · w)` where `w` is an input, and if wanted `copy = -flat`. */
function product(
  operator: Operator,
  bytes: Uint8Array<ArrayBuffer> | null,
  { width = SIDE, alsoFlat = false }: { width?: number | string; alsoFlat?: boolean } = {},
): SegmentFiles {
  const value = (name: string, dims: (number | string)[]) => ({
    name,
    dtype: "f32" as const,
    dims,
  });
  const flat = [SIDE * SIDE];
  const graph = writeOnnx({
    nodes: [
      ...nodes(["w"], [operator]),
      ...(alsoFlat ? [{ op: "Neg", inputs: ["flat"], outputs: ["copy"] }] : []),
    ],
    inputs: [
      value("x", [1, width]),
      value("w", [SIDE, SIDE]),
      ...(alsoFlat ? [value("flat", flat)] : []),
    ],
    outputs: [value("y", [1, SIDE]), ...(alsoFlat ? [value("copy", flat)] : [])],
  });
  return files(operator, graph, { lifted: [lifted(bytes)], warmUp: WARM_UP, outputs: ["y"] });
}

/** The same model as it was before its weight was lifted. */
function withWeightInside(operator: Operator): SegmentFiles {
  return { ...withWeightsInside(1, [operator]), segment: operator };
}

/** Products with as many weights, one after the other, then these operators. */
function withWeightsInside(count: number, operators: readonly string[]): SegmentFiles {
  const value = (name: string) => ({ name, dtype: "f32" as const, dims: [1, SIDE] });
  const names = Array.from({ length: count }, (_, at) => (at === 0 ? "w" : `w${at}`));
  const file = { dims: [SIDE, SIDE], file: "file-of-w", byteLen: WEIGHT_BYTES };
  const graph = writeOnnx({
    nodes: nodes(names, operators),
    inputs: [value("x")],
    outputs: [value("y")],
    weights: names.map((name) => ({ ...file, name })),
  });
  const weights = [{ name: "file-of-w", bytes: weight() }];
  return files(operators.join(" "), graph, { weights, warmUp: WARM_UP, outputs: ["y"] });
}

const WARM_UP = [{ name: "x", dtype: "f32", dims: [1, SIDE] }];

/** `y = operators(x · weights)`. */
function nodes(weights: readonly string[], operators: readonly string[]) {
  const all = [
    ...weights.map((weight) => ({ op: "MatMul", weight: [weight] })),
    ...operators.map((op) => ({ op, weight: [] })),
  ];
  const value = (at: number) => (at === all.length ? "y" : `after ${at}`);
  return all.map(({ op, weight }, at) => ({
    op,
    inputs: [at === 0 ? "x" : value(at), ...weight],
    outputs: [value(at + 1)],
  }));
}

/** What the models give with their weight inside. */
async function unlifted(fixture: Fixture): Promise<number[][]> {
  for (const operator of OPERATORS) {
    await fixture.load({ ...withWeightInside(operator), segment: `${operator} unlifted` });
  }
  const expected = await answers(fixture, " unlifted");
  for (const operator of OPERATORS) {
    await fixture.engine.unload(`${operator} unlifted`);
  }
  return expected;
}

async function answers(fixture: Fixture, suffix = ""): Promise<number[][]> {
  const given: number[][] = [];
  for (const operator of OPERATORS) {
    given.push(await answer(fixture, operator + suffix));
  }
  return given;
}

async function answer(fixture: Fixture, segment: string): Promise<number[]> {
  const step = { segment, inputs: { x: X }, outputs: { y: { returned: true } } };
  return output(await fixture.run([step]), "y");
}
