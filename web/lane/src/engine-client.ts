/*
 * The engine in a worker of its own, behind the same door. A run on WebAssembly blocks its worker,
 * a lost GPU can block it for ever, and its memory only comes back when it ends: so the worker is
 * made to be thrown away.
 */

import {
  type Engine,
  EngineError,
  type EngineOptions,
  type EngineStats,
  type HostOutput,
  type HostTensor,
  type LoadTimes,
  type Program,
  type ProgramOutcome,
  type SegmentFiles,
} from "#engine/engine";
import {
  type Broken,
  buffersOf,
  type EngineCall,
  type EngineCalls,
  type FromEngine,
  type ToEngine,
} from "#lane/engine-calls";
import type { LoadPhase, TensorWindow } from "#wire/messages";

/** The part of a worker that is used here. */
export interface EngineWorker {
  postMessage(message: ToEngine, transfer: Transferable[]): void;
  terminate(): void;
  onmessage: ((event: MessageEvent<FromEngine>) => void) | null;
  onerror: ((event: ErrorEvent) => void) | null;
  onmessageerror: ((event: MessageEvent) => void) | null;
}

/** An engine that can be ended at any time. */
export interface DisposableEngine extends Engine {
  terminate(): void;
}

interface Pending {
  resolve(answer: never): void;
  reject(error: EngineError): void;
  onPhase?: (phase: LoadPhase) => void;
  onPart?: (outputs: HostOutput[]) => void;
}

type Listeners = Pick<Pending, "onPhase" | "onPart">;

export class EngineClient implements DisposableEngine {
  readonly #worker: EngineWorker;
  readonly #pending = new Map<number, Pending>();
  #nextId = 0;
  readonly #onBroken: (broken: Broken) => void;
  #ended: EngineError | null = null;

  /** `onBroken` is told when the worker fails by itself, between two calls or during one. */
  constructor(
    worker: EngineWorker,
    options: EngineOptions,
    onBroken: (broken: Broken) => void = () => {},
  ) {
    this.#worker = worker;
    this.#onBroken = onBroken;
    worker.onmessage = ({ data }) => this.#receive(data);
    worker.onerror = (event) => {
      event.preventDefault();
      const why = event.message || "its script could not be loaded";
      this.#break(`the engine's worker failed: ${why}`);
    };
    worker.onmessageerror = () => this.#break("the engine's worker said something unreadable");
    worker.postMessage({ type: "open", options }, []);
  }

  load(segment: SegmentFiles, onPhase: (phase: LoadPhase) => void): Promise<LoadTimes> {
    const { graph, weights, lifted } = segment;
    const brought = [...weights, ...lifted].flatMap(({ bytes }) => bytes ?? []);
    return this.#call("load", segment, buffersOf([graph, ...brought]), { onPhase });
  }

  unload(segment: string): Promise<void> {
    return this.#call("unload", segment);
  }

  put(name: string, tensor: HostTensor): Promise<void> {
    return this.#call("put", { name, tensor }, buffersOf([tensor.bytes]));
  }

  get(name: string, window: TensorWindow | null = null): Promise<HostTensor> {
    return this.#call("get", { name, window });
  }

  copy(name: string, window: TensorWindow | null, to: string): Promise<number> {
    return this.#call("copy", { name, window, to });
  }

  drop(name: string): Promise<void> {
    return this.#call("drop", name);
  }

  run(program: Program, onPart: (outputs: HostOutput[]) => void): Promise<ProgramOutcome> {
    return this.#call("run", program, buffersOf([program.body]), { onPart });
  }

  settle(keep: boolean): Promise<void> {
    return this.#call("settle", keep);
  }

  stats(): Promise<EngineStats> {
    return this.#call("stats", undefined);
  }

  cancel(): void {
    if (this.#ended === null) {
      this.#worker.postMessage({ type: "cancel" }, []);
    }
  }

  takeBack(buffers: ArrayBuffer[]): void {
    if (this.#ended === null && buffers.length > 0) {
      this.#worker.postMessage({ type: "take_back", buffers }, buffers);
    }
  }

  /** Ends the worker and gives its memory back. Calls under way fail. */
  terminate(): void {
    this.#end(new EngineError("device", "the engine was ended", true));
  }

  #call<C extends EngineCall>(
    type: C,
    asked: EngineCalls[C]["asked"],
    transfer: Transferable[] = [],
    listeners: Listeners = {},
  ): Promise<EngineCalls[C]["answer"]> {
    return new Promise((resolve, reject) => {
      if (this.#ended !== null) {
        reject(this.#ended);
        return;
      }
      const id = this.#nextId++;
      this.#pending.set(id, { resolve: resolve as (answer: never) => void, reject, ...listeners });
      this.#worker.postMessage({ type, id, asked } as ToEngine, transfer);
    });
  }

  #receive(message: FromEngine): void {
    if (message.type === "broken") {
      const { reason, backendGone } = message;
      this.#break(reason, backendGone);
      return;
    }
    const pending = this.#pending.get(message.id);
    if (!pending) {
      return;
    }
    switch (message.type) {
      case "phase":
        pending.onPhase?.(message.phase);
        return;
      case "part":
        pending.onPart?.(message.outputs);
        return;
      case "answer":
        this.#pending.delete(message.id);
        pending.resolve(message.answer as never);
        return;
      case "failed": {
        this.#pending.delete(message.id);
        const { kind, message: text, fatal, lostSegment } = message.failure;
        pending.reject(new EngineError(kind, text, fatal, lostSegment));
      }
    }
  }

  #break(reason: string, backendGone = false): void {
    // What cannot be computed on is no refusal of what was to be computed.
    this.#end(new EngineError(backendGone ? "state_lost" : "device", reason, true));
    this.#onBroken({ reason, backendGone });
  }

  #end(error: EngineError): void {
    if (this.#ended !== null) {
      return;
    }
    this.#ended = error;
    this.#worker.terminate();
    for (const pending of this.#pending.values()) {
      pending.reject(error);
    }
    this.#pending.clear();
  }
}
