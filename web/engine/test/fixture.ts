/*
 * What the cases work with: an engine on one backend, small models whose answers are known, and
 * shorthands to speak to the engine.
 */

import { createEngine } from "#engine/create";
import {
  type Engine,
  EngineError,
  type HostOutput,
  type HostTensor,
  type Program,
  type ProgramOutcome,
  type SegmentFiles,
} from "#engine/engine";
import { type MlContext, ml } from "#engine/webnn";
import type { Backend, Input } from "#wire/messages";
import { type ValueSpec, writeOnnx } from "./onnx-writer.ts";

export class Fixture {
  readonly backend: Backend;
  readonly engine: Engine;
  /** The GPU that the engine uses, on webgpu. */
  readonly gpu: GPUDevice | null;
  /** Why the engine's device is gone, once it is. */
  readonly lost: Promise<string>;
  readonly #contexts: MlContext[];

  static async start(backend: Backend): Promise<Fixture> {
    let gpu: GPUDevice | null = null;
    if (typeof GPUAdapter !== "undefined") {
      const { requestDevice } = GPUAdapter.prototype;
      GPUAdapter.prototype.requestDevice = async function (descriptor) {
        gpu = await requestDevice.call(this, descriptor);
        return gpu;
      };
    }
    const contexts: MlContext[] = [];
    const api = ml();
    if (api !== null) {
      const { createContext } = api;
      api.createContext = async (options) => {
        const context = await createContext.call(api, options);
        contexts.push(context);
        return context;
      };
    }
    let tell = (_: string) => {};
    const lost = new Promise<string>((resolve) => {
      tell = resolve;
    });
    const engine = await createEngine({ backend, threads: 2, ortBase: "/ort" }, tell);
    return new Fixture({ backend, engine, gpu, lost, contexts });
  }

  private constructor(parts: {
    backend: Backend;
    engine: Engine;
    gpu: GPUDevice | null;
    lost: Promise<string>;
    contexts: MlContext[];
  }) {
    this.backend = parts.backend;
    this.engine = parts.engine;
    this.gpu = parts.gpu;
    this.lost = parts.lost;
    this.#contexts = parts.contexts;
  }

  /** Counts how often somebody waits for bytes from the device. */
  countWaits(): { count: number; stop(): void } {
    const context = this.#contexts.find((each) => each.readTensor);
    const prototype =
      this.backend === "webgpu" ? GPUBuffer.prototype : Object.getPrototypeOf(context);
    const method = this.backend === "webgpu" ? "mapAsync" : "readTensor";
    const original = prototype[method];
    const waits = {
      count: 0,
      stop: () => {
        prototype[method] = original;
      },
    };
    prototype[method] = function (...given: unknown[]) {
      waits.count += 1;
      return original.apply(this, given);
    };
    return waits;
  }

  /** Counts the buffers of this size that the GPU is asked for, and those not destroyed. */
  watchBuffers(byteLen: number): { made: number; alive: number; stop(): void } {
    const { createBuffer } = GPUDevice.prototype;
    const buffers = {
      made: 0,
      alive: 0,
      stop: () => {
        GPUDevice.prototype.createBuffer = createBuffer;
      },
    };
    GPUDevice.prototype.createBuffer = function (descriptor) {
      const buffer = createBuffer.call(this, descriptor);
      if (descriptor.size === byteLen) {
        buffers.made += 1;
        buffers.alive += 1;
        buffer.destroy = () => {
          buffers.alive -= 1;
          return GPUBuffer.prototype.destroy.call(buffer);
        };
      }
      return buffer;
    };
    return buffers;
  }

  /** Takes the engine's device away. */
  lose(): void {
    this.gpu?.destroy();
    for (const context of this.#contexts) {
      context.destroy?.();
    }
  }

  load(files: SegmentFiles) {
    return this.engine.load(files, () => undefined);
  }

  run(steps: StepSpec[], onPart: (outputs: HostOutput[]) => void = () => undefined) {
    return this.engine.run(program(steps), onPart);
  }
}

/** A step in few words: inputs are tensors, names of kept ones, or outputs of earlier steps. */
export interface StepSpec {
  segment: string;
  inputs: Record<string, HostTensor | string | { step: number; output: string }>;
  outputs: Record<string, { returned?: boolean; keep?: string }>;
  early?: boolean;
}

export function program(steps: StepSpec[]): Program {
  const parts: Uint8Array[] = [];
  let offset = 0;
  const inputOf = (from: StepSpec["inputs"][string]): Input => {
    if (typeof from === "string") {
      return { type: "kept", tensor: from };
    }
    if ("step" in from) {
      return { type: "step", ...from };
    }
    const { dtype, dims, bytes } = from;
    const value = { dtype, dims, offset, byteLen: bytes.byteLength };
    const padded = new Uint8Array(Math.ceil(bytes.byteLength / 8) * 8);
    padded.set(bytes);
    parts.push(padded);
    offset += padded.byteLength;
    return { type: "inline", value };
  };
  const written = steps.map(({ segment, inputs, outputs, early }) => ({
    segment,
    inputs: Object.entries(inputs).map(([name, from]) => ({ name, from: inputOf(from) })),
    outputs: Object.entries(outputs).map(([name, to]) => ({
      name,
      to: { returned: to.returned ?? false, keep: to.keep ?? null },
    })),
    early: early ?? false,
  }));
  const body = new Uint8Array(offset);
  let end = 0;
  for (const part of parts) {
    body.set(part, end);
    end += part.byteLength;
  }
  return { steps: written, body };
}

/** `y = x · [[1, 2], [3, 4]] + [10, 20]` with its weights in files; x is f32[2, 2]. */
export function linear(segment = "linear"): SegmentFiles {
  const w = new Float32Array([1, 2, 3, 4]);
  const b = new Float32Array([10, 20]);
  const graph = writeOnnx({
    nodes: [
      { op: "MatMul", inputs: ["x", "w"], outputs: ["xw"] },
      { op: "Add", inputs: ["xw", "b"], outputs: ["y"] },
    ],
    inputs: [{ name: "x", dtype: "f32", dims: ["rows", 2] }],
    outputs: [{ name: "y", dtype: "f32", dims: ["rows", 2] }],
    weights: [
      { name: "w", dims: [2, 2], file: "file-of-w", byteLen: 16 },
      { name: "b", dims: [2], file: "file-of-b", byteLen: 8 },
    ],
  });
  return files(segment, graph, {
    weights: [
      { name: "file-of-w", bytes: new Uint8Array(w.buffer) },
      { name: "file-of-b", bytes: new Uint8Array(b.buffer) },
    ],
    dims: { rows: 2 },
    warmUp: [{ name: "x", dtype: "f32", dims: [2, 2] }],
    outputs: ["y"],
  });
}

/** `sum = a + b` on f32[2, 2]. */
export function sum(): SegmentFiles {
  const value = (name: string) => ({ name, dtype: "f32" as const, dims: [2, 2] });
  const graph = writeOnnx({
    nodes: [{ op: "Add", inputs: ["a", "b"], outputs: ["sum"] }],
    inputs: [value("a"), value("b")],
    outputs: [value("sum")],
  });
  return files("sum", graph, { outputs: ["sum"] });
}

/** Operators one after the other, each from f32[2, 2] to f32[2, 2]. */
export function chain(...operators: string[]): SegmentFiles {
  const last = operators.length - 1;
  const value = (name: string) => ({ name, dtype: "f32" as const, dims: [2, 2] });
  const graph = writeOnnx({
    nodes: operators.map((op, at) => ({
      op,
      inputs: [at === 0 ? "x" : `after ${at - 1}`],
      outputs: [at === last ? "y" : `after ${at}`],
    })),
    inputs: [value("x")],
    outputs: [value("y")],
  });
  return files(operators.join(" "), graph, { outputs: ["y"] });
}

/** Copies of `x`, each with as many elements as `count` says, all of them there at once. */
export function copies(number: number): SegmentFiles {
  const names = Array.from({ length: number }, (_, at) => `copy ${at}`);
  const graph = writeOnnx({
    nodes: names.map((name, at) => ({
      op: at === 0 ? "Expand" : "Neg",
      inputs: at === 0 ? ["x", "count"] : [`copy ${at - 1}`],
      outputs: [name],
    })),
    inputs: [
      { name: "x", dtype: "f32", dims: [1] },
      { name: "count", dtype: "i64", dims: [1] },
    ],
    outputs: names.map((name) => ({ name, dtype: "f32" as const, dims: ["count"] })),
  });
  return files("copies", graph, { outputs: names });
}

/** `y = p · q` with all dimensions open. */
export function product(): SegmentFiles {
  const value = (name: string) => ({ name, dtype: "f32" as const, dims: [`${name}0`, `${name}1`] });
  const graph = writeOnnx({
    nodes: [{ op: "MatMul", inputs: ["p", "q"], outputs: ["y"] }],
    inputs: [value("p"), value("q")],
    outputs: [value("y")],
  });
  return files("product", graph, { outputs: ["y"] });
}

/** `y = x` for any type. */
export function identity(dtype: ValueSpec["dtype"]): SegmentFiles {
  const value = (name: string) => ({ name, dtype, dims: [4] });
  const graph = writeOnnx({
    nodes: [{ op: "Identity", inputs: ["x"], outputs: ["y"] }],
    inputs: [value("x")],
    outputs: [value("y")],
  });
  return files(`identity of ${dtype}`, graph, { outputs: ["y"] });
}

/** `y = -x` on rows of two; how many, the graph neither says nor names. */
export function unsized(): SegmentFiles {
  const value = (name: string) => ({ name, dtype: "f32" as const, dims: [null, 2] });
  const graph = writeOnnx({
    nodes: [{ op: "Neg", inputs: ["x"], outputs: ["y"] }],
    inputs: [value("x")],
    outputs: [value("y")],
  });
  return files("unsized", graph, { outputs: ["y"] });
}

export function files(
  segment: string,
  graph: Uint8Array<ArrayBuffer>,
  rest: Partial<SegmentFiles> = {},
): SegmentFiles {
  return { segment, graph, weights: [], lifted: [], dims: {}, warmUp: [], outputs: [], ...rest };
}

export function f32(dims: number[], values: number[]): HostTensor {
  return { dtype: "f32", dims, bytes: new Uint8Array(new Float32Array(values).buffer) };
}

export function numbers(tensor: HostTensor | undefined): number[] {
  if (tensor?.dtype !== "f32") {
    throw new Error(`expected f32, got ${tensor?.dtype}`);
  }
  return [...new Float32Array(tensor.bytes.slice().buffer)];
}

export function output(outcome: ProgramOutcome | HostOutput[], name: string): number[] {
  const outputs = Array.isArray(outcome) ? outcome : outcome.outputs;
  return numbers(outputs.find((output) => output.name === name)?.value);
}

export function equal(actual: unknown, expected: unknown, what = "value"): void {
  const [a, b] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (a !== b) {
    throw new Error(`${what}: expected ${b}, got ${a}`);
  }
}

/** Waits for a failure of this kind whose message holds all of `words`. */
export async function fails(
  work: Promise<unknown>,
  kind: string,
  ...words: string[]
): Promise<EngineError> {
  const error = await work.then(
    (value) => new Error(`expected a failure, got ${JSON.stringify(value)}`),
    (error: unknown) => error,
  );
  if (!(error instanceof EngineError)) {
    throw error;
  }
  equal(error.kind, kind, `kind of "${error.message}"`);
  for (const word of words) {
    if (!error.message.includes(word)) {
      throw new Error(`"${error.message}" does not say "${word}"`);
    }
  }
  return error;
}
