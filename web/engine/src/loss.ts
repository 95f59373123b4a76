/*
 * A device that can be lost at any moment. ONNX Runtime must not be asked anything after that: runs
 * resolve without having computed, and a second one blocks the worker for ever.
 */

import { EngineError } from "./engine.ts";

export class Loss {
  #reason: string | null = null;
  readonly #lost: Promise<EngineError>;

  constructor(lost: Promise<{ message: string; reason?: string | undefined }>, what: string) {
    this.#lost = lost.then(({ message, reason }) => {
      const why = message || reason;
      this.#reason = why ? `${what}: ${why}` : what;
      return this.#error();
    });
  }

  reason(): string | null {
    return this.#reason;
  }

  /** Throws if the device is lost. */
  check(): void {
    if (this.#reason !== null) {
      throw this.#error();
    }
  }

  /** What `work` gives; throws as soon as the device is lost, and whenever it is lost by the end. */
  async race<T>(work: Promise<T>): Promise<T> {
    const first = await Promise.race([
      work.then(
        (value) => ({ value }),
        (reason: unknown) => ({ reason }),
      ),
      this.#lost,
    ]);
    if (first instanceof EngineError) {
      throw first;
    }
    // What the loss made fail says less than the loss.
    this.check();
    if ("reason" in first) {
      throw first.reason;
    }
    return first.value;
  }

  #error(): EngineError {
    return new EngineError("device", this.#reason ?? "", true);
  }
}
