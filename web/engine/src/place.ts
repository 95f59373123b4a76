/*
 * Where tensors live on a backend. There is one place per backend: the page's memory (wasm), GPU
 * buffers (webgpu), ML tensors (webnn). The rest of the engine does not know which one it has.
 */

import type { InferenceSession, Tensor } from "onnxruntime-web";
import type { HostTensor } from "#engine/engine";
import type { TensorWindow } from "#wire/messages";

/** A tensor on the backend. */
export interface Resident {
  readonly dtype: string;
  readonly dims: readonly number[];
  readonly byteLen: number;
  /** Whether its bytes are in a GPU buffer or an ML tensor. */
  readonly onDevice: boolean;
  /** The tensor as an input of a session. It stays ours. */
  feed(): Tensor | Promise<Tensor>;
  /** Its bytes, to do with as one likes. It stays where it is, unless this is its last use. */
  read(last: boolean): Promise<HostTensor>;
  /** Those of a part of it. */
  readWindow(window: TensorWindow): Promise<HostTensor>;
  /**
   * A copy of it, or of a part, whose bytes do not leave the backend; within `fenced`. Null, or not
   * there at all, where the backend cannot make one.
   */
  copy?(window: TensorWindow | null): Resident | null;
  /** One that does not depend on the session that made it; this one is let go. */
  detach(): Resident;
  dispose(): void;
}

/** One that sessions take as it lies. */
export interface Feedable extends Resident {
  feed(): Tensor;
}

/** Bytes on the backend that several sessions read, each as a tensor of its own type and shape. */
export interface Weight {
  readonly byteLen: number;
  /** All of them as a tensor, which is of use for as long as they are there. */
  as(dtype: string, dims: readonly number[]): Feedable;
  dispose(): void;
}

export interface Place {
  /** What ONNX Runtime is told about the backend. */
  readonly provider: InferenceSession.ExecutionProviderConfig;
  /** Where a session is to leave an output of this type; `mixed` if some nodes run on the processor. */
  outputLocation(type: Tensor.Type, mixed: boolean): "cpu" | "gpu-buffer" | "ml-tensor";
  /** Copies a tensor to the backend. */
  upload(tensor: HostTensor): Promise<Resident>;
  /**
   * Copies a weight to the backend for sessions that take it as an input; within `fenced`. Absent
   * where inputs do not stay on the backend.
   */
  lift?(bytes: Uint8Array<ArrayBuffer>): Weight;
  /** Takes over an output of a session. */
  receive(output: Tensor): Resident;
  /**
   * Does `work` and waits until the backend has really done it. Fails if the backend reports an
   * error or is lost meanwhile, even where ONNX Runtime itself saw none. Where all that `work`
   * leaves on the backend is read, it is enough to wait for that, which saves a trip there.
   */
  fenced<T>(work: () => Promise<T>, read?: () => Promise<unknown>): Promise<T>;
  /** Why the backend is gone, or null. */
  lost(): string | null;
  /** Calls back when the backend is gone. */
  onLost(tell: (reason: string) => void): void;
}
