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

/** Throws if a message cannot be split into frames. */
export function checkSendable(message: { type: string }, body: readonly Bytes[]): void {
  const bodyLen = lengthOf(body);
  encode({ frame: "start", id: 2 ** 32 - 1, bodyLen, apart: FRAME_BODY_LIMIT, message });
}

/** A frame, as messages of a WebSocket between which no other may come. */
export type Frame = readonly [head: Bytes] | readonly [head: Bytes, apart: Bytes];

/** Fewer bytes than this are copied in less time than a message of the WebSocket takes. */
const APART_FROM = 256 * 1024;

/**
 * Splits a message into frames with at most `frameBytes` of the body each. They are made when they
 * are asked for, and large pieces of the body are not copied. `id` tells the message apart from
 * others under way on this connection.
 */
export function* split(
  id: number,
  message: { type: string },
  body: readonly Bytes[] = [],
  frameBytes = FRAME_BODY_LIMIT,
): Generator<Frame, void, undefined> {
  const bodyLen = lengthOf(body);
  const pieces = body.filter((piece) => piece.length > 0);
  const limit = Math.min(Math.max(frameBytes, APART_FROM), FRAME_BODY_LIMIT);
  let isFirst = true;
  do {
    const large = takeLarge(pieces, limit);
    const apart = large?.length ?? 0;
    const header: Header<{ type: string }> = isFirst
      ? { frame: "start", id, bodyLen, ...(large && { apart }), message }
      : { frame: "rest", id, ...(large && { apart }) };
    yield large ? [put(header, []), large] : [put(header, takeSmall(pieces))];
    isFirst = false;
  } while (pieces.length > 0);
}

/** Takes bytes that travel apart off the front, if they are many. */
function takeLarge(pieces: Bytes[], limit: number): Bytes | null {
  const [piece] = pieces;
  if (piece === undefined || piece.length < APART_FROM) {
    return null;
  }
  if (piece.length <= limit) {
    pieces.shift();
  } else {
    pieces[0] = piece.subarray(limit);
  }
  return piece.subarray(0, limit);
}

/** Takes pieces off the front that fit behind a header. */
function takeSmall(pieces: Bytes[]): Bytes[] {
  let room = APART_FROM;
  const count = pieces.findIndex((piece) => {
    room -= piece.length;
    return room < 0;
  });
  return pieces.splice(0, count < 0 ? pieces.length : count);
}

/** Puts a header and the bytes behind it together. */
function put(header: Header<{ type: string }>, behind: Bytes[]): Bytes {
  const json = encode(header);
  let at = bodyStart(json.length);
  const head = new Uint8Array(at + lengthOf(behind));
  new DataView(head.buffer).setUint32(0, json.length, true);
  head.set(json, 4);
  for (const piece of behind) {
    head.set(piece, at);
    at += piece.length;
  }
  return head;
}

/** Puts messages together from frames. The body of a message of one frame is not copied. */
export class Assembler<M> {
  /** The header whose bytes come apart, next. */
  #announced: Header<M> | null = null;
  readonly #open = new Map<number, Open<M>>();
  readonly #onNoRoom: ((message: M, bodyLen: number) => void) | undefined;

  /**
   * `onNoRoom` is told of a message whose body does not fit into memory; what follows of it is
   * passed over. Without it such a message breaks the connection, and would do so again and again.
   */
  constructor(onNoRoom?: (message: M, bodyLen: number) => void) {
    this.#onNoRoom = onNoRoom;
  }

  /** Takes a message of the WebSocket, and gives one of ours when it is whole. */
  push(bytes: ArrayBuffer): Received<M> | null {
    const announced = this.#announced;
    this.#announced = null;
    const { header, body } = announced
      ? { header: announced, body: new Uint8Array(bytes) }
      : decode<M>(bytes);
    const apart = header.apart ?? 0;
    if (apart > FRAME_BODY_LIMIT) {
      throw tooMuchBody(apart);
    }
    const isToCome = !announced && apart > 0;
    if (apart > 0 && body.length !== (isToCome ? 0 : apart)) {
      throw new FrameError(
        `a header announced ${apart} bytes apart, and ${body.length} bytes came`,
      );
    }
    if (isToCome) {
      this.#announced = header;
      return null;
    }
    return header.frame === "start" ? this.#start(header, body) : this.#rest(header.id, body);
  }

  #start({ id, bodyLen, message }: Start<M>, body: Bytes): Received<M> | null {
    if (bodyLen > BODY_LIMIT) {
      throw new FrameError(`a body of ${bodyLen} bytes passes the limit of ${BODY_LIMIT}`);
    }
    if (this.#open.has(id)) {
      throw new FrameError(`message ${id} began twice`);
    }
    if (body.length > bodyLen) {
      throw overrun(id, bodyLen);
    }
    if (body.length === bodyLen) {
      return { message, body };
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
    if (!open) {
      throw new FrameError(`a further frame of message ${id}, which has not begun`);
    }
    if (body.length > open.bodyLen - open.filled) {
      throw overrun(id, open.bodyLen);
    }
    open.body?.set(body, open.filled);
    open.filled += body.length;
    if (open.filled < open.bodyLen) {
      return null;
    }
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
  /** How many bytes of the body come apart. */
  apart?: number;
  message: M;
}

type Header<M> = Start<M> | { frame: "rest"; id: number; apart?: number };

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
    throw tooMuchBody(body.length);
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
  const isNumbered =
    isCount(header?.id, 2 ** 32) && isCount(header?.apart ?? 0, Number.MAX_SAFE_INTEGER);
  const rest = kind === "rest" && isNumbered;
  const start =
    kind === "start" &&
    isNumbered &&
    isCount(header?.bodyLen, Number.MAX_SAFE_INTEGER) &&
    typeof (header?.message as { type?: unknown } | undefined)?.type === "string";
  if (!rest && !start) {
    throw new FrameError("the header makes no sense");
  }
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

function tooMuchBody(byteLen: number): FrameError {
  return new FrameError(
    `a frame with ${byteLen} bytes of body; at most ${FRAME_BODY_LIMIT} are allowed`,
  );
}

function overrun(id: number, announced: number): FrameError {
  return new FrameError(`message ${id} announced ${announced} bytes of body and sent more`);
}

function bodyStart(headerLength: number): number {
  return Math.ceil((4 + headerLength) / 8) * 8;
}
