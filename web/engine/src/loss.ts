/*
 * A device that can be lost at any moment. ONNX Runtime must not be asked anything after that: runs
 * resolve without having computed, and a second one blocks the worker for ever.
 */

import { EngineError } from "./engine.ts";

/** How much later than its effects a loss may be told. */
const GRACE_MS = 50;

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

  /** What `work` gives; throws as soon as the device is lost, and if it is lost by the end. */
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
    if ("reason" in first) {
      await this.blame();
      throw first.reason;
    }
    this.check();
    return first.value;
  }

  /**
   * To be asked about every failure: throws if the device is lost. What a loss makes fail can fail
   * before the browser tells of the loss, so this waits for a moment.
   */
  async blame(): Promise<void> {
    await Promise.race([this.#lost, new Promise((resolve) => setTimeout(resolve, GRACE_MS))]);
    this.check();
  }

  #error(): EngineError {
    return new EngineError("device", this.#reason ?? "", true);
  }
}
