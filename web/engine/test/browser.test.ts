/*
 * The engine in a real Chromium, on every backend.
 */

import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { BACKENDS, CASES, type CaseResult } from "./cases.ts";
import { runInBrowser } from "./harness.ts";

const LIMIT_MS = 240_000;
let results: CaseResult[] = [];

beforeAll(async () => {
  const here = (name: string) => join(import.meta.dirname, name);
  const scripts = { page: here("page.ts"), worker: here("worker.ts") };
  results = await runInBrowser<CaseResult[]>(scripts, { limitMs: LIMIT_MS });
}, LIMIT_MS + 60_000);

describe.each(BACKENDS)("the engine on %s", (backend) => {
  const cases = CASES.filter((each) => each.backends?.includes(backend) ?? true);
  it.each(cases.map((each) => each.name))("%s", (name) => {
    const result = results.find((each) => each.backend === backend && each.name === name);
    expect(result).toEqual({ backend, name, error: null });
  });
});
