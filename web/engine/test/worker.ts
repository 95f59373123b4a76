/*
 * The worker of the browser tests: one engine, and the cases it is asked to run on it.
 */

import type { Backend } from "#wire/messages";
import { CASES, type CaseResult } from "./cases.ts";
import { Fixture } from "./fixture.ts";

self.onmessage = async ({ data }: MessageEvent<{ backend: Backend; names: string[] }>) => {
  const results: CaseResult[] = [];
  const cases = CASES.filter((each) => data.names.includes(each.name));
  if (cases.some((each) => each.withoutJspi)) {
    Reflect.deleteProperty(WebAssembly, "Suspending");
  }
  const limit = cases.find((each) => each.heapLimitBytes)?.heapLimitBytes;
  if (limit !== undefined) {
    limitHeap(limit);
  }
  const fixture = await Fixture.start(data.backend).catch((error: unknown) => error);
  for (const { name, run } of cases) {
    let error: string | null = null;
    try {
      if (!(fixture instanceof Fixture)) {
        throw fixture;
      }
      await run(fixture);
    } catch (thrown) {
      error =
        thrown instanceof Error
          ? `${thrown.name}: ${thrown.message}\n${thrown.stack}`
          : String(thrown);
    }
    results.push({ backend: data.backend, name, error });
  }
  self.postMessage(results);
};

function limitHeap(byteLen: number): void {
  const { Memory } = WebAssembly;
  WebAssembly.Memory = class extends Memory {
    constructor(descriptor: WebAssembly.MemoryDescriptor) {
      super({ ...descriptor, maximum: byteLen / 2 ** 16 });
    }
  };
}
