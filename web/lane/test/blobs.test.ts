/* Blobs: downloaded once, verified always, kept up to a limit. */

import { createHash } from "node:crypto";
import { beforeEach, describe, expect, test } from "vitest";
import { Blobs } from "#lane/blobs";
import { BlobCache, type BlobStorage, blobLock, noStorage } from "#lane/cache";
import { LocalLocks } from "#lane/locks";
import type { BlobRef } from "#wire/messages";
import { ScriptedClock, settled } from "./scripted.ts";

class MemoryStorage implements BlobStorage {
  readonly kind = "opfs";
  readonly files = new Map<string, Uint8Array<ArrayBuffer>>();
  index: string | null = null;
  full = false;
  roomBytes = Number.POSITIVE_INFINITY;

  async read(name: string, byteLen: number) {
    const bytes = this.files.get(name);
    return bytes?.length === byteLen ? bytes.slice() : null;
  }
  async write(name: string, bytes: Uint8Array<ArrayBuffer>) {
    const used = [...this.files.values()].reduce((sum, file) => sum + file.length, 0);
    if (this.full || used + bytes.length > this.roomBytes) {
      throw new DOMException("full", "QuotaExceededError");
    }
    this.files.set(name, bytes.slice());
  }
  async remove(name: string) {
    this.files.delete(name);
  }
  async has(name: string) {
    return this.files.has(name);
  }
  async list() {
    return [...this.files].map(([name, bytes]) => ({ name, byteLen: bytes.length }));
  }
  async readIndex() {
    return this.index;
  }
  async writeIndex(text: string) {
    this.index = text;
  }
}

/** A server of blobs whose answers a test can change. */
class Server {
  readonly blobs = new Map<string, Uint8Array<ArrayBuffer>>();
  readonly asked: string[] = [];
  keys = new Set<string | null>();
  answer: (name: string) => Promise<Response> = async (name) =>
    new Response(this.blobs.get(name) ?? null, { status: this.blobs.has(name) ? 200 : 404 });

  readonly fetch = ((address: string, init?: RequestInit) => {
    const name = address.replace("/blobs/", "");
    this.asked.push(name);
    this.keys.add(new Headers(init?.headers).get("authorization"));
    init?.signal?.throwIfAborted();
    return this.answer(name);
  }) as typeof fetch;

  add(text: string): BlobRef {
    const bytes = new TextEncoder().encode(text);
    const name = `sha256-${createHash("sha256").update(bytes).digest("hex")}`;
    this.blobs.set(name, bytes);
    return { name, byteLen: bytes.length };
  }
}

let server: Server;
let storage: MemoryStorage;
let locks: LocalLocks;
let clock: ScriptedClock;
let time: number;

beforeEach(() => {
  server = new Server();
  storage = new MemoryStorage();
  locks = new LocalLocks();
  clock = new ScriptedClock();
  time = 1;
});

function lane(
  limitBytes = 1000,
  where: BlobStorage = storage,
  quotaBytes: number | null = null,
): Blobs {
  const cache = new BlobCache(where, locks, quotaBytes, () => time++);
  const blobs = new Blobs({ fetch: server.fetch, cache, locks, clock });
  blobs.admit("key", limitBytes);
  return blobs;
}

function get(blobs: Blobs, wanted: BlobRef[], signal = new AbortController().signal) {
  return blobs.fetch(wanted, signal, () => {});
}

function text(fetched: Awaited<ReturnType<typeof get>>, blob: BlobRef): string {
  return new TextDecoder().decode(fetched.bytes.get(blob.name));
}

describe("getting", () => {
  test("what was downloaded is found by the next lane", async () => {
    const wanted = [server.add("graph"), server.add("weight")];
    const progress: number[] = [];
    const first = await lane().fetch(wanted, new AbortController().signal, (bytes) =>
      progress.push(bytes),
    );
    expect(first.traffic).toEqual({ downloadedBytes: 11, cachedBytes: 0 });
    expect(progress.at(-1)).toBe(11);
    const second = await get(lane(), wanted);
    expect(second.traffic).toEqual({ downloadedBytes: 0, cachedBytes: 11 });
    expect(text(second, wanted[1] as BlobRef)).toBe("weight");
    expect(server.asked).toHaveLength(2);
    expect([...server.keys]).toEqual(["Bearer key"]);
  });

  test("lanes that want the same at the same time download it once", async () => {
    const wanted = [server.add("weight")];
    const [one, other] = await Promise.all([get(lane(), wanted), get(lane(), wanted)]);
    expect(server.asked).toHaveLength(1);
    expect(one.bytes.get(wanted[0]?.name ?? "")).not.toBe(other.bytes.get(wanted[0]?.name ?? ""));
  });

  test("six come at once", async () => {
    const wanted = Array.from({ length: 10 }, (_, at) => server.add(`blob ${at}`));
    const held: (() => void)[] = [];
    const answer = server.answer;
    server.answer = (name) => new Promise((resolve) => held.push(() => resolve(answer(name))));
    const done = get(lane(), wanted);
    await settled();
    expect(server.asked).toHaveLength(6);
    const drain = setInterval(() => held.splice(0).map((give) => give()), 1);
    await done;
    clearInterval(drain);
    expect(server.asked).toHaveLength(10);
  });

  test("without storage it works too", async () => {
    const wanted = [server.add("weight")];
    await get(lane(1000, noStorage), wanted);
    const again = await get(lane(1000, noStorage), wanted);
    expect(again.traffic.downloadedBytes).toBe(6);
  });
});

describe("failures", () => {
  test.each([401, 403, 404])("status %i is the device's, with the blob's name", async (status) => {
    const blob = server.add("weight");
    server.answer = async () => new Response(null, { status });
    await expect(get(lane(), [blob])).rejects.toMatchObject({
      kind: "device",
      message: expect.stringMatching(new RegExp(`${blob.name}.*${status}`)),
    });
    expect(server.asked).toHaveLength(1);
    expect(JSON.parse(storage.index ?? "")).toEqual({});
  });

  test("a network that comes back is enough, however long it takes", async () => {
    const blob = server.add("weight");
    const answer = server.answer;
    let isBack = false;
    server.answer = async (name) => {
      if (!isBack) throw new TypeError("failed to fetch");
      return answer(name);
    };
    const done = get(lane(), [blob]);
    for (let second = 0; second < 60; second += 1) {
      await settled();
      await clock.pass(1000);
    }
    // After 0.1, 0.2, 0.4 … 12.8, 15 and 15 s.
    expect(server.asked).toHaveLength(11);
    isBack = true;
    await settled();
    await clock.pass(15_000);
    expect((await done).traffic.downloadedBytes).toBe(6);
  });

  test("who has had enough need not wait for the next try", async () => {
    const enough = new AbortController();
    server.answer = async () => {
      throw new TypeError("failed to fetch");
    };
    const failed = get(lane(), [server.add("weight")], enough.signal);
    failed.catch(() => {});
    await expect.poll(() => server.asked).toHaveLength(1);
    await settled();
    enough.abort(new Error("enough"));
    await expect(failed).rejects.toThrow("enough");
    expect(server.asked).toHaveLength(1);
  });

  test.each(["weigh", "weights", "WEIGHT"])("other bytes are refused: %s", async (sent) => {
    const blob = server.add("weight");
    server.answer = async () => new Response(sent);
    await expect(get(lane(), [blob])).rejects.toMatchObject({ kind: "device" });
    expect(storage.files.size).toBe(0);
  });

  test("one that fails ends the others", async () => {
    const [one, other] = [server.add("one"), server.add("other")];
    let ended = false;
    const fetch = (async (address: string, init?: RequestInit) => {
      if (address.endsWith(one.name)) return new Response(null, { status: 404 });
      return new Promise<Response>((_, reject) =>
        init?.signal?.addEventListener("abort", () => {
          ended = true;
          reject(new DOMException("aborted", "AbortError"));
        }),
      );
    }) as typeof server.fetch;
    const cache = new BlobCache(storage, locks);
    const failing = new Blobs({ fetch, cache, locks, clock });
    await expect(get(failing, [one, other])).rejects.toMatchObject({ kind: "device" });
    expect(ended).toBe(true);
  });

  test("an abort ends it", async () => {
    const abort = new AbortController();
    server.answer = async () => {
      abort.abort();
      throw new DOMException("aborted", "AbortError");
    };
    const wanted = [server.add("one"), server.add("other")];
    await expect(get(lane(), wanted, abort.signal)).rejects.toThrow("aborted");
    // Each once, and none is tried again.
    expect(server.asked).toHaveLength(2);
  });
});

describe("keeping", () => {
  test.each([
    ["torn", new Uint8Array(3)],
    ["damaged", new TextEncoder().encode("WEIGHT")],
  ])("a %s file is downloaded again and mended", async (_, found) => {
    const blob = server.add("weight");
    await get(lane(), [blob]);
    storage.files.set(blob.name, found as Uint8Array<ArrayBuffer>);
    const again = await get(lane(), [blob]);
    expect(again.traffic.downloadedBytes).toBe(6);
    expect(new TextDecoder().decode(storage.files.get(blob.name))).toBe("weight");
  });

  test("the least recently used goes first", async () => {
    const [a, b, c] = ["aaaa", "bbbb", "cccc"].map((name) => server.add(name)) as [
      BlobRef,
      BlobRef,
      BlobRef,
    ];
    const blobs = lane(8);
    await get(blobs, [a]);
    await get(blobs, [b]);
    await get(blobs, [a]);
    await get(blobs, [c]);
    expect([...storage.files.keys()].sort()).toEqual([a.name, c.name].sort());
    expect(blobs.usedBytes).toBe(8);
  });

  test("one that another lane uses now stays", async () => {
    const [a, b, c] = ["aaaa", "bbbb", "cccc"].map((name) => server.add(name)) as [
      BlobRef,
      BlobRef,
      BlobRef,
    ];
    await get(lane(8), [a]);
    await get(lane(8), [b]);
    await locks.hold(blobLock(a.name), () => get(lane(8), [c]));
    expect([...storage.files.keys()].sort()).toEqual([a.name, c.name].sort());
  });

  test("what does not fit is used without being kept", async () => {
    const blobs = lane(4);
    const large = server.add("too large");
    expect(text(await get(blobs, [large]), large)).toBe("too large");
    expect(storage.files.size).toBe(0);
    expect(blobs.usedBytes).toBe(0);
  });

  test("a full disk fails nothing", async () => {
    storage.full = true;
    const blobs = lane();
    const blob = server.add("weight");
    expect(text(await get(blobs, [blob]), blob)).toBe("weight");
    expect(blobs.usedBytes).toBe(0);
  });

  test("what another lane writes stays known when the load that reserved it is cancelled", async () => {
    const blob = server.add("weight");
    const answer = server.answer;
    const [cancelled, writing] = [new AbortController(), lane()];
    let give = () => {};
    server.answer = (name) =>
      new Promise((resolve, reject) => {
        if (server.asked.length > 1) give = () => resolve(answer(name));
        else cancelled.signal.addEventListener("abort", () => reject(cancelled.signal.reason));
      });
    const first = get(lane(), [blob], cancelled.signal);
    await settled();
    const second = get(writing, [blob]);
    await settled();
    cancelled.abort();
    await expect(first).rejects.toThrow();
    await expect.poll(() => server.asked.length).toBe(2);
    give();
    await second;
    expect([...storage.files.keys()]).toEqual([blob.name]);
    expect(Object.keys(JSON.parse(storage.index ?? ""))).toEqual([blob.name]);
    expect(writing.usedBytes).toBe(6);
  });

  test("what another lane has written stays known when the load that reserved it fails", async () => {
    const [blob, bad] = [server.add("weight"), server.add("bad")];
    const answer = server.answer;
    let fail = () => {};
    server.answer = (name) =>
      name === bad.name
        ? new Promise((resolve) => {
            fail = () => resolve(new Response(null, { status: 404 }));
          })
        : answer(name);
    // Others hold the lock until it is there, so that the first lane never comes to write it.
    const first = await locks.hold(blobLock(blob.name), async () => {
      const loading = get(lane(), [blob, bad]);
      loading.catch(() => {});
      await expect.poll(() => server.asked).toContain(bad.name);
      storage.files.set(blob.name, new TextEncoder().encode("weight"));
      fail();
      await settled();
      return { loading };
    });
    await expect(first.loading).rejects.toMatchObject({ kind: "device" });
    expect(Object.keys(JSON.parse(storage.index ?? ""))).toEqual([blob.name]);
  });

  test("the browser's quota limits too", async () => {
    const [a, b] = [server.add("aaaa"), server.add("bbbb")];
    const blobs = lane(1000, storage, 9);
    await get(blobs, [a]);
    await get(blobs, [b]);
    expect([...storage.files.keys()]).toEqual([b.name]);
  });

  test("where there is less room than was said, older blobs make some", async () => {
    const [a, b, c] = ["aaaa", "bbbb", "cccc"].map((name) => server.add(name)) as [
      BlobRef,
      BlobRef,
      BlobRef,
    ];
    storage.roomBytes = 8;
    const blobs = lane();
    await get(blobs, [a]);
    await get(blobs, [b, c]);
    expect([...storage.files.keys()].sort()).toEqual([b.name, c.name].sort());
    expect(blobs.usedBytes).toBe(8);
  });

  test("an index that was torn is made from the files", async () => {
    const blob = server.add("weight");
    await get(lane(), [blob]);
    storage.index = '{"sha2';
    const cache = new BlobCache(storage, locks);
    await cache.open();
    expect(cache.usedBytes).toBe(6);
    expect((await get(lane(), [blob])).traffic.cachedBytes).toBe(6);
  });
});
