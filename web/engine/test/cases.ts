/*
 * What an engine has to do, on every backend. The cases run in a worker of a real browser; vitest
 * shows them as tests of their own.
 */

import { probe } from "#engine/capabilities";
import type { HostOutput } from "#engine/engine";
import { withLimit } from "#engine/limit";
import { hasJspi } from "#engine/ort";
import type { Backend } from "#wire/messages";
import {
  chain,
  copies,
  equal,
  type Fixture,
  f32,
  fails,
  identity,
  linear,
  numbers,
  output,
  product,
  sum,
  unsized,
} from "./fixture.ts";
import { LIFTED_CASES } from "./lifted-cases.ts";
import { TENSOR_CASES, WIDTHS } from "./tensor-cases.ts";

export const BACKENDS: readonly Backend[] = ["wasm", "webgpu", "webnn"];

export interface Case {
  name: string;
  /** In a worker of its own, because the engine does not survive it. */
  alone?: boolean;
  /** In a browser that does not let WebAssembly wait for promises; only where `alone`. */
  withoutJspi?: boolean;
  /** With no more memory than that for WebAssembly; only where `alone`. */
  heapLimitBytes?: number;
  /** All, if not said. */
  backends?: Backend[];
  run(fixture: Fixture): Promise<void>;
}

export interface CaseResult {
  backend: string;
  name: string;
  error: string | null;
}

const X = f32([2, 2], [1, 0, 0, 1]);
const Y = [11, 22, 13, 24];
const OTHER = f32([2, 2], [1, 1, 2, 2]);
const OF_OTHER = [14, 26, 18, 32];

export const CASES: readonly Case[] = [
  ...LIFTED_CASES,
  ...TENSOR_CASES,
  {
    name: "computes the right numbers with weights from files",
    async run(fixture) {
      const phases: string[] = [];
      const times = await fixture.engine.load(linear(), (phase) => phases.push(phase));
      equal(phases, ["create", "warm_up"]);
      equal(times.warmUpError, null);
      equal(times.warmUpMs !== null && times.createMs > 0, true, "times");
      equal(times.placement, null, "nodes on the processor");
      const outcome = await fixture.run([
        { segment: "linear", inputs: { x: X }, outputs: { y: { returned: true } } },
      ]);
      equal(output(outcome, "y"), Y);
      equal(outcome.outputs[0]?.value.dims, [2, 2]);
      equal(outcome.steps.length, 1);
    },
  },
  {
    name: "loads a segment once and forgets it when it is unloaded",
    async run(fixture) {
      await fixture.load(sum());
      const before = (await fixture.engine.stats()).segments;
      equal((await fixture.load(sum())).createMs, 0);
      equal((await fixture.engine.stats()).segments, before);
      await fixture.engine.unload("sum");
      const step = { segment: "sum", inputs: { a: X, b: X }, outputs: {} };
      await fails(fixture.run([step]), "caller", "sum", "not loaded");
    },
  },
  {
    name: "feeds a step from an earlier one, and sends early parts early",
    async run(fixture) {
      await fixture.load(linear());
      await fixture.load(sum());
      const parts: HostOutput[][] = [];
      const y = { step: 0, output: "y" };
      const outcome = await fixture.run(
        [
          { segment: "linear", inputs: { x: X }, outputs: { y: { returned: true } }, early: true },
          { segment: "linear", inputs: { x: OTHER }, outputs: { y: {} } },
          {
            segment: "sum",
            inputs: { a: y, b: { step: 1, output: "y" } },
            outputs: { sum: { returned: true } },
          },
        ],
        (outputs) => {
          parts.push(structuredClone(outputs));
          // The one who gets a part may transfer it away.
          structuredClone(outputs, { transfer: outputs.map((each) => each.value.bytes.buffer) });
        },
      );
      equal(parts.length, 1);
      equal(output(parts[0] ?? [], "y"), Y);
      equal(
        outcome.outputs.map((each) => each.name),
        ["sum"],
      );
      equal(
        output(outcome, "sum"),
        Y.map((value, position) => value + (OF_OTHER[position] ?? 0)),
      );
      equal(outcome.steps.length, 3);
    },
  },
  {
    name: "keeps outputs, which survive later runs and the end of their session",
    async run(fixture) {
      await fixture.load(linear("keeper"));
      await fixture.load(sum());
      const keep = async (x: typeof X, name: string) => {
        const outputs = { y: { keep: name } };
        const { kept } = await fixture.run([{ segment: "keeper", inputs: { x }, outputs }]);
        equal(kept, [{ tensor: name, dtype: "f32", dims: [2, 2] }]);
        await fixture.engine.settle(true);
      };
      await keep(X, "first");
      await keep(OTHER, "second");
      equal(numbers(await fixture.engine.get("first")), Y);
      equal(numbers(await fixture.engine.get("second")), OF_OTHER);
      await fixture.engine.unload("keeper");
      equal(numbers(await fixture.engine.get("first")), Y);
      const outcome = await fixture.run([
        {
          segment: "sum",
          inputs: { a: "first", b: "first" },
          outputs: { sum: { returned: true } },
        },
      ]);
      equal(
        output(outcome, "sum"),
        Y.map((value) => 2 * value),
      );
      equal(outcome.kept, []);
      const stats = await fixture.engine.stats();
      equal([stats.tensors, stats.tensorBytes], [2, 32]);
      await fixture.engine.drop("first");
      await fixture.engine.drop("second");
      await fails(fixture.engine.get("first"), "caller", "first");
      equal((await fixture.engine.stats()).tensorBytes, 0);
    },
  },
  {
    name: "replaces a kept tensor, and changes nothing when a program is given up",
    async run(fixture) {
      await fixture.load(linear());
      await fixture.engine.put("kept", X);
      const step = { segment: "linear", inputs: { x: "kept" }, outputs: { y: { keep: "kept" } } };
      await fixture.run([step]);
      await fixture.engine.settle(false);
      equal(numbers(await fixture.engine.get("kept")), numbers(X));
      await fixture.run([step]);
      await fixture.engine.settle(true);
      equal(numbers(await fixture.engine.get("kept")), Y);
      await fixture.engine.put("kept", OTHER);
      equal(numbers(await fixture.engine.get("kept")), numbers(OTHER));
      await fixture.engine.drop("kept");
    },
  },
  {
    name: "returns and keeps the same output",
    async run(fixture) {
      await fixture.load(linear());
      const outcome = await fixture.run([
        { segment: "linear", inputs: { x: X }, outputs: { y: { returned: true, keep: "both" } } },
      ]);
      await fixture.engine.settle(true);
      equal(output(outcome, "y"), Y);
      equal(numbers(await fixture.engine.get("both")), Y);
      await fixture.engine.drop("both");
    },
  },
  {
    name: "names what is wrong with an input, and goes on",
    async run(fixture) {
      await fixture.load(linear());
      const run = (inputs: Record<string, typeof X | string>, y = "y") =>
        fixture.run([{ segment: "linear", inputs, outputs: { [y]: { returned: true } } }]);
      await fails(run({ wrong: X }), "caller", "step 0", "`wrong`", "it has x");
      await fails(run({}), "caller", "step 0", "lacks input `x`");
      await fails(run({ x: f32([2, 3], [1, 2, 3, 4, 5, 6]) }), "caller", "`x`", "f32[2, 3]");
      await fails(run({ x: f32([4], [1, 2, 3, 4]) }), "caller", "`x`", "f32[4]");
      await fails(run({ x: f32([2, 2], [1]) }), "caller", "`x`", "16 bytes", "4");
      await fails(run({ x: { ...X, dtype: "i32" } }), "caller", "`x`", "f32[2, 2]", "i32[2, 2]");
      await fails(run({ x: { ...X, dtype: "bf16" } }), "caller", "`x`", "bf16");
      await fails(run({ x: "nothing" }), "caller", "`x`", "`nothing`");
      await fails(run({ x: X }, "z"), "caller", "output `z`", "it has y");
      equal(output(await run({ x: X }), "y"), Y);
    },
  },
  {
    name: "takes any size where the graph says none, and no other where it does",
    backends: ["wasm", "webgpu"],
    async run(fixture) {
      await fixture.load(unsized());
      const run = (x: typeof X) =>
        fixture.run([{ segment: "unsized", inputs: { x }, outputs: { y: { returned: true } } }]);
      equal(output(await run(f32([1, 2], [1, 2])), "y"), [-1, -2]);
      equal(output(await run(f32([2, 2], [1, 2, 3, 4])), "y"), [-1, -2, -3, -4]);
      await fails(run(f32([1, 3], [1, 2, 3])), "caller", "`x`", "f32[?, 2]", "f32[1, 3]");
    },
  },
  {
    name: "refuses a step that comes before what it needs",
    async run(fixture) {
      await fixture.load(linear());
      const step = {
        segment: "linear",
        inputs: { x: { step: 1, output: "y" } },
        outputs: { y: {} },
      };
      await fails(fixture.run([step, step]), "caller", "step 0", "does not come before");
    },
  },
  {
    name: "names an operator that does not exist",
    async run(fixture) {
      await fails(fixture.load(chain("Nonsense")), "device", "Nonsense");
      await fixture.load(linear());
    },
  },
  {
    name: "refuses a graph that is none",
    async run(fixture) {
      const graph = new Uint8Array([1, 2, 3]);
      await fails(fixture.load({ ...linear("broken"), graph }), "caller", "broken");
    },
  },
  {
    name: "names an operator that would run on the processor instead",
    backends: ["webgpu", "webnn"],
    async run(fixture) {
      await fails(fixture.load(chain("Hardmax")), "device", "Hardmax", "1 of 1");
      await fails(fixture.load(chain("Hardmax", "Hardmax", "Relu")), "device", "Hardmax", "2 of 3");
    },
  },
  {
    name: "is right and says so where the processor helps out",
    backends: ["webgpu", "webnn"],
    async run(fixture) {
      const x = f32([2, 2], [1, 3, 5, 2]);
      await fixture.engine.put("x", x);
      for (const at of [0, 1, 3]) {
        const operators = ["Relu", "Relu", "Relu"].toSpliced(at, 0, "Hardmax");
        const files = chain(...operators);
        const { placement } = await fixture.load(files);
        equal(placement, "1 of 4 nodes on the processor (Hardmax)");
        equal((await fixture.load(files)).placement, placement, "placement when loaded again");
        for (const input of [x, "x"]) {
          const outcome = await fixture.run([
            {
              segment: files.segment,
              inputs: { x: input },
              outputs: { y: { returned: true, keep: "y" } },
            },
            { segment: files.segment, inputs: { x: { step: 0, output: "y" } }, outputs: { y: {} } },
          ]);
          await fixture.engine.settle(true);
          equal(output(outcome, "y"), [0, 1, 1, 0], `Hardmax at ${at}`);
          equal(numbers(await fixture.engine.get("y")), [0, 1, 1, 0], `kept, Hardmax at ${at}`);
        }
        await fixture.engine.unload(files.segment);
      }
      await fixture.engine.drop("x");
      await fixture.engine.drop("y");
    },
  },
  {
    name: "does not answer from a session that failed while it ran",
    backends: ["wasm", "webgpu"],
    async run(fixture) {
      await fixture.load(product());
      const run = (p: typeof X, q: typeof X) =>
        fixture.run([{ segment: "product", inputs: { p, q }, outputs: { y: { returned: true } } }]);
      const [row, column] = [f32([1, 2], [1, 2]), f32([2, 1], [3, 4])];
      equal(output(await run(row, column), "y"), [11]);
      const wrong = f32([3, 1], [1, 2, 3]);
      // Shapes that an operator refuses are the caller's fault.
      const error = await fails(run(row, wrong), "caller", "step 0", "MatMul");
      equal(error.lostSegment, fixture.backend === "wasm" ? null : "product");
      if (fixture.backend !== "wasm") {
        await fails(run(f32([1, 2], [10, 20]), column), "state_lost", "product", "loaded again");
        await fixture.load(product());
      }
      equal(output(await run(f32([1, 2], [10, 20]), column), "y"), [110]);
      await fixture.engine.unload("product");
    },
  },
  {
    name: "runs on other element types than f32",
    async run(fixture) {
      for (const dtype of TYPES_OF_IDENTITY[fixture.backend]) {
        const byteLen = WIDTHS[dtype];
        const x = { dtype, dims: [4], bytes: new Uint8Array(4 * byteLen) };
        x.bytes[byteLen] = 1;
        await fixture.engine.put("x", x);
        const files = identity(dtype);
        await fixture.load(files);
        for (const input of [x, "x"]) {
          const outcome = await fixture.run([
            { segment: files.segment, inputs: { x: input }, outputs: { y: { returned: true } } },
          ]);
          equal([...(outcome.outputs[0]?.value.bytes ?? [])], [...x.bytes], dtype);
        }
        await fixture.engine.unload(files.segment);
      }
      await fixture.engine.drop("x");
    },
  },
  {
    name: "reports a first run that fails without failing to load",
    async run(fixture) {
      const files = { ...linear("cold"), warmUp: [{ name: "q", dtype: "f32", dims: [2, 2] }] };
      const times = await fixture.load(files);
      equal(times.warmUpMs, null);
      equal(times.warmUpError?.includes("`q`"), true, String(times.warmUpError));
      const step = { segment: "cold", inputs: { x: X }, outputs: { y: { returned: true } } };
      equal(output(await fixture.run([step]), "y"), Y);
      await fixture.engine.unload("cold");
    },
  },
  {
    name: "does overlapping calls one after the other",
    async run(fixture) {
      await fixture.load(linear());
      const step = (x: typeof X) => ({
        segment: "linear",
        inputs: { x },
        outputs: { y: { returned: true } },
      });
      const inputs = [X, OTHER, X, OTHER, X];
      const runs = inputs.map((x) => fixture.run([step(x)]));
      const put = fixture.engine.put("between", X);
      const get = fixture.engine.get("between");
      const loads = [fixture.load(sum()), fixture.engine.unload("sum")];
      const results = (await Promise.all(runs)).map((outcome) => output(outcome, "y"));
      equal(
        results,
        inputs.map((x) => (x === X ? Y : OF_OTHER)),
      );
      await put;
      equal(numbers(await get), numbers(X));
      await Promise.all(loads);
      await fixture.engine.drop("between");
    },
  },
  {
    name: "ends a program between two steps when it is cancelled",
    async run(fixture) {
      await fixture.load(linear());
      const step = { segment: "linear", inputs: { x: X }, outputs: { y: { keep: "never" } } };
      const running = fixture.run([{ ...step, early: true }, step], () => fixture.engine.cancel());
      await fails(running, "cancelled");
      await fixture.engine.settle(true);
      await fails(fixture.engine.get("never"), "caller");
      // A wish of the past does not touch the next one.
      equal(output(await fixture.run([{ ...step, outputs: { y: { returned: true } } }]), "y"), Y);
    },
  },
  {
    name: "says how large its heap is",
    async run(fixture) {
      const { heapBytes } = await fixture.engine.stats();
      equal((heapBytes ?? 0) > 1_000_000, true, `heap of ${heapBytes}`);
    },
  },
  {
    name: "tells truthfully what the browser has",
    backends: ["wasm"],
    async run() {
      const { browser, machine, webgpu, webnn, wasm } = await probe(2);
      equal([browser.name, browser.platform, browser.mobile], ["Chromium", "Linux", false]);
      equal(/^\d+\.\d+\.\d+/.test(browser.version), true, browser.version);
      equal(machine.crossOriginIsolated, true);
      equal(wasm, { simd: true, threads: 2, jspi: true });
      if (webgpu.type === "missing" || webnn.type === "missing") {
        throw new Error(JSON.stringify({ webgpu, webnn }));
      }
      equal([webgpu.architecture, webgpu.fallback], ["swiftshader", true]);
      equal((webgpu.limits.maxBufferSize ?? 0) > 0, true, "limits");
      equal(webnn.deviceTypes.includes(webnn.chosen), true, webnn.chosen);
    },
  },
  {
    name: "fails a run during which the GPU reports an error",
    backends: ["webgpu"],
    async run(fixture) {
      await fixture.load(linear());
      const step = { segment: "linear", inputs: { x: X }, outputs: { y: { keep: "bad" } } };
      const { gpu } = fixture;
      const queue = gpu?.queue as GPUQueue;
      const { submit } = GPUQueue.prototype;
      queue.submit = (commands) => {
        gpu?.createBuffer({ size: 4, usage: 0 });
        submit.call(queue, commands);
      };
      try {
        await fails(fixture.run([step]), "device", "the GPU reports");
      } finally {
        queue.submit = submit;
      }
      await fixture.engine.settle(true);
      await fails(fixture.engine.get("bad"), "caller");
      await fixture.load(linear());
      await fixture.run([step]);
      await fixture.engine.settle(true);
      equal(numbers(await fixture.engine.get("bad")), Y);
      await fixture.engine.drop("bad");
    },
  },
  {
    name: "fails a run that returns all, during which the GPU reports an error",
    backends: ["webgpu"],
    async run(fixture) {
      await fixture.load(linear());
      const step = { segment: "linear", inputs: { x: X }, outputs: { y: { returned: true } } };
      const { copyBufferToBuffer } = GPUCommandEncoder.prototype;
      // A copy that cannot be: what is read would be zeros.
      GPUCommandEncoder.prototype.copyBufferToBuffer = function (from: GPUBuffer, _, to) {
        copyBufferToBuffer.call(this, from, 0, to as GPUBuffer, 0, 2 ** 30);
      };
      try {
        await fails(fixture.run([step]), "device", "the GPU reports");
      } finally {
        GPUCommandEncoder.prototype.copyBufferToBuffer = copyBufferToBuffer;
      }
      await fixture.load(linear());
      equal(output(await fixture.run([step]), "y"), Y);
    },
  },
  {
    name: "waits once for a step that returns all, and reads what a later one needs too",
    backends: ["webgpu", "webnn"],
    async run(fixture) {
      await fixture.load(linear());
      const waits = fixture.countWaits();
      const returned = { segment: "linear", inputs: { x: X }, outputs: { y: { returned: true } } };
      equal(output(await fixture.run([returned]), "y"), Y);
      equal(waits.count, 1, "waits for one that is returned");
      const inputs = { x: { step: 0, output: "y" } };
      const outcome = await fixture.run([returned, { ...returned, inputs }]);
      equal(outcome.outputs.length, 2);
      equal(output(outcome, "y"), Y);
      equal(waits.count, 4, "waits for one that a later one needs, and for that");
      waits.stop();
    },
  },
  {
    name: "computes the right numbers in a browser without JSPI",
    alone: true,
    withoutJspi: true,
    backends: ["webgpu", "webnn"],
    async run(fixture) {
      equal(hasJspi(), false);
      await fixture.load(linear());
      const step = { segment: "linear", inputs: { x: X }, outputs: { y: { returned: true } } };
      equal(output(await fixture.run([step]), "y"), Y);
    },
  },
  {
    name: "is of no use once its heap is full, and only then",
    alone: true,
    heapLimitBytes: 128 * 2 ** 20,
    backends: ["wasm"],
    async run(fixture) {
      await fixture.load(copies(4));
      const run = (count: number) => {
        const bytes = new Uint8Array(new BigInt64Array([BigInt(count)]).buffer);
        const inputs = { x: f32([1], [1]), count: { dtype: "i64", dims: [1], bytes } };
        return fixture.run([{ segment: "copies", inputs, outputs: { "copy 3": {} } }]);
      };
      await run(10);
      // More bytes than 32 bits can count: nothing was taken.
      equal((await fails(run(2 ** 31), "memory")).fatal, false, "fatal");
      await run(10);
      equal((await fails(run(10_000_000), "memory")).fatal, true, "fatal");
      equal((await fails(run(10), "memory")).fatal, true, "fatal");
    },
  },
  {
    name: "does not load on a GPU that is lost",
    alone: true,
    backends: ["webgpu"],
    async run(fixture) {
      fixture.gpu?.destroy();
      equal((await fails(fixture.load(linear()), "device", "GPU was lost")).fatal, true, "fatal");
    },
  },
  {
    name: "tells of a device that is lost while nothing runs",
    alone: true,
    backends: ["webgpu", "webnn"],
    async run(fixture) {
      await fixture.engine.put("kept", X);
      fixture.lose();
      const reason = await withLimit(fixture.lost, 10_000, "the loss");
      equal(/was lost/.test(reason), true, "reason");
      equal((await fails(fixture.engine.stats(), "device", "was lost")).fatal, true, "fatal");
    },
  },
  {
    name: "is of no use once it cannot wait for its GPU",
    alone: true,
    backends: ["webgpu"],
    async run(fixture) {
      const { mapAsync } = GPUBuffer.prototype;
      GPUBuffer.prototype.mapAsync = async () => {
        throw new DOMException("mapping failed", "OperationError");
      };
      const error = await fails(fixture.engine.put("kept", X), "device", "mapping failed");
      GPUBuffer.prototype.mapAsync = mapAsync;
      equal(error.fatal, true, "fatal");
      await fails(fixture.engine.stats(), "device");
    },
  },
  {
    name: "never answers once the GPU is lost",
    alone: true,
    backends: ["webgpu"],
    async run(fixture) {
      await fixture.load(linear());
      const step = { segment: "linear", inputs: { x: X }, outputs: { y: { keep: "y" } } };
      await fixture.run([step]);
      const running = fixture.run([step, step, step]);
      fixture.gpu?.destroy();
      const error = await fails(running, "device", "GPU was lost");
      equal(error.fatal, true, "fatal");
      const later = [
        fixture.run([step]),
        fixture.engine.get("y"),
        fixture.engine.put("z", X),
        fixture.load(sum()),
      ];
      for (const call of await Promise.allSettled(later)) {
        equal(call.status, "rejected");
      }
      equal((await fails(fixture.run([step]), "device")).fatal, true, "fatal");
    },
  },
];

/** ONNX Runtime has no operators on i64, bool and f64 for the GPU, and none on f64 for WebNN. */
const TYPES_OF_IDENTITY = {
  wasm: ["i32", "i64", "bool", "f64", "f16"],
  webgpu: ["i32"],
  webnn: ["i32", "i64", "bool"],
} as const;
