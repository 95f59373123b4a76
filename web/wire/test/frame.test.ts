/* Splitting and putting together: the golden frames, and bodies of every size in any mixture. */

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { BodyWriter, bytesOf } from "#wire/body";
import { Assembler, type Bytes, type Frame, type Received, split } from "#wire/frame";
import { FRAME_LIMIT, OPEN_MESSAGES_LIMIT, type ToLane } from "#wire/messages";

/** Smaller frames than the largest, so that tests need no large bodies. */
const FRAME_BYTES = 300_000;

interface Golden {
  message: { type: string };
  body: string;
  frames: string[];
}

const golden: {
  to_lane: Golden[];
  from_lane: Golden[];
  refused: { why: string; frames: string[] }[];
} = JSON.parse(readFileSync(new URL("../../../spec/wire/golden.json", import.meta.url), "utf8"));

const cases = [...golden.to_lane, ...golden.from_lane].map(
  (one) => [one.message.type, one] as const,
);

test.each(cases)("%s is these bytes", (_, { message, body, frames }) => {
  const made = [...split(7, message, [fromHex(body)])].flat();
  expect(made).toHaveLength(frames.length);
  expect(pushAll(made)).toEqual({ message, body: fromHex(body) });
  expect(pushAll(frames.map(fromHex))).toEqual({ message, body: fromHex(body) });
});

test.each(golden.refused.map((one) => [one.why, one.frames] as const))(
  "refuses: %s",
  (_, frames) => {
    const assembler = new Assembler<ToLane>();
    const last = frames.map(fromHex).at(-1) as Bytes;
    for (const frame of frames.slice(0, -1)) {
      assembler.push(fromHex(frame).buffer);
    }
    expect(() => assembler.push(last.buffer)).toThrow();
  },
);

test("a small body travels behind its header and is not copied when it arrives", () => {
  const [head, apart] = first(1, [patterned(1000)]);
  const body = new Assembler<ToLane>().push(head.buffer)?.body;
  expect(apart).toBeUndefined();
  expect(body?.buffer).toBe(head.buffer);
  expect((body?.byteOffset ?? 1) % 8).toBe(0);
});

test("a large body travels apart and is not copied on either side", () => {
  const sent = patterned(2 ** 20);
  const [head, apart] = first(1, [sent]);
  const assembler = new Assembler<ToLane>();
  expect(assembler.push(head.buffer)).toBeNull();
  expect(apart?.buffer).toBe(sent.buffer);
  expect(assembler.push(sent.buffer)?.body.buffer).toBe(sent.buffer);
});

test.each([
  [[]],
  [[0]],
  [[1, 2, 3]],
  [[FRAME_BYTES]],
  [[FRAME_BYTES - 1, 0, 2]],
  [[100_000, 100_000, 100_000]],
  [[900_000, 7, 900_000, 299_999]],
])("what is split comes together: %j", (lengths) => {
  const pieces = lengths.map(patterned);
  const frames = [...split(9, ping(1), pieces, FRAME_BYTES)];
  for (const frame of frames) {
    expect(frame[1]?.length ?? 0).toBeLessThanOrEqual(FRAME_BYTES);
  }
  const received = pushAll(frames.flat());
  expect(received?.message).toEqual(ping(1));
  expect(Buffer.compare(received?.body ?? patterned(1), Buffer.concat(pieces))).toBe(0);
});

test("mixed messages come apart again", () => {
  const bodies = [patterned(FRAME_BYTES * 2 + 5), patterned(FRAME_BYTES + 1)];
  const [one, other] = bodies.map((body, at) => split(at, ping(at), [body], FRAME_BYTES));
  const assembler = new Assembler<ToLane>();
  const next = (frames?: Generator<Frame, void>) => {
    const frame = frames?.next().value;
    return frame && pushAll(frame, assembler);
  };
  expect(next(one)).toBeNull();
  expect(next(other)).toBeNull();
  expect(pushAll(first(3), assembler)?.message).toEqual(ping(3));
  expect(next(one)).toBeNull();
  expect(next(other)?.message).toEqual(ping(1));
  expect(next(one)?.message).toEqual(ping(0));
  expect(next(one)).toBeUndefined();
});

describe("limits", () => {
  const long = [patterned(FRAME_BYTES + 1)];

  test("a message cannot begin twice", () => {
    const assembler = new Assembler<ToLane>();
    pushAll(first(1, long, FRAME_BYTES), assembler);
    expect(() => pushAll(first(1, long, FRAME_BYTES), assembler)).toThrow("began twice");
  });

  test("only so many messages may be open", () => {
    const assembler = new Assembler<ToLane>();
    for (let id = 0; id < OPEN_MESSAGES_LIMIT; id += 1) {
      pushAll(first(id, long, FRAME_BYTES), assembler);
    }
    expect(() => pushAll(first(OPEN_MESSAGES_LIMIT, long, FRAME_BYTES), assembler)).toThrow(
      "under way in parts",
    );
  });

  test("nothing comes between a header and its bytes", () => {
    const assembler = new Assembler<ToLane>();
    assembler.push(first(1, long, FRAME_BYTES)[0].buffer);
    expect(() => assembler.push(first(2)[0].buffer)).toThrow("apart");
  });

  test("a frame over the limit is refused", () => {
    expect(() => new Assembler().push(new ArrayBuffer(FRAME_LIMIT + 1))).toThrow("limit");
  });

  test("a header over the limit is not made", () => {
    const message = { type: "ping", filler: "x".repeat(2 ** 20) };
    expect(() => [...split(1, message)]).toThrow("limit");
  });
});

test("tensors lie at multiples of 8, and outside of the body nowhere", () => {
  const writer = new BodyWriter();
  const slices = [3, 8, 0, 5].map((length) =>
    writer.push({ dtype: "u8", dims: [length], bytes: patterned(length) }),
  );
  expect(slices.map((slice) => slice.offset)).toEqual([0, 8, 16, 16]);
  const body = new Uint8Array(Buffer.concat(writer.pieces));
  expect(body.length).toBe(writer.byteLen);
  for (const slice of slices) {
    expect(bytesOf(slice, body)).toEqual(patterned(slice.byteLen));
  }
  const outside = { dtype: "u8", dims: [], offset: 16, byteLen: 6 };
  expect(bytesOf(outside, body)).toBeNull();
  expect(bytesOf({ ...outside, offset: 4 }, body)).toBeNull();
  expect(bytesOf({ ...outside, offset: -8 }, body)).toBeNull();
});

function ping(nonce: number): ToLane {
  return { type: "ping", nonce };
}

function first(id: number, body: Bytes[] = [], frameBytes?: number): Frame {
  return split(id, ping(id), body, frameBytes).next().value as Frame;
}

/** What an assembler makes of these, the last of which has to make a message whole if any does. */
function pushAll(messages: readonly Bytes[], assembler = new Assembler<ToLane>()) {
  let received: Received<ToLane> | null = null;
  for (const bytes of messages) {
    expect(received).toBeNull();
    received = assembler.push(bytes.slice().buffer);
  }
  return received;
}

function patterned(length: number): Bytes {
  return new Uint8Array(length).map((_, at) => at % 251);
}

function fromHex(hex: string): Bytes {
  return new Uint8Array(Buffer.from(hex, "hex"));
}
