/* Blobs as files of the origin's private file system, through the handles that only workers have. */

import type { BlobStorage } from "#lane/cache";
import type { BlobRef } from "#wire/messages";

const FOLDER = "holdfast-blobs";
const INDEX = "index.json";
/** Reading and writing block the worker; between such pieces it answers pings. */
const PIECE_BYTES = 8 * 1024 * 1024;

/** Fails where the browser has no such file system, or does not let it be used. */
export async function openOpfs(): Promise<BlobStorage> {
  const root = await navigator.storage.getDirectory();
  const folder = await root.getDirectoryHandle(FOLDER, { create: true });
  if (!("createSyncAccessHandle" in FileSystemFileHandle.prototype)) {
    throw new Error("files can be written only through streams here");
  }
  return new OpfsStorage(folder);
}

class OpfsStorage implements BlobStorage {
  readonly kind = "opfs";
  readonly #folder: FileSystemDirectoryHandle;

  constructor(folder: FileSystemDirectoryHandle) {
    this.#folder = folder;
  }

  read(name: string, byteLen: number): Promise<Uint8Array<ArrayBuffer> | null> {
    return this.#with(name, false, async (file) => {
      if (file.getSize() !== byteLen) return null;
      const bytes = new Uint8Array(byteLen);
      let read = 0;
      while (read < byteLen) {
        const piece = file.read(bytes.subarray(read, read + PIECE_BYTES), { at: read });
        if (piece === 0) return null;
        read += piece;
        if (read < byteLen) await breathe();
      }
      return bytes;
    });
  }

  async write(name: string, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    await this.#with(name, true, async (file) => {
      file.truncate(0);
      for (let at = 0; at < bytes.length; at += PIECE_BYTES) {
        const piece = bytes.subarray(at, at + PIECE_BYTES);
        const written = file.write(piece, { at });
        if (written < piece.length) throw new DOMException("no room", "QuotaExceededError");
        if (at + PIECE_BYTES < bytes.length) await breathe();
      }
      file.flush();
    });
  }

  async remove(name: string): Promise<void> {
    await this.#folder.removeEntry(name);
  }

  async has(name: string): Promise<boolean> {
    return this.#folder.getFileHandle(name).then(
      () => true,
      () => false,
    );
  }

  async list(): Promise<BlobRef[]> {
    const blobs: BlobRef[] = [];
    for await (const [name, handle] of this.#folder.entries()) {
      if (handle.kind !== "file" || name === INDEX) continue;
      blobs.push({ name, byteLen: (await (handle as FileSystemFileHandle).getFile()).size });
    }
    return blobs;
  }

  async readIndex(): Promise<string | null> {
    return this.#with(INDEX, false, async (file) => {
      const bytes = new Uint8Array(file.getSize());
      file.read(bytes, { at: 0 });
      return new TextDecoder().decode(bytes);
    });
  }

  async writeIndex(text: string): Promise<void> {
    await this.#with(INDEX, true, async (file) => {
      file.truncate(0);
      file.write(new TextEncoder().encode(text), { at: 0 });
      file.flush();
    });
  }

  async #with<T>(
    name: string,
    create: boolean,
    work: (file: FileSystemSyncAccessHandle) => Promise<T>,
  ): Promise<T> {
    const handle = await this.#folder.getFileHandle(name, { create });
    const file = await handle.createSyncAccessHandle();
    try {
      return await work(file);
    } finally {
      file.close();
    }
  }
}

function breathe(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve));
}
