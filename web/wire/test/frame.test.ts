/* Splitting and putting together: the golden frames, and bodies of every size in any mixture. */

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { BodyWriter, bytesOf } from "#wire/body";
import { Assembler, type Bytes, split } from "#wire/frame";
import { FRAME_BODY_LIMIT, FRAME_LIMIT, OPEN_MESSAGES_LIMIT, type ToLane } from "#wire/messages";

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
  const made = [...split(7, message, [fromHex(body)])];
  const received = new Assembler<ToLane>().push((made[0] as Bytes).buffer);
  expect(made).toHaveLength(frames.length);
  expect(received).toEqual({ message, body: fromHex(body) });
  const theirs = new Assembler<ToLane>().push(fromHex(frames[0] as string).buffer);
  expect(theirs).toEqual({ message, body: fromHex(body) });
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

test("a body of one frame is not copied", () => {
  const frame = first(1, [patterned(1000)]);
  const body = new Assembler<ToLane>().push(frame.buffer)?.body;
  expect(body?.buffer).toBe(frame.buffer);
  expect((body?.byteOffset ?? 1) % 8).toBe(0);
});

test.each([
  [[]],
  [[0]],
  [[1, 2, 3]],
  [[FRAME_BODY_LIMIT]],
  [[FRAME_BODY_LIMIT - 1, 0, 2]],
  [[3_000_000, 7, 3_000_000, 2_999_999]],
])("what is split comes together: %j", (lengths) => {
  const pieces = lengths.map(patterned);
  const assembler = new Assembler<ToLane>();
  const frames = [...split(9, ping(1), pieces)];
  const received = frames.map((frame) => {
    expect(frame.length).toBeLessThanOrEqual(FRAME_LIMIT);
    return assembler.push(frame.buffer);
  });
  expect(received.slice(0, -1).every((message) => message === null)).toBe(true);
  expect(received.at(-1)?.message).toEqual(ping(1));
  expect(Buffer.compare(received.at(-1)?.body ?? patterned(1), Buffer.concat(pieces))).toBe(0);
});

test("frames can be put together in the same place, one after the other", () => {
  const used = patterned(FRAME_LIMIT);
  const body = [patterned(FRAME_BODY_LIMIT + 3)];
  const again = split(1, ping(1), body, (byteLen) => used.subarray(0, byteLen));
  for (const frame of split(1, ping(1), body)) {
    expect(Buffer.compare(again.next().value as Bytes, frame)).toBe(0);
  }
  expect(again.next().done).toBe(true);
});

test("mixed messages come apart again", () => {
  const bodies = [patterned(FRAME_BODY_LIMIT * 2 + 5), patterned(FRAME_BODY_LIMIT + 1)];
  const [one, other] = bodies.map((body, at) => split(at, ping(at), [body]));
  const assembler = new Assembler<ToLane>();
  const next = (frames?: Generator<Bytes, void>) => {
    const frame = frames?.next().value;
    return frame ? assembler.push(frame.buffer) : undefined;
  };
  expect(next(one)).toBeNull();
  expect(next(other)).toBeNull();
  expect(assembler.push(first(3).buffer)?.message).toEqual(ping(3));
  expect(next(one)).toBeNull();
  expect(next(other)?.message).toEqual(ping(1));
  expect(next(one)?.message).toEqual(ping(0));
  expect(next(one)).toBeUndefined();
});

describe("limits", () => {
  const long = [patterned(FRAME_BODY_LIMIT + 1)];

  test("a message cannot begin twice", () => {
    const assembler = new Assembler<ToLane>();
    assembler.push(first(1, long).buffer);
    expect(() => assembler.push(first(1, long).buffer)).toThrow("began twice");
  });

  test("only so many messages may be open", () => {
    const assembler = new Assembler<ToLane>();
    const empty = new Uint8Array(FRAME_BODY_LIMIT + 1);
    const open = (id: number) => assembler.push(first(id, [empty]).buffer.slice(0));
    // The bodies are never written to, so they take no memory.
    for (let id = 0; id < OPEN_MESSAGES_LIMIT; id += 1) {
      open(id);
    }
    expect(() => open(OPEN_MESSAGES_LIMIT)).toThrow("under way in parts");
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

function first(id: number, body: Uint8Array[] = []): Bytes {
  return split(id, ping(id), body).next().value as Bytes;
}

function patterned(length: number): Bytes {
  return new Uint8Array(length).map((_, at) => at % 251);
}

function fromHex(hex: string): Bytes {
  return new Uint8Array(Buffer.from(hex, "hex"));
}
