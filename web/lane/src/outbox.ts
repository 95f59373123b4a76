/*
 * What goes out on one connection. Small messages go at once; bodies of large ones follow frame by
 * frame while the socket's buffer has room, so that a pong never waits for more than that buffer.
 */

import type { Clock } from "#lane/clock";
import type { Socket } from "#lane/socket";
import { type Bytes, type Frame, split } from "#wire/frame";
import type { FromLane } from "#wire/messages";

/** A message with the bytes that belong to it. */
export interface Letter {
  message: FromLane;
  body: Bytes[];
}

const SMALL_BODY_BYTES = 256 * 1024;
const BUFFERED_BYTES = 8 * 1024 * 1024;
const POLL_MS = 4;

export class Outbox {
  readonly #socket: Socket;
  readonly #clock: Clock;
  readonly #large: { message: FromLane; frames: Iterator<Frame, void> }[] = [];
  #stopPolling: (() => void) | null = null;
  readonly #frameBytes: number;
  #nextId = 0;

  constructor(socket: Socket, clock: Clock, frameBytes: number) {
    this.#socket = socket;
    this.#clock = clock;
    this.#frameBytes = frameBytes;
  }

  /** Whether something large is not wholly sent. */
  get isSending(): boolean {
    return this.#large.length > 0;
  }

  send({ message, body }: Letter): void {
    const frames = split(this.#nextId, message, body, this.#frameBytes);
    this.#nextId = (this.#nextId + 1) % 2 ** 32;
    if (bodyBytes(body) <= SMALL_BODY_BYTES && !this.#mustWait(message)) {
      for (const frame of frames) {
        sendFrame(this.#socket, frame);
      }
      return;
    }
    this.#large.push({ message, frames });
    if (this.#stopPolling === null) {
      this.#pump();
    }
  }

  /** Lets go of what was not sent. */
  close(): void {
    this.#stopPolling?.();
    this.#large.length = 0;
  }

  /** An outcome must not overtake the parts before it, nor an answer a loss, nor a loss an answer. */
  #mustWait(message: FromLane): boolean {
    const request = requestOf(message);
    if (message.type === "lost") {
      return this.#large.length > 0;
    }
    return (
      request !== null &&
      this.#large.some(({ message }) => message.type === "lost" || requestOf(message) === request)
    );
  }

  #pump(): void {
    this.#stopPolling = null;
    for (let first = this.#large[0]; first; first = this.#large[0]) {
      if (this.#socket.bufferedAmount > BUFFERED_BYTES) {
        this.#stopPolling = this.#clock.after(POLL_MS, () => this.#pump());
        return;
      }
      const next = first.frames.next();
      if (next.done) {
        this.#large.shift();
      } else {
        sendFrame(this.#socket, next.value);
      }
    }
  }
}

/** A socket copies what it sends. */
export function sendFrame(socket: Socket, frame: Frame): void {
  for (const bytes of frame) {
    socket.send(bytes);
  }
}

export function bodyBytes(body: Bytes[]): number {
  return body.reduce((sum, piece) => sum + piece.length, 0);
}

function requestOf(message: FromLane): number | null {
  return "request" in message ? message.request : null;
}
