/*
 * Frames: how a message travels. The same rules as crates/wire/src/frame.rs, where they are
 * explained; both sides are held to the golden frames in spec/wire.
 */

import {
  BODY_LIMIT,
  FRAME_BODY_LIMIT,
  FRAME_LIMIT,
  HEADER_LIMIT,
  OPEN_MESSAGES_LIMIT,
} from "#wire/messages";

export type Bytes = Uint8Array<ArrayBuffer>;

/** A message that came together. */
export interface Received<M> {
  message: M;
  /** Of a message of one frame, a view of that frame. */
  body: Bytes;
}

/** What is wrong with a frame. After it the connection is of no use any more. */
export class FrameError extends Error {
  override readonly name = "FrameError";
}

/** Where a frame of so many bytes is put together. */
export type Room = (byteLen: number) => Bytes;

/** Throws if a message cannot be split into frames. */
export function checkSendable(message: { type: string }, body: readonly Uint8Array[]): void {
  const bodyLen = lengthOf(body);
  encode({ frame: "start", id: 2 ** 32 - 1, bodyLen, message });
}

/**
 * Splits a message into frames, lazily: each is made when it is asked for, so that a large body is
 * never there twice. `id` tells it apart from other messages under way on this connection.
 */
export function* split(
  id: number,
  message: { type: string },
  body: readonly Uint8Array[] = [],
  room: Room = (byteLen) => new Uint8Array(byteLen),
): Generator<Bytes, void, undefined> {
  const bodyLen = lengthOf(body);
  let header = encode({ frame: "start", id, bodyLen, message });
  let left = bodyLen;
  let at = 0;
  let taken = 0;
  do {
    const carried = Math.min(left, FRAME_BODY_LIMIT);
    const start = bodyStart(header.length);
    const frame = room(start + carried);
    new DataView(frame.buffer, frame.byteOffset).setUint32(0, header.length, true);
    frame.set(header, 4);
    frame.fill(0, 4 + header.length, start);
    for (let filled = 0; filled < carried; ) {
      const piece = body[at] as Uint8Array;
      const part = piece.subarray(taken, taken + carried - filled);
      frame.set(part, start + filled);
      filled += part.length;
      taken += part.length;
      if (taken === piece.length) {
        at += 1;
        taken = 0;
      }
    }
    left -= carried;
    yield frame;
    header = encode({ frame: "rest", id });
  } while (left > 0);
}

/** Puts messages together from frames. The body of a message of one frame is not copied. */
export class Assembler<M> {
  readonly #open = new Map<number, Open<M>>();
  readonly #onNoRoom: ((message: M, bodyLen: number) => void) | undefined;

  /**
   * `onNoRoom` is told of a message whose body does not fit into memory; what follows of it is
   * passed over. Without it such a message breaks the connection, and would do so again and again.
   */
  constructor(onNoRoom?: (message: M, bodyLen: number) => void) {
    this.#onNoRoom = onNoRoom;
  }

  /** Takes a frame, and gives a message when it is whole. */
  push(frame: ArrayBuffer): Received<M> | null {
    const { header, body } = decode<M>(frame);
    return header.frame === "start" ? this.#start(header, body) : this.#rest(header.id, body);
  }

  #start({ id, bodyLen, message }: Start<M>, body: Bytes): Received<M> | null {
    if (bodyLen > BODY_LIMIT) {
      throw new FrameError(`a body of ${bodyLen} bytes passes the limit of ${BODY_LIMIT}`);
    }
    if (this.#open.has(id)) throw new FrameError(`message ${id} began twice`);
    if (body.length > bodyLen) throw overrun(id, bodyLen);
    if (body.length === bodyLen) return { message, body };
    if (body.length < FRAME_BODY_LIMIT) {
      throw new FrameError(
        `the first frame of message ${id} has ${body.length} bytes of body, less than it could`,
      );
    }
    if (this.#open.size >= OPEN_MESSAGES_LIMIT) {
      throw new FrameError(`${OPEN_MESSAGES_LIMIT} messages are under way in parts already`);
    }
    const whole = this.#allocate(message, bodyLen);
    whole?.set(body);
    this.#open.set(id, { message, body: whole, bodyLen, filled: body.length });
    return null;
  }

  /** Memory that was not written to yet costs a browser nothing, so all of it is asked for at once. */
  #allocate(message: M, byteLen: number): Bytes | null {
    try {
      return new Uint8Array(byteLen);
    } catch (error) {
      if (!this.#onNoRoom) {
        throw new FrameError(`there is no memory for a body of ${byteLen} bytes`, { cause: error });
      }
      this.#onNoRoom(message, byteLen);
      return null;
    }
  }

  #rest(id: number, body: Bytes): Received<M> | null {
    const open = this.#open.get(id);
    if (!open) throw new FrameError(`a further frame of message ${id}, which has not begun`);
    if (body.length > open.bodyLen - open.filled) throw overrun(id, open.bodyLen);
    open.body?.set(body, open.filled);
    open.filled += body.length;
    if (open.filled < open.bodyLen) return null;
    this.#open.delete(id);
    return open.body && { message: open.message, body: open.body };
  }
}

/** A message of which frames are still to come. */
interface Open<M> {
  message: M;
  /** Null if there is no memory for it. */
  body: Bytes | null;
  bodyLen: number;
  filled: number;
}

interface Start<M> {
  frame: "start";
  id: number;
  bodyLen: number;
  message: M;
}

type Header<M> = Start<M> | { frame: "rest"; id: number };

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

function encode(header: Header<{ type: string }>): Uint8Array {
  const json = encoder.encode(JSON.stringify(header));
  if (json.length > HEADER_LIMIT) {
    throw new FrameError(`a header of ${json.length} bytes passes the limit of ${HEADER_LIMIT}`);
  }
  return json;
}

function decode<M>(frame: ArrayBuffer): { header: Header<M>; body: Bytes } {
  if (frame.byteLength > FRAME_LIMIT) {
    throw new FrameError(`a frame of ${frame.byteLength} bytes passes the limit of ${FRAME_LIMIT}`);
  }
  const length = frame.byteLength < 4 ? Infinity : new DataView(frame).getUint32(0, true);
  if (length > HEADER_LIMIT || 4 + length > frame.byteLength) {
    throw new FrameError(
      `a header of ${length} bytes passes the limit of ${HEADER_LIMIT}, or the frame's end`,
    );
  }
  const header = parse<M>(new Uint8Array(frame, 4, length));
  const body = new Uint8Array(frame, Math.min(bodyStart(length), frame.byteLength));
  if (body.length > FRAME_BODY_LIMIT) {
    throw new FrameError(
      `a frame with ${body.length} bytes of body; at most ${FRAME_BODY_LIMIT} are allowed`,
    );
  }
  return { header, body };
}

function parse<M>(json: Uint8Array): Header<M> {
  let header: Partial<Start<M>> | null;
  try {
    header = JSON.parse(decoder.decode(json));
  } catch (error) {
    throw new FrameError("the header makes no sense", { cause: error });
  }
  const kind: string | undefined = header?.frame;
  const rest = kind === "rest" && isCount(header?.id, 2 ** 32);
  const start =
    kind === "start" &&
    isCount(header?.id, 2 ** 32) &&
    isCount(header?.bodyLen, Number.MAX_SAFE_INTEGER) &&
    typeof (header?.message as { type?: unknown } | undefined)?.type === "string";
  if (!rest && !start) throw new FrameError("the header makes no sense");
  return header as Header<M>;
}

function isCount(value: unknown, below: number): boolean {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) < below;
}

function lengthOf(body: readonly Uint8Array[]): number {
  const bodyLen = body.reduce((sum, piece) => sum + piece.length, 0);
  if (bodyLen > BODY_LIMIT) {
    throw new FrameError(`a body of ${bodyLen} bytes passes the limit of ${BODY_LIMIT}`);
  }
  return bodyLen;
}

function overrun(id: number, announced: number): FrameError {
  return new FrameError(`message ${id} announced ${announced} bytes of body and sent more`);
}

function bodyStart(headerLength: number): number {
  return Math.ceil((4 + headerLength) / 8) * 8;
}
