/* Where blobs are kept, in a real Chromium. */

import { join } from "node:path";
import { expect, test } from "vitest";
import { runInBrowser } from "../../engine/test/harness.ts";
import type { StorageReport } from "./storage-worker.ts";

const LIMIT_MS = 60_000;

test(
  "files and IndexedDB keep blobs in the same way",
  async () => {
    const here = (name: string) => join(import.meta.dirname, name);
    const scripts = { page: here("storage-page.ts"), worker: here("storage-worker.ts") };
    const reports = await runInBrowser<StorageReport[]>(scripts, { limitMs: LIMIT_MS });
    const expected = {
      large: true,
      wrongSize: true,
      listed: [2, 20_000_001],
      replaced: [4, 5],
      had: [true, false, false],
      removed: true,
      index: [null, '{"an":"index"}'],
      survived: [4, 5],
    };
    expect(reports).toEqual([
      { kind: "opfs", ...expected },
      { kind: "indexed_db", ...expected },
    ]);
  },
  LIMIT_MS + 30_000,
);
