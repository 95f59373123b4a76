/*
 * A device that can be lost at any moment. ONNX Runtime must not be asked anything after that: runs
 * resolve without having computed, and a second one blocks the worker for ever.
 */

import { EngineError } from "#engine/engine";

/** How much later than its effects a loss may be told. */
const GRACE_MS = 50;

export class Loss {
  #reason: string | null = null;
  /**
   * Whom to tell. Not a promise for all to race with: it would hold on to whatever was raced with
   * it for as long as the device lives.
   */
  readonly #listeners = new Set<(error: EngineError) => void>();

  constructor(lost: Promise<{ message: string; reason?: string | undefined }>, what: string) {
    void lost.then(({ message, reason }) => {
      const why = message || reason;
      this.#reason = why ? `${what}: ${why}` : what;
      for (const tell of this.#listeners) tell(this.#error());
      this.#listeners.clear();
    });
  }

  reason(): string | null {
    return this.#reason;
  }

  /** Throws if the device is lost. */
  check(): void {
    if (this.#reason !== null) throw this.#error();
  }

  /** Calls back when the device is lost, unless the function that it returns is called before. */
  listen(tell: (error: EngineError) => void): () => void {
    if (this.#reason !== null) tell(this.#error());
    else this.#listeners.add(tell);
    return () => this.#listeners.delete(tell);
  }

  /** What `work` gives; throws as soon as the device is lost, and if it is lost by the end. */
  async race<T>(work: Promise<T>): Promise<T> {
    let stop = () => {};
    const lost = new Promise<never>((_, reject) => {
      stop = this.listen(reject);
    });
    try {
      const value = await Promise.race([work, lost]);
      this.check();
      return value;
    } catch (error) {
      this.check();
      await this.blame();
      throw error;
    } finally {
      stop();
    }
  }

  /**
   * To be asked about every failure: throws if the device is lost. What a loss makes fail can fail
   * before the browser tells of the loss, so this waits for a moment.
   */
  async blame(): Promise<void> {
    let stop = () => {};
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, GRACE_MS);
      const stopListening = this.listen(() => resolve());
      stop = () => {
        clearTimeout(timer);
        stopListening();
      };
    });
    stop();
    this.check();
  }

  #error(): EngineError {
    return new EngineError("device", this.#reason ?? "", true);
  }
}
