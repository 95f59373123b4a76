/*
 * One call at a time. ONNX Runtime Web hangs or corrupts memory when a second call starts while
 * one is under way, so everything that touches it goes through one queue.
 */

export class Queue {
  #last: Promise<unknown> = Promise.resolve();

  /** Runs `work` once all that was asked before it is done, whether it went well or not. */
  run<T>(work: () => Promise<T> | T): Promise<T> {
    const result = this.#last.then(work);
    this.#last = result.catch(() => undefined);
    return result;
  }
}
