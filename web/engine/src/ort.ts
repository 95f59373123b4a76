/*
 * Chooses, downloads and starts the build of ONNX Runtime Web that a backend needs, and nothing
 * else. Scripts come from a folder of the same origin, so `script-src 'self' 'wasm-unsafe-eval'`
 * is enough. The JSEP build (`ort.min.mjs`) is never used: it silently computes wrong numbers.
 */

import type * as onnxruntime from "onnxruntime-web";
import type { Backend } from "#wire/messages";

export type OrtModule = typeof onnxruntime;

/** A started ONNX Runtime. */
export interface Ort {
  module: OrtModule;
  /** Bytes of its heap; null where it could not be found. */
  heapBytes(): number | null;
  /** Does `work` and gives the lines that ONNX Runtime logged meanwhile. */
  logged<T>(work: () => Promise<T>): Promise<{ result: T; lines: string[] }>;
}

/** The files of a build, all from `onnxruntime-web/dist`. */
export interface OrtBuild {
  script: string;
  glue: string;
  wasm: string;
}

export function ortBuild(backend: Backend, jspi: boolean): OrtBuild {
  if (backend === "wasm") {
    return build("ort.wasm.min.mjs", "");
  }
  return jspi ? build("ort.jspi.min.mjs", ".jspi") : build("ort.webgpu.min.mjs", ".asyncify");
}

function build(script: string, flavour: string): OrtBuild {
  const stem = `ort-wasm-simd-threaded${flavour}`;
  return { script, glue: `${stem}.mjs`, wasm: `${stem}.wasm` };
}

/** Whether WebAssembly can wait for promises here. */
export function hasJspi(): boolean {
  return "Suspending" in WebAssembly;
}

/** Loads the build for `backend` from the folder `base`. */
export async function loadOrt(backend: Backend, base: string, threads: number): Promise<OrtModule> {
  const folder = new URL(base.endsWith("/") ? base : `${base}/`, globalThis.location.href);
  const files = ortBuild(backend, hasJspi());
  const script = new URL(files.script, folder).href;
  const module: OrtModule = await import(/* @vite-ignore */ script);
  module.env.logLevel = "error";
  module.env.wasm.numThreads = threads;
  module.env.wasm.wasmPaths = {
    mjs: new URL(files.glue, folder).href,
    wasm: new URL(files.wasm, folder).href,
  };
  return module;
}

/**
 * Starts ONNX Runtime by `create`, its first use. It tells neither how large its heap is nor, in
 * an error, which operators it could not place: the first is seen by watching which memory it
 * makes, the second by reading its log. It takes hold of both at its start.
 */
export async function startOrt<T>(
  module: OrtModule,
  create: () => Promise<T>,
): Promise<{ ort: Ort; result: T }> {
  const log = new Log();
  const { Memory } = WebAssembly;
  const { log: logLine, error: errorLine } = console;
  let heap: WebAssembly.Memory | null = null;
  WebAssembly.Memory = class extends Memory {
    constructor(descriptor: WebAssembly.MemoryDescriptor) {
      super(descriptor);
      if (descriptor.initial > 0) {
        heap = this;
      }
    }
  };
  console.log = (...parts) => log.line(parts, logLine);
  console.error = (...parts) => log.line(parts, errorLine);
  try {
    const result = await create();
    const memory = heap as WebAssembly.Memory | null;
    const heapBytes = () => memory?.buffer.byteLength ?? null;
    return { ort: { module, heapBytes, logged: (work) => log.during(work) }, result };
  } finally {
    WebAssembly.Memory = Memory;
    console.log = logLine;
    console.error = errorLine;
  }
}

class Log {
  #lines: string[] | null = null;

  line(parts: unknown[], otherwise: (...parts: unknown[]) => void): void {
    if (this.#lines === null) {
      otherwise.call(console, ...parts);
    } else {
      this.#lines.push(parts.join(" "));
    }
  }

  async during<T>(work: () => Promise<T>): Promise<{ result: T; lines: string[] }> {
    const lines: string[] = [];
    this.#lines = lines;
    try {
      return { result: await work(), lines };
    } finally {
      this.#lines = null;
    }
  }
}
