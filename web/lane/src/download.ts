/*
 * Downloads one blob, streamed into a buffer of the known size. When the network fails it is tried
 * again until the one who asked has had enough: only he knows how long it is worth waiting.
 */

import { unlessAborted } from "#lane/abort";
import { backOffMs, type Clock } from "#lane/clock";
import { RequestError } from "#lane/request-error";
import type { BlobRef } from "#wire/messages";

export interface Download {
  fetch: typeof fetch;
  clock: Clock;
  key: string;
  signal: AbortSignal;
  /** Told how many bytes more there are; less than none when it starts again. */
  onBytes: (more: number) => void;
}

export async function download(blob: BlobRef, options: Download): Promise<Uint8Array<ArrayBuffer>> {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await downloadOnce(blob, options);
    } catch (error) {
      options.signal.throwIfAborted();
      if (error instanceof RequestError) throw error;
      await pause(backOffMs(attempt, options.clock), options);
    }
  }
}

async function pause(ms: number, { clock, signal }: Download): Promise<void> {
  let stop = () => {};
  const over = new Promise<void>((resolve) => {
    stop = clock.after(ms, resolve);
  });
  await unlessAborted(over, signal).finally(stop);
}

async function downloadOnce(blob: BlobRef, options: Download): Promise<Uint8Array<ArrayBuffer>> {
  const response = await options.fetch(`/blobs/${blob.name}`, {
    headers: { authorization: `Bearer ${options.key}` },
    signal: options.signal,
    // The blob has a place of its own; a second copy in the browser's cache would be waste.
    cache: "no-store",
    credentials: "omit",
  });
  if (!response.ok) {
    await response.body?.cancel();
    if (response.status >= 500) throw new Error(`the server answered ${response.status}`);
    throw new RequestError("device", `${blob.name}: the server answered ${response.status}`);
  }
  const bytes = allocate(blob);
  let filled = 0;
  try {
    for await (const chunk of chunks(response)) {
      if (filled + chunk.length > bytes.length) throw wrongSize(blob, "more");
      bytes.set(chunk, filled);
      filled += chunk.length;
      options.onBytes(chunk.length);
    }
    if (filled < bytes.length) throw wrongSize(blob, "fewer");
    return bytes;
  } catch (error) {
    options.onBytes(-filled);
    throw error;
  }
}

async function* chunks(response: Response): AsyncGenerator<Uint8Array> {
  const reader = response.body?.getReader();
  if (!reader) return;
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value;
  } finally {
    await reader.cancel().catch(() => {});
  }
}

function allocate(blob: BlobRef): Uint8Array<ArrayBuffer> {
  try {
    return new Uint8Array(blob.byteLen);
  } catch {
    throw new RequestError("memory", `no memory for ${blob.name} of ${blob.byteLen} bytes`);
  }
}

function wrongSize(blob: BlobRef, how: string): RequestError {
  return new RequestError("device", `${blob.name} has ${how} bytes than the ${blob.byteLen} told`);
}
