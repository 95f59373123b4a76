/*
 * What the engine holds, as far as the lane knows without asking: it has to answer while the engine
 * is busy, and to tell what was lost with an engine from what was never there.
 */

import type { EngineStats } from "#engine/engine";
import { RequestError } from "#lane/request-error";

/** Names of lost things that are remembered; of older ones the lane says that they never were. */
const LOST_LIMIT = 4096;

export interface HeldSegment {
  /** Of its files, except for lifted weights. */
  byteLen: number;
  /** Names of the files of its lifted weights. */
  lifted: ReadonlySet<string>;
  /** What of it runs on the processor instead. */
  placement: string | null;
}

export class Holdings {
  readonly segments = new Map<string, HeldSegment>();
  /** Bytes of each tensor. */
  readonly tensors = new Map<string, number>();
  tensorBytes = 0;
  deviceTensorBytes = 0;
  liftedBytes = 0;
  heapBytes: number | null = null;
  readonly #lost = new Set<string>();

  get isEmpty(): boolean {
    return this.segments.size === 0 && this.tensors.size === 0;
  }

  get segmentBytes(): number {
    let sum = this.liftedBytes;
    for (const { byteLen } of this.segments.values()) {
      sum += byteLen;
    }
    return sum;
  }

  /** Whether a segment that is there has brought this lifted weight. */
  hasLifted(weight: string): boolean {
    return [...this.segments.values()].some(({ lifted }) => lifted.has(weight));
  }

  segmentLoaded(segment: string, held: HeldSegment): void {
    this.segments.set(segment, held);
    this.#lost.delete(`segment ${segment}`);
  }

  /** The engine had to let a segment go by itself. */
  segmentLost(segment: string): void {
    if (this.segments.delete(segment)) {
      this.#lost.add(`segment ${segment}`);
    }
  }

  tensorKept(tensor: string, byteLen: number): void {
    this.tensors.set(tensor, byteLen);
    this.#lost.delete(`tensor ${tensor}`);
  }

  requireSegment(segment: string): void {
    if (!this.segments.has(segment)) {
      throw this.#missing(`segment ${segment}`);
    }
  }

  requireTensor(tensor: string): void {
    if (!this.tensors.has(tensor)) {
      throw this.#missing(`tensor ${tensor}`);
    }
  }

  /** Takes over what the engine says about itself. */
  update(stats: EngineStats): void {
    this.tensorBytes = stats.tensorBytes;
    this.deviceTensorBytes = stats.deviceTensorBytes;
    this.liftedBytes = stats.liftedBytes;
    this.heapBytes = stats.heapBytes;
  }

  /** The engine is gone, and everything with it. */
  lose(): void {
    for (const segment of this.segments.keys()) {
      this.#lost.add(`segment ${segment}`);
    }
    for (const tensor of this.tensors.keys()) {
      this.#lost.add(`tensor ${tensor}`);
    }
    for (const name of this.#lost) {
      if (this.#lost.size <= LOST_LIMIT) {
        break;
      }
      this.#lost.delete(name);
    }
    this.#empty();
  }

  /** The lane starts anew; nobody knows of what was there before. */
  clear(): void {
    this.#lost.clear();
    this.#empty();
  }

  #empty(): void {
    this.segments.clear();
    this.tensors.clear();
    this.tensorBytes = 0;
    this.deviceTensorBytes = 0;
    this.liftedBytes = 0;
    this.heapBytes = null;
  }

  #missing(what: string): RequestError {
    return this.#lost.has(what)
      ? new RequestError("state_lost", `${what} was lost with its engine or session`)
      : new RequestError("caller", `${what} is not there; load or put it first`);
  }
}
