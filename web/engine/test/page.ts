/*
 * The page of the browser tests: starts workers for the cases one after the other and reports what
 * became of each.
 */

import { BACKENDS, CASES, type CaseResult } from "./cases.ts";

const results: CaseResult[] = [];
for (const backend of BACKENDS) {
  const cases = CASES.filter((each) => each.backends?.includes(backend) ?? true);
  const together = cases.filter((each) => !each.alone).map((each) => each.name);
  const alone = cases.filter((each) => each.alone).map((each) => [each.name]);
  for (const names of [together, ...alone]) {
    results.push(...(await runInWorker(backend, names)));
  }
}
await fetch("/report", { method: "POST", body: JSON.stringify(results) });

function runInWorker(backend: string, names: string[]): Promise<CaseResult[]> {
  return new Promise((resolve) => {
    const worker = new Worker("/worker.js", { type: "module" });
    const finish = (results: CaseResult[]) => {
      worker.terminate();
      resolve(results);
    };
    const failAll = (error: string) => finish(names.map((name) => ({ backend, name, error })));
    worker.onmessage = ({ data }) => finish(data);
    worker.onerror = (event) => failAll(event.message || "the worker could not start");
    worker.postMessage({ backend, names });
  });
}
