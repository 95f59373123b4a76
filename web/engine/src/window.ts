/*
 * Windows: the part of a kept tensor that is wanted, as runs of bytes that lie one after the other.
 */

import { type Dtype, dtypeNamed, elementCount } from "#engine/dtypes";
import { EngineError, type HostTensor } from "#engine/engine";
import type { TensorWindow } from "#wire/messages";

/** Runs of bytes, all of one length. */
export interface Runs {
  starts: number[];
  byteLen: number;
}

/** Where the bytes of a window lie in a tensor; throws if it is no part of it. */
export function runsOf(window: TensorWindow, dtype: Dtype, tensorBytes: number): Runs {
  const { offset, dims, strides } = window;
  const elements = elementCount(dims);
  const last = dims.reduce((at, dim, axis) => at + (dim - 1) * (strides[axis] ?? 0), offset);
  const isWhole = [offset, ...dims, ...strides].every(
    (number) => Number.isSafeInteger(number) && number >= 0,
  );
  const fits = elements === 0 || (last + 1) * dtype.byteLen <= tensorBytes;
  if (!isWhole || !fits || dims.length !== strides.length || dtype.byteLen < 1) {
    throw new EngineError("caller", `${JSON.stringify(window)} is no part of the tensor`);
  }
  if (elements === 0) {
    return { starts: [], byteLen: 0 };
  }
  // From the last axis on, for as long as neighbours follow each other.
  let from = dims.length;
  let run = 1;
  while (from > 0 && (dims[from - 1] === 1 || strides[from - 1] === run)) {
    from -= 1;
    run *= dims[from] ?? 1;
  }
  let starts = [offset];
  for (let axis = 0; axis < from; axis += 1) {
    const along = Array.from({ length: dims[axis] ?? 0 }, (_, at) => at * (strides[axis] ?? 0));
    starts = starts.flatMap((start) => along.map((step) => start + step));
  }
  return { starts: starts.map((start) => start * dtype.byteLen), byteLen: run * dtype.byteLen };
}

/** What a window shows of a tensor whose bytes are all there. */
export function windowed({ dtype, bytes }: HostTensor, window: TensorWindow): HostTensor {
  const runs = runsOf(window, dtypeNamed(dtype), bytes.byteLength);
  return { dtype, dims: [...window.dims], bytes: gathered(runs, bytes, (start) => start) };
}

/** The bytes of runs, which lie in `bytes` at the places that `find` gives. */
export function gathered(
  { starts, byteLen }: Runs,
  bytes: Uint8Array,
  find: (start: number, run: number) => number,
): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(starts.length * byteLen);
  for (const [run, start] of starts.entries()) {
    const at = find(start, run);
    out.set(bytes.subarray(at, at + byteLen), run * byteLen);
  }
  return out;
}
