/* The storages in a real browser: each has to behave the same. */

import type { BlobStorage } from "#lane/cache";
import { openIndexedDb } from "#lane/cache-indexeddb";
import { openOpfs } from "#lane/cache-opfs";

export interface StorageReport {
  kind: string;
  large: boolean;
  wrongSize: boolean;
  listed: number[];
  replaced: number[] | undefined;
  had: boolean[];
  removed: boolean;
  index: (string | null)[];
  survived: number[] | undefined;
}

self.onmessage = async () => {
  const reports = [];
  for (const open of [openOpfs, openIndexedDb]) reports.push(await report(open));
  self.postMessage(reports);
};

async function report(open: () => Promise<BlobStorage>): Promise<StorageReport> {
  const storage = await open();
  const large = new Uint8Array(20_000_001).fill(7);
  large[20_000_000] = 9;
  await storage.write("large", large);
  await storage.write("small", new Uint8Array([1, 2, 3]));
  const read = await storage.read("large", large.length);
  const indexBefore = await storage.readIndex().catch(() => null);
  await storage.writeIndex('{"a longer":"index"}');
  await storage.writeIndex('{"an":"index"}');
  const wrongSize = (await storage.read("small", 4)) === null;
  await storage.write("small", new Uint8Array([4, 5]));
  const replaced = await storage.read("small", 2);
  const listed = (await storage.list()).map(({ byteLen }) => byteLen).sort((a, b) => a - b);
  const had = [await storage.has("large"), await storage.has("other")];
  await storage.remove("large");
  const removed = (await storage.read("large", large.length).catch(() => null)) === null;
  const again = await open();
  return {
    kind: storage.kind,
    large: read?.length === large.length && read.every((byte, at) => byte === large[at]),
    wrongSize,
    listed,
    replaced: replaced ? [...replaced] : undefined,
    had: [...had, await storage.has("large")],
    removed,
    index: [indexBefore, await again.readIndex()],
    survived: [...((await again.read("small", 2)) ?? [])],
  };
}
