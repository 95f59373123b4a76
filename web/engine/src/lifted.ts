/*
 * Weights that sessions take as inputs. Of its own weights a session uploads a copy each, but inputs
 * it takes from buffers that are there: so one copy serves all sessions that have a weight in common.
 */

import { byteLenOf, dtypeNamed } from "#engine/dtypes";
import { EngineError, type LiftedFile } from "#engine/engine";
import type { Feedable, Place, Weight } from "#engine/place";

/** What one session is fed besides its other inputs, until it is let go. */
export interface Lifted {
  /** By the name of the input. */
  readonly inputs: ReadonlyMap<string, Feedable>;
  release(): void;
}

export class LiftedWeights {
  readonly #place: Place;
  /** By the name of the file, with how many inputs take it. */
  readonly #held = new Map<string, { weight: Weight; users: number }>();

  constructor(place: Place) {
    this.#place = place;
  }

  /** Of all copies. */
  get byteLen(): number {
    let sum = 0;
    for (const { weight } of this.#held.values()) {
      sum += weight.byteLen;
    }
    return sum;
  }

  /** Uploads what is not there yet. Whether that came through is known after a fence. */
  take(files: readonly LiftedFile[]): Lifted {
    const taken: string[] = [];
    const release = () => {
      for (const name of taken.splice(0)) {
        this.#letGo(name);
      }
    };
    try {
      const inputs = new Map<string, Feedable>();
      for (const file of files) {
        const weight = this.#hold(file);
        taken.push(file.weight);
        checkSize(file, weight.byteLen);
        inputs.set(file.input, weight.as(file.dtype, file.dims));
      }
      return { inputs, release };
    } catch (error) {
      release();
      throw error;
    }
  }

  #hold({ input, weight: name, bytes }: LiftedFile): Weight {
    const held = this.#held.get(name);
    if (held !== undefined) {
      held.users += 1;
      return held.weight;
    }
    if (this.#place.lift === undefined) {
      throw new EngineError(
        "device",
        `lifted weights need WebGPU, and input \`${input}\` is one; load the graph with its weights inside`,
      );
    }
    if (bytes === null) {
      throw new EngineError("device", `the weight of input \`${input}\`, ${name}, is not here`);
    }
    const weight = this.#place.lift(bytes);
    this.#held.set(name, { weight, users: 1 });
    return weight;
  }

  #letGo(name: string): void {
    const held = this.#held.get(name);
    if (held === undefined) {
      return;
    }
    held.users -= 1;
    if (held.users === 0) {
      this.#held.delete(name);
      held.weight.dispose();
    }
  }
}

function checkSize({ input, weight, dtype, dims }: LiftedFile, byteLen: number): void {
  const expected = byteLenOf(dtypeNamed(dtype), dims);
  if (byteLen !== expected) {
    throw new EngineError(
      "caller",
      `the lifted weight of input \`${input}\`, ${dtype}[${dims.join(", ")}], takes ${expected} bytes, but ${weight} has ${byteLen}`,
    );
  }
}
