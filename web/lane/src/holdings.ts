/*
 * What the engine holds, as far as the lane knows without asking: it has to answer while the engine
 * is busy, and to tell what was lost with an engine from what was never there.
 */

import type { EngineStats } from "#engine/engine";
import { RequestError } from "#lane/request-error";

/** Names of lost things that are remembered; of older ones the lane says that they never were. */
const LOST_LIMIT = 4096;

export class Holdings {
  /** Bytes of the files of each segment, and what of it runs on the processor instead. */
  readonly segments = new Map<string, { byteLen: number; placement: string | null }>();
  /** Bytes of each tensor, where the lane knows them: 0 for what a program kept. */
  readonly tensors = new Map<string, number>();
  tensorBytes = 0;
  heapBytes: number | null = null;
  readonly #lost = new Set<string>();

  get isEmpty(): boolean {
    return this.segments.size === 0 && this.tensors.size === 0;
  }

  get segmentBytes(): number {
    let sum = 0;
    for (const { byteLen } of this.segments.values()) sum += byteLen;
    return sum;
  }

  segmentLoaded(segment: string, byteLen: number, placement: string | null): void {
    this.segments.set(segment, { byteLen, placement });
    this.#lost.delete(`segment ${segment}`);
  }

  /** The engine had to let a segment go by itself. */
  segmentLost(segment: string): void {
    if (this.segments.delete(segment)) this.#lost.add(`segment ${segment}`);
  }

  tensorKept(tensor: string, byteLen = 0): void {
    this.tensors.set(tensor, byteLen);
    this.#lost.delete(`tensor ${tensor}`);
  }

  requireSegment(segment: string): void {
    if (!this.segments.has(segment)) throw this.#missing(`segment ${segment}`);
  }

  requireTensor(tensor: string): void {
    if (!this.tensors.has(tensor)) throw this.#missing(`tensor ${tensor}`);
  }

  /** Takes over what the engine says about itself. */
  update(stats: EngineStats): void {
    this.tensorBytes = stats.tensorBytes;
    this.heapBytes = stats.heapBytes;
  }

  /** The engine is gone, and everything with it. */
  lose(): void {
    for (const segment of this.segments.keys()) this.#lost.add(`segment ${segment}`);
    for (const tensor of this.tensors.keys()) this.#lost.add(`tensor ${tensor}`);
    for (const name of this.#lost) {
      if (this.#lost.size <= LOST_LIMIT) break;
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
    this.heapBytes = null;
  }

  #missing(what: string): RequestError {
    return this.#lost.has(what)
      ? new RequestError("state_lost", `${what} was lost with its engine or session`)
      : new RequestError("caller", `${what} is not there; load or put it first`);
  }
}
