/*
 * The tensors that callers left on the engine, and how many bytes they are. The bytes are counted as
 * tensors come and go: there may be thousands, and every program may add some.
 */

import { EngineError } from "#engine/engine";
import type { Resident } from "#engine/place";

export class KeptTensors {
  readonly #residents = new Map<string, Resident>();
  byteLen = 0;
  /** Of those in GPU buffers and ML tensors. */
  deviceByteLen = 0;

  get size(): number {
    return this.#residents.size;
  }

  get(name: string): Resident {
    const resident = this.#residents.get(name);
    if (resident === undefined) {
      throw new EngineError("caller", `tensor \`${name}\` is not kept here`);
    }
    return resident;
  }

  /** Takes a tensor over. One of the same name goes. */
  keep(name: string, resident: Resident): void {
    this.drop(name);
    this.#residents.set(name, resident);
    this.byteLen += resident.byteLen;
    this.deviceByteLen += resident.onDevice ? resident.byteLen : 0;
  }

  drop(name: string): void {
    const resident = this.#residents.get(name);
    if (resident !== undefined) {
      this.#residents.delete(name);
      this.byteLen -= resident.byteLen;
      this.deviceByteLen -= resident.onDevice ? resident.byteLen : 0;
      resident.dispose();
    }
  }
}
