/*
 * Blobs kept for the next time, up to a limit: the least recently used go first. An index says what
 * there is and when it was used. It is changed before a file is written and set right by what there
 * is afterwards, so it does not know too little for long; and as every blob is verified when it is
 * read, a file that is torn or missing only means that it is downloaded again.
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
  has(name: string): Promise<boolean>;
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

/** Of what the browser gives, the part that blobs may take: other data of the page lies there too. */
const QUOTA_PART = 0.8;

export class BlobCache {
  readonly #storage: BlobStorage;
  readonly #locks: Locks;
  readonly #quotaBytes: number;
  readonly #wallClock: () => number;
  #limitBytes = 0;
  #usedBytes = 0;

  /**
   * `quotaBytes` is what the browser gives, if it says. `wallClock` gives milliseconds that mean the
   * same after a restart of the browser.
   */
  constructor(
    storage: BlobStorage,
    locks: Locks,
    quotaBytes: number | null = null,
    wallClock: () => number = Date.now,
  ) {
    this.#storage = storage;
    this.#locks = locks;
    this.#quotaBytes = quotaBytes ?? Number.POSITIVE_INFINITY;
    this.#wallClock = wallClock;
  }

  get kind(): StorageKind {
    return this.#storage.kind;
  }

  set limitBytes(limitBytes: number) {
    this.#limitBytes = Math.min(limitBytes, QUOTA_PART * this.#quotaBytes);
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
   * names of those that may be written, and those among them that are to be settled afterwards.
   */
  async reserve(blobs: BlobRef[]): Promise<{ writable: Set<string>; absent: Set<BlobRef> }> {
    const wanted = new Set(blobs.map((blob) => blob.name));
    const writable = new Set<string>();
    const absent = new Set<BlobRef>();
    await this.#change(async (index) => {
      for (const { name } of blobs) {
        const entry = index[name];
        if (!entry) continue;
        entry.usedAt = this.#wallClock();
        // Its file may be damaged: who finds it so may write it again.
        writable.add(name);
      }
      for (const blob of blobs) {
        const { name, byteLen } = blob;
        if (index[name] || !(await this.#makeRoom(index, byteLen, wanted))) continue;
        index[name] = { byteLen, usedAt: this.#wallClock() };
        writable.add(name);
        absent.add(blob);
      }
      return true;
    });
    return { writable, absent };
  }

  /** The caller holds the blob's lock. */
  async read(blob: BlobRef): Promise<Uint8Array<ArrayBuffer> | null> {
    return this.#storage.read(blob.name, blob.byteLen).catch(() => null);
  }

  /**
   * The caller holds the blob's lock. If it does not work it is not there. Where the browser has
   * less room than it said, others make some, except for those to `keep`.
   */
  async write(
    name: string,
    bytes: Uint8Array<ArrayBuffer>,
    keep: ReadonlySet<string>,
  ): Promise<void> {
    try {
      await this.#storage.write(name, bytes).catch(async (error) => {
        if (error?.name !== "QuotaExceededError") throw error;
        await this.#change(async (index) => (await this.#evict(index, bytes.length, keep)) > 0);
        await this.#storage.write(name, bytes);
      });
    } catch {
      await this.remove(name);
    }
  }

  /** The caller holds the blob's lock. */
  async remove(name: string): Promise<void> {
    await this.#storage.remove(name).catch(() => {});
  }

  /**
   * Notes which of these blobs are there. Who reserved one need not have written it, and another
   * lane may have: so it is looked at.
   */
  async settle(blobs: Iterable<BlobRef>): Promise<void> {
    const all = [...blobs];
    if (all.length === 0) return;
    await this.#change(async (index) => {
      for (const { name, byteLen } of all) {
        const isThere = await this.#storage.has(name).catch(() => false);
        if (isThere) index[name] ??= { byteLen, usedAt: this.#wallClock() };
        else delete index[name];
      }
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

  async #makeRoom(index: Index, byteLen: number, keep: ReadonlySet<string>): Promise<boolean> {
    if (byteLen > this.#limitBytes) return false;
    const lacking = total(index) + byteLen - this.#limitBytes;
    return (await this.#evict(index, lacking, keep)) >= lacking;
  }

  /** Lets go of the least recently used until so many bytes are free. Gives how many are. */
  async #evict(index: Index, byteLen: number, keep: ReadonlySet<string>): Promise<number> {
    const oldestFirst = Object.entries(index)
      .filter(([name]) => !keep.has(name))
      .sort(([, one], [, other]) => one.usedAt - other.usedAt);
    let freed = 0;
    for (const [name, entry] of oldestFirst) {
      if (freed >= byteLen) break;
      // One that another lane is reading or writing stays.
      const removed = await this.#locks.tryHold(blobLock(name), async () => {
        await this.remove(name);
        return true;
      });
      if (!removed) continue;
      delete index[name];
      freed += entry.byteLen;
    }
    return freed;
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
  has: async () => false,
  list: async () => [],
  readIndex: async () => null,
  writeIndex: async () => {},
};
