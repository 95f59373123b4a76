/*
 * The engine's door: what it is asked to do, and what it answers. It knows segments, tensors and
 * programs, and no socket. The one in a worker of its own is spoken to through the same interface.
 */

import type {
  Backend,
  ErrorKind,
  KeptTensor,
  LoadPhase,
  NamedInput,
  NamedOutput,
  OutputTensor,
  StepTiming,
  TensorShape,
  TensorWindow,
} from "#wire/messages";

/** What an engine is made with. */
export interface EngineOptions {
  backend: Backend;
  /** Threads of the wasm backend. */
  threads: number;
  /** The folder of this origin that holds ONNX Runtime's scripts and WebAssembly files. */
  ortBase: string;
}

/** Computes on one backend. Calls may overlap; the engine works on one at a time, in order. */
export interface Engine {
  /** Makes a segment ready to run. One that is ready already changes nothing. */
  load(segment: SegmentFiles, onPhase: (phase: LoadPhase) => void): Promise<LoadTimes>;
  /** Lets a segment go. */
  unload(segment: string): Promise<void>;
  /** Keeps a tensor on the device, replacing one of the same name. Its bytes are the engine's now. */
  put(name: string, tensor: HostTensor): Promise<void>;
  /** Reads a kept tensor back, or a part of it. */
  get(name: string, window?: TensorWindow | null): Promise<HostTensor>;
  /**
   * Keeps a copy of a kept tensor, or of a part of it, replacing one of the same name; its bytes
   * stay on the device where the backend can copy there. Gives how many they are.
   */
  copy(name: string, window: TensorWindow | null, to: string): Promise<number>;
  /** Lets a kept tensor go. */
  drop(name: string): Promise<void>;
  /**
   * Runs a program. What it is to keep is only set aside: `settle` decides, so that a program that
   * was given up in the meantime changes nothing.
   */
  run(program: Program, onPart: (outputs: HostOutput[]) => void): Promise<ProgramOutcome>;
  /** Keeps what the last program set aside, or lets it go. */
  settle(keep: boolean): Promise<void>;
  /** Asks the program under way to end between two steps. */
  cancel(): void;
  /** Memory of answers that is not needed any more, for answers to come. */
  takeBack(buffers: ArrayBuffer[]): void;
  /** What the engine holds. */
  stats(): Promise<EngineStats>;
}

/** A tensor in the memory of the page. */
export interface HostTensor {
  dtype: string;
  dims: number[];
  bytes: Uint8Array<ArrayBuffer>;
}

/** A segment, fetched and verified. */
export interface SegmentFiles {
  segment: string;
  graph: Uint8Array<ArrayBuffer>;
  /** By the names that the graph refers to them. */
  weights: { name: string; bytes: Uint8Array<ArrayBuffer> }[];
  /** Inputs that are weights, which the engine feeds itself from one copy for all segments. */
  lifted: LiftedFile[];
  dims: Record<string, number>;
  /** For a first run on zeros; empty for none. */
  warmUp: TensorShape[];
  outputs: string[];
}

/** An input that is a weight. */
export interface LiftedFile {
  input: string;
  /** The name of its file, by which segments have it in common. */
  weight: string;
  dtype: string;
  dims: number[];
  /** Null where a segment that is loaded has brought them. */
  bytes: Uint8Array<ArrayBuffer> | null;
}

/** How long loading took, in milliseconds. */
export interface LoadTimes {
  createMs: number;
  warmUpMs: number | null;
  warmUpError: string | null;
  /** Which nodes run on the processor instead of the backend; null for none. */
  placement: string | null;
}

/** Steps that run one after the other; inline inputs lie in `body`. */
export interface Program {
  steps: ProgramStep[];
  body: Uint8Array<ArrayBuffer>;
}

export interface ProgramStep {
  segment: string;
  inputs: NamedInput[];
  outputs: NamedOutput[];
  early: boolean;
}

/** An output that comes back. */
export interface HostOutput extends Omit<OutputTensor, "value"> {
  value: HostTensor;
}

export interface ProgramOutcome {
  outputs: HostOutput[];
  steps: StepTiming[];
  /** What it set aside to be kept, each name once. */
  kept: KeptTensor[];
  /** Of the engine, after the program. */
  heapBytes: number | null;
}

export interface EngineStats {
  segments: number;
  tensors: number;
  tensorBytes: number;
  /** Those of them in GPU buffers and ML tensors. */
  deviceTensorBytes: number;
  /** Of lifted weights, one copy of each. */
  liftedBytes: number;
  heapBytes: number | null;
}

/** What went wrong, and whether the engine is of any use after it. */
export class EngineError extends Error {
  readonly kind: ErrorKind;
  /** The engine has to be replaced. */
  readonly fatal: boolean;
  /** The segment that the engine had to let go with this failure; it has to be loaded again. */
  readonly lostSegment: string | null;

  constructor(kind: ErrorKind, message: string, fatal = false, lostSegment: string | null = null) {
    super(message);
    this.name = "EngineError";
    this.kind = kind;
    this.fatal = fatal;
    this.lostSegment = lostSegment;
  }
}

/**
 * The browser does not give what the backend computes on, so no engine can start. It is the device
 * that is gone, which says nothing about what was to be computed.
 */
export class BackendGone extends EngineError {
  constructor(message: string) {
    super("state_lost", message, true);
  }
}
