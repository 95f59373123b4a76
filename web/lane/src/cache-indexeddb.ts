/* Blobs in IndexedDB, for browsers without a private file system. */

import type { BlobStorage } from "#lane/cache";
import type { BlobRef } from "#wire/messages";

const DATABASE = "holdfast";
const BLOBS = "blobs";
const INDEX = "index";

/** Fails where the browser does not let it be used. */
export async function openIndexedDb(): Promise<BlobStorage> {
  const opening = indexedDB.open(DATABASE, 1);
  opening.onupgradeneeded = () => {
    opening.result.createObjectStore(BLOBS);
    opening.result.createObjectStore(INDEX);
  };
  const database = await answerOf(opening);
  // A later version of the page must not wait for this one.
  database.onversionchange = () => database.close();
  return new IndexedDbStorage(database);
}

class IndexedDbStorage implements BlobStorage {
  readonly kind = "indexed_db";
  readonly #database: IDBDatabase;

  constructor(database: IDBDatabase) {
    this.#database = database;
  }

  async read(name: string, byteLen: number): Promise<Uint8Array<ArrayBuffer> | null> {
    const found = await answerOf(this.#store(BLOBS, "readonly").get(name));
    return found instanceof Uint8Array && found.length === byteLen
      ? (found as Uint8Array<ArrayBuffer>)
      : null;
  }

  async write(name: string, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    await this.#changed(BLOBS, (store) => store.put(bytes, name));
  }

  async remove(name: string): Promise<void> {
    await this.#changed(BLOBS, (store) => store.delete(name));
  }

  async has(name: string): Promise<boolean> {
    return (await answerOf(this.#store(BLOBS, "readonly").count(name))) > 0;
  }

  async list(): Promise<BlobRef[]> {
    const names = await answerOf(this.#store(BLOBS, "readonly").getAllKeys());
    const blobs: BlobRef[] = [];
    for (const name of names.map(String)) {
      // One at a time: all of them together may not fit into memory.
      const found = await answerOf(this.#store(BLOBS, "readonly").get(name));
      blobs.push({ name, byteLen: found instanceof Uint8Array ? found.length : 0 });
    }
    return blobs;
  }

  async readIndex(): Promise<string | null> {
    return (await answerOf(this.#store(INDEX, "readonly").get(INDEX))) ?? null;
  }

  async writeIndex(text: string): Promise<void> {
    await this.#changed(INDEX, (store) => store.put(text, INDEX));
  }

  #store(name: string, mode: IDBTransactionMode): IDBObjectStore {
    return this.#database.transaction(name, mode).objectStore(name);
  }

  /** What is written counts when the transaction is complete: that is where a full disk shows. */
  #changed(name: string, change: (store: IDBObjectStore) => IDBRequest): Promise<void> {
    const store = this.#store(name, "readwrite");
    change(store);
    return new Promise((resolve, reject) => {
      store.transaction.oncomplete = () => resolve();
      store.transaction.onabort = () => reject(store.transaction.error);
      store.transaction.onerror = () => reject(store.transaction.error);
    });
  }
}

function answerOf<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
