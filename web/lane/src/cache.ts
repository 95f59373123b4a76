/*
 * Blobs kept for the next time, up to a limit: the least recently used go first. An index says what
 * there is and when it was used. It is changed before a file is written and after one is deleted,
 * so it never knows too little; and as every blob is verified when it is read, a file that is torn
 * or missing only means that it is downloaded again.
 */

import type { Locks } from "#lane/locks";
import type { BlobRef, StorageKind } from "#wire/messages";

/** Where files lie. Any of these may fail; nothing depends on them. */
export interface BlobStorage {
  readonly kind: StorageKind;
  /** The bytes, or null if there are none or not that many. */
  read(name: string, byteLen: number): Promise<Uint8Array<ArrayBuffer> | null>;
  write(name: string, bytes: Uint8Array<ArrayBuffer>): Promise<void>;
  remove(name: string): Promise<void>;
  list(): Promise<BlobRef[]>;
  readIndex(): Promise<string | null>;
  writeIndex(text: string): Promise<void>;
}

type Index = Record<string, { byteLen: number; usedAt: number }>;

const INDEX_LOCK = "holdfast-cache-index";

/** Held by whoever reads, writes or deletes the blob. */
export function blobLock(name: string): string {
  return `holdfast-blob-${name}`;
}

export class BlobCache {
  limitBytes = 0;
  readonly #storage: BlobStorage;
  readonly #locks: Locks;
  readonly #wallClock: () => number;
  #usedBytes = 0;

  /** `wallClock` gives milliseconds that mean the same after a restart of the browser. */
  constructor(storage: BlobStorage, locks: Locks, wallClock: () => number = Date.now) {
    this.#storage = storage;
    this.#locks = locks;
    this.#wallClock = wallClock;
  }

  get kind(): StorageKind {
    return this.#storage.kind;
  }

  /** Bytes of all blobs, as of the last look. */
  get usedBytes(): number {
    return this.#usedBytes;
  }

  /** Has a first look at what there is. */
  async open(): Promise<void> {
    await this.#change(() => false);
  }

  /**
   * Notes that these blobs are used now, and makes room for those that are not there. Gives the
   * names of those that may be written, and those among them that have to be.
   */
  async reserve(blobs: BlobRef[]): Promise<{ writable: Set<string>; absent: Set<string> }> {
    const wanted = new Set(blobs.map((blob) => blob.name));
    const writable = new Set<string>();
    const absent = new Set<string>();
    await this.#change(async (index) => {
      for (const { name } of blobs) {
        const entry = index[name];
        if (!entry) continue;
        entry.usedAt = this.#wallClock();
        // Its file may be damaged: who finds it so may write it again.
        writable.add(name);
      }
      for (const { name, byteLen } of blobs) {
        if (index[name] || !(await this.#makeRoom(index, byteLen, wanted))) continue;
        index[name] = { byteLen, usedAt: this.#wallClock() };
        writable.add(name);
        absent.add(name);
      }
      return true;
    });
    return { writable, absent };
  }

  /** The caller holds the blob's lock. */
  async read(blob: BlobRef): Promise<Uint8Array<ArrayBuffer> | null> {
    return this.#storage.read(blob.name, blob.byteLen).catch(() => null);
  }

  /** The caller holds the blob's lock. False if it did not work; then it is not there. */
  async write(name: string, bytes: Uint8Array<ArrayBuffer>): Promise<boolean> {
    try {
      await this.#storage.write(name, bytes);
      return true;
    } catch {
      await this.remove(name);
      return false;
    }
  }

  /** The caller holds the blob's lock. */
  async remove(name: string): Promise<void> {
    await this.#storage.remove(name).catch(() => {});
  }

  /** Takes blobs that could not be written out of the index. */
  async release(names: Set<string>): Promise<void> {
    if (names.size === 0) return;
    await this.#change((index) => {
      for (const name of names) delete index[name];
      return true;
    });
  }

  /** Changes the index, unless `change` says that it did not. No failure gets out. */
  async #change(change: (index: Index) => Promise<boolean> | boolean): Promise<void> {
    if (this.kind === "none") return;
    await this.#locks
      .hold(INDEX_LOCK, async () => {
        const index = await this.#readIndex();
        if (await change(index)) await this.#storage.writeIndex(JSON.stringify(index));
        this.#usedBytes = total(index);
      })
      .catch(() => {});
  }

  async #readIndex(): Promise<Index> {
    const text = await this.#storage.readIndex().catch(() => null);
    try {
      if (text) return JSON.parse(text);
    } catch {
      // Torn by a crash: what there is can be seen, only not when it was used.
    }
    const files = await this.#storage.list();
    return Object.fromEntries(files.map(({ name, byteLen }) => [name, { byteLen, usedAt: 0 }]));
  }

  async #makeRoom(index: Index, byteLen: number, wanted: Set<string>): Promise<boolean> {
    if (byteLen > this.limitBytes) return false;
    const oldestFirst = Object.entries(index)
      .filter(([name]) => !wanted.has(name))
      .sort(([, one], [, other]) => one.usedAt - other.usedAt);
    let used = total(index);
    for (const [name, entry] of oldestFirst) {
      if (used + byteLen <= this.limitBytes) break;
      // One that another lane is reading or writing stays.
      const removed = await this.#locks.tryHold(blobLock(name), async () => {
        await this.remove(name);
        return true;
      });
      if (!removed) continue;
      delete index[name];
      used -= entry.byteLen;
    }
    return used + byteLen <= this.limitBytes;
  }
}

function total(index: Index): number {
  return Object.values(index).reduce((sum, entry) => sum + entry.byteLen, 0);
}

/** For browsers that keep nothing. */
export const noStorage: BlobStorage = {
  kind: "none",
  read: async () => null,
  write: async () => {},
  remove: async () => {},
  list: async () => [],
  readIndex: async () => null,
  writeIndex: async () => {},
};
