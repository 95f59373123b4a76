/*
 * The body of a message: tensors, one after the other, each at a multiple of 8 bytes, because a
 * typed array can only look at bytes that start at a multiple of its element's size.
 */

import type { Bytes } from "#wire/frame";
import type { TensorSlice } from "#wire/messages";

const ALIGNMENT = 8;
const zeros = new Uint8Array(ALIGNMENT);

/** Lays tensors into a body. Their bytes are not copied before they go into a frame. */
export class BodyWriter {
  readonly pieces: Bytes[] = [];
  byteLen = 0;

  /** Adds a tensor and says where it lies. */
  push(tensor: { dtype: string; dims: number[]; bytes: Bytes }): TensorSlice {
    const padding = (ALIGNMENT - (this.byteLen % ALIGNMENT)) % ALIGNMENT;
    if (padding > 0) {
      this.#add(zeros.subarray(0, padding));
    }
    const slice = {
      dtype: tensor.dtype,
      dims: tensor.dims,
      offset: this.byteLen,
      byteLen: tensor.bytes.length,
    };
    this.#add(tensor.bytes);
    return slice;
  }

  #add(piece: Bytes): void {
    this.pieces.push(piece);
    this.byteLen += piece.length;
  }
}

/** The bytes of a tensor, without copying them; null if they do not lie in the body. */
export function bytesOf(slice: TensorSlice, body: Bytes): Bytes | null {
  const { offset, byteLen } = slice;
  const inside =
    Number.isInteger(offset) &&
    Number.isInteger(byteLen) &&
    offset >= 0 &&
    byteLen >= 0 &&
    offset + byteLen <= body.length;
  return inside && offset % ALIGNMENT === 0 ? body.subarray(offset, offset + byteLen) : null;
}
