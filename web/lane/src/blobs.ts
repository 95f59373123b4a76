/*
 * Segments and weights by their hash: from the browser's cache, or else from Holdfast, and in both
 * cases verified.
 */

import { eitherSignal } from "#lane/abort";
import { type BlobCache, blobLock } from "#lane/cache";
import type { Clock } from "#lane/clock";
import { download } from "#lane/download";
import type { Locks } from "#lane/locks";
import { Places } from "#lane/places";
import { RequestError } from "#lane/request-error";
import type { BlobRef, WeightTraffic } from "#wire/messages";

export interface FetchedBlobs {
  /** By name. The buffers belong to who asked. */
  bytes: Map<string, Uint8Array<ArrayBuffer>>;
  traffic: WeightTraffic;
}

/** Where a lane gets its blobs. */
export interface BlobSource {
  /** Bytes of blobs in the cache. */
  readonly usedBytes: number;
  /** Bytes downloaded so far. */
  readonly downloadedBytes: number;
  /** What a welcome says: what opens the blobs, and how many bytes may be kept. */
  admit(key: string, limitBytes: number): void;
  /** Gets blobs of different names. `onProgress` is told how many of their bytes are there. */
  fetch(
    blobs: BlobRef[],
    signal: AbortSignal,
    onProgress: (doneBytes: number) => void,
  ): Promise<FetchedBlobs>;
}

/** As many as a browser downloads at once from one place over HTTP/1. */
const AT_ONCE = 6;

export interface BlobParts {
  fetch: typeof fetch;
  cache: BlobCache;
  locks: Locks;
  clock: Clock;
}

export class Blobs implements BlobSource {
  downloadedBytes = 0;
  readonly #parts: BlobParts;
  readonly #places = new Places(AT_ONCE);
  #key = "";

  constructor(parts: BlobParts) {
    this.#parts = parts;
  }

  get usedBytes(): number {
    return this.#parts.cache.usedBytes;
  }

  admit(key: string, limitBytes: number): void {
    this.#key = key;
    this.#parts.cache.limitBytes = limitBytes;
  }

  async fetch(
    blobs: BlobRef[],
    signal: AbortSignal,
    onProgress: (doneBytes: number) => void,
  ): Promise<FetchedBlobs> {
    // One that fails ends the others.
    const failed = new AbortController();
    const either = eitherSignal(signal, failed.signal);
    const { writable, absent } = await this.#parts.cache.reserve(blobs);
    const load: Load = { bytes: new Map(), doneBytes: 0, downloadedBytes: 0, unsettled: absent };
    const progress = (more: number) => {
      load.doneBytes += more;
      onProgress(load.doneBytes);
    };
    const all = blobs.map((blob) =>
      this.#places
        .take(() => this.#get(blob, { load, writable, signal: either, progress }), either)
        .catch((error) => {
          failed.abort(error);
          throw error;
        }),
    );
    const results = await Promise.allSettled(all);
    await this.#parts.cache.settle(load.unsettled);
    signal.throwIfAborted();
    if (results.some((result) => result.status === "rejected")) throw failed.signal.reason;
    const cachedBytes = load.doneBytes - load.downloadedBytes;
    return {
      bytes: load.bytes,
      traffic: { downloadedBytes: load.downloadedBytes, cachedBytes },
    };
  }

  /** Whoever holds the lock downloads; others wait and find it in the cache. */
  async #get(blob: BlobRef, job: Job): Promise<void> {
    await this.#parts.locks.hold(
      blobLock(blob.name),
      async () => {
        const bytes = (await this.#fromCache(blob, job)) ?? (await this.#download(blob, job));
        job.load.bytes.set(blob.name, bytes);
      },
      job.signal,
    );
  }

  async #fromCache(
    blob: BlobRef,
    { load, progress }: Job,
  ): Promise<Uint8Array<ArrayBuffer> | null> {
    const { cache } = this.#parts;
    const bytes = await cache.read(blob);
    if (!bytes) return null;
    if (await isGenuine(blob, bytes)) {
      progress(bytes.length);
      return bytes;
    }
    load.unsettled.add(blob);
    await cache.remove(blob.name);
    return null;
  }

  async #download(blob: BlobRef, job: Job): Promise<Uint8Array<ArrayBuffer>> {
    const { cache, clock } = this.#parts;
    const bytes = await download(blob, {
      fetch: this.#parts.fetch,
      clock,
      key: this.#key,
      signal: job.signal,
      onBytes: job.progress,
    });
    if (!(await isGenuine(blob, bytes))) {
      throw new RequestError("device", `${blob.name} arrived with other bytes than its name says`);
    }
    job.load.downloadedBytes += bytes.length;
    this.downloadedBytes += bytes.length;
    if (job.writable.has(blob.name)) {
      job.load.unsettled.add(blob);
      await cache.write(blob.name, bytes, job.writable);
    }
    return bytes;
  }
}

interface Load {
  bytes: Map<string, Uint8Array<ArrayBuffer>>;
  doneBytes: number;
  downloadedBytes: number;
  /** Blobs that the cache has to look at when the load is over. */
  unsettled: Set<BlobRef>;
}

interface Job {
  load: Load;
  writable: Set<string>;
  signal: AbortSignal;
  progress: (more: number) => void;
}

async function isGenuine(blob: BlobRef, bytes: Uint8Array<ArrayBuffer>): Promise<boolean> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const hex = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return `sha256-${hex}` === blob.name;
}
