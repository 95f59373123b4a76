/*
 * Memory that was handed out and came back. New memory costs more than a copy into it, because the
 * system has to find and clear every page first: a tensor that is read again and again is read into
 * the same memory.
 */

/** Less than this is not worth a message to give it back. */
export const SPARE_FROM_BYTES = 1024 * 1024;
const LIMIT_BYTES = 64 * 1024 * 1024;

export class Spare {
  /** The one that came last is the last. */
  readonly #buffers: ArrayBuffer[] = [];

  give(buffer: ArrayBuffer): void {
    this.#buffers.push(buffer);
    let held = 0;
    const first = this.#buffers.findLastIndex((each) => {
      held += each.byteLength;
      return held > LIMIT_BYTES;
    });
    this.#buffers.splice(0, first + 1);
  }

  /** A copy of bytes, in memory that came back if some has just this size. */
  copy(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
    const at = this.#buffers.findIndex((each) => each.byteLength === bytes.byteLength);
    const [buffer] = at < 0 ? [] : this.#buffers.splice(at, 1);
    if (buffer === undefined) {
      return bytes.slice();
    }
    const copy = new Uint8Array(buffer);
    copy.set(bytes);
    return copy;
  }
}
