/*
 * The requests that a lane knows: those it works on, and those it has answered, with the answers,
 * until they are acknowledged. That is what makes asking again after a cut harmless.
 */

import { bodyBytes, type Letter } from "#lane/outbox";

export const REQUESTS_LIMIT = 1024;
export const HELD_BYTES_LIMIT = 1024 * 1024 * 1024;

interface Known {
  /** Parts and the answer, in order. */
  letters: Letter[];
  answered: boolean;
  /** Bytes of the request until it is answered, and of its letters. */
  requestBytes: number;
  letterBytes: number;
}

export class Requests {
  readonly #known = new Map<number, Known>();
  #heldBytes = 0;

  /** Notes a request; false if there is no room for it. */
  begin(request: number, bodyLen: number): boolean {
    if (this.#known.size >= REQUESTS_LIMIT || this.#heldBytes > HELD_BYTES_LIMIT) return false;
    const known = { letters: [], answered: false, requestBytes: bodyLen, letterBytes: 0 };
    this.#known.set(request, known);
    this.#heldBytes += bodyLen;
    return true;
  }

  knows(request: number): boolean {
    return this.#known.has(request);
  }

  isAnswered(request: number): boolean {
    return this.#known.get(request)?.answered === true;
  }

  /** Keeps a letter until its request is acknowledged; the last one is the answer. */
  keep(request: number, letter: Letter, isAnswer: boolean): void {
    const known = this.#known.get(request);
    if (!known) return;
    const bytes = bodyBytes(letter.body);
    known.letters.push(letter);
    known.letterBytes += bytes;
    this.#heldBytes += bytes;
    if (!isAnswer) return;
    known.answered = true;
    this.#heldBytes -= known.requestBytes;
    known.requestBytes = 0;
  }

  /** What there is for a request so far. */
  letters(request: number): readonly Letter[] {
    return this.#known.get(request)?.letters ?? [];
  }

  /** Lets go of the answers to these requests. */
  acknowledge(requests: number[]): void {
    for (const request of requests) {
      if (this.isAnswered(request)) this.#forget(request);
    }
  }

  numbers(): number[] {
    return [...this.#known.keys()];
  }

  /** Answers that wait to be acknowledged. */
  get unacknowledged(): number {
    let count = 0;
    for (const known of this.#known.values()) if (known.answered) count += 1;
    return count;
  }

  clear(): void {
    this.#known.clear();
    this.#heldBytes = 0;
  }

  #forget(request: number): void {
    this.#heldBytes -= this.#known.get(request)?.letterBytes ?? 0;
    this.#known.delete(request);
  }
}
