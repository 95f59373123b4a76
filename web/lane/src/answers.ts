/*
 * What a lane says that has to be heard: sent when there is a line, and kept until it surely came
 * through (see requests.ts).
 */

import type { Letter } from "#lane/outbox";
import { cut, failureOf } from "#lane/request-error";
import { Requests } from "#lane/requests";
import { letter } from "#lane/task";
import { checkSendable } from "#wire/frame";
import type { ErrorKind } from "#wire/messages";

export class Answers {
  readonly #requests = new Requests();
  readonly #send: (letter: Letter) => void;

  /** `send` does nothing where there is no line. */
  constructor(send: (letter: Letter) => void) {
    this.#send = send;
  }

  /** Notes a request that is to be answered. False if there is no room, or if it was noted before. */
  begin(request: number, bodyLen: number): boolean {
    if (this.#requests.knows(request)) {
      if (this.#requests.isAnswered(request)) {
        this.#sendAll(this.#requests.lettersOf(request));
      }
      return false;
    }
    if (this.#requests.begin(request, bodyLen)) {
      return true;
    }
    const message = "too many requests or answers wait already; acknowledge some";
    this.#send(letter({ type: "error", request, kind: "busy", message }));
    return false;
  }

  answer(request: number, answer: Letter): void {
    const why = whyUnsendable(answer);
    if (why !== null) {
      this.fail(request, "protocol", why);
      return;
    }
    this.#requests.keep(request, answer, true);
    this.#send(answer);
  }

  fail(request: number, kind: ErrorKind, message: string): void {
    this.answer(request, letter({ type: "error", request, kind, message: cut(message) }));
  }

  /** Says a part of an answer; gives why it cannot be sent, if so. */
  part(request: number, part: Letter): string | null {
    const why = whyUnsendable(part);
    if (why === null) {
      this.#requests.keep(request, part, false);
      this.#send(part);
    }
    return why;
  }

  /** Everything that was loaded and kept is gone. */
  lose(reason: string): void {
    const lost = letter({ type: "lost", reason: cut(reason) });
    this.#requests.keepLoss(lost);
    this.#send(lost);
  }

  /** Gives the letters that surely came through. */
  acknowledge(requests: number[]): Letter[] {
    return this.#requests.acknowledge(requests);
  }

  /** Says again all that may not have been heard. */
  resume(): void {
    this.#sendAll(this.#requests.letters());
  }

  clear(): void {
    this.#requests.clear();
  }

  /** The requests that are known. */
  numbers(): number[] {
    return this.#requests.numbers();
  }

  get unacknowledged(): number {
    return this.#requests.unacknowledged;
  }

  #sendAll(letters: Letter[]): void {
    for (const each of letters) {
      this.#send(each);
    }
  }
}

/** Kept and sent again after every cut, a letter that the wire does not take would end the lane. */
function whyUnsendable({ message, body }: Letter): string | null {
  try {
    checkSendable(message, body);
    return null;
  } catch (error) {
    return `a ${message.type} cannot be sent: ${failureOf(error).message}`;
  }
}
