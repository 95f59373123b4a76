/*
 * The requests that a lane knows, and what it has to say until it was surely heard: answers until
 * they are acknowledged, and losses until an answer after them is. All of it stays in the order in
 * which it came about: an answer from before a loss means nothing after it. That is what makes
 * asking again after a cut harmless.
 */

import { bodyBytes, type Letter } from "#lane/outbox";

export const REQUESTS_LIMIT = 1024;
export const HELD_BYTES_LIMIT = 1024 * 1024 * 1024;

interface Known {
  answered: boolean;
  /** Bytes of the request until it is answered. */
  requestBytes: number;
}

interface Kept {
  /** Null for a loss. */
  request: number | null;
  letter: Letter;
}

export class Requests {
  readonly #known = new Map<number, Known>();
  #kept: Kept[] = [];
  #heldBytes = 0;

  /** Notes a request; false if there is no room for it. */
  begin(request: number, bodyLen: number): boolean {
    if (this.#known.size >= REQUESTS_LIMIT || this.#heldBytes > HELD_BYTES_LIMIT) {
      return false;
    }
    this.#known.set(request, { answered: false, requestBytes: bodyLen });
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
    if (!known) {
      return;
    }
    this.#kept.push({ request, letter });
    this.#heldBytes += bodyBytes(letter.body);
    if (!isAnswer) {
      return;
    }
    known.answered = true;
    this.#heldBytes -= known.requestBytes;
    known.requestBytes = 0;
  }

  /** Keeps a loss until something that came after it is acknowledged. */
  keepLoss(letter: Letter): void {
    // Two with nothing between them say the same.
    if (this.#kept.at(-1)?.request === null) {
      this.#kept.pop();
    }
    this.#kept.push({ request: null, letter });
  }

  /** Everything, in order. */
  letters(): Letter[] {
    return this.#kept.map(({ letter }) => letter);
  }

  /** What there is for a request so far, and the losses since. */
  lettersOf(request: number): Letter[] {
    const first = this.#kept.findIndex((kept) => kept.request === request);
    const since = first < 0 ? [] : this.#kept.slice(first);
    const wanted = since.filter((kept) => kept.request === request || kept.request === null);
    return wanted.map(({ letter }) => letter);
  }

  /** Lets go of the answers to these requests, which it gives, and of losses told before them. */
  acknowledge(requests: number[]): Letter[] {
    const done = new Set(requests.filter((request) => this.isAnswered(request)));
    const isDone = ({ request }: Kept) => request !== null && done.has(request);
    const last = this.#kept.findLastIndex(isDone);
    const heard: Letter[] = [];
    this.#kept = this.#kept.filter((kept, at) => {
      const letGo = isDone(kept) || (kept.request === null && at < last);
      if (letGo) {
        this.#heldBytes -= bodyBytes(kept.letter.body);
        heard.push(kept.letter);
      }
      return !letGo;
    });
    for (const request of done) {
      this.#known.delete(request);
    }
    return heard;
  }

  numbers(): number[] {
    return [...this.#known.keys()];
  }

  /** Answers that wait to be acknowledged. */
  get unacknowledged(): number {
    let count = 0;
    for (const known of this.#known.values()) {
      if (known.answered) {
        count += 1;
      }
    }
    return count;
  }

  clear(): void {
    this.#known.clear();
    this.#kept = [];
    this.#heldBytes = 0;
  }
}
