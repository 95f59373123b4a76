/*
 * Firefox looks after what its GPU has finished only when it is given work, or every tenth of a
 * second: without work, each wait for a result takes that long. So it is given empty work meanwhile.
 */

/** Often enough to cost no time, seldom enough to cost no processor. */
const EVERY_MS = 1;

/** Does `work`, and pokes the queue until it is done. `needed` is for tests. */
export async function poked<T>(
  queue: Pick<GPUQueue, "submit">,
  work: () => Promise<T>,
  needed: boolean = isNeeded,
): Promise<T> {
  if (!needed) {
    return work();
  }
  const timer = setInterval(() => queue.submit([]), EVERY_MS);
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}

/** Not told by trying: a slow GPU and one that is not looked after take the same time. */
const isNeeded = /\bFirefox\//.test(globalThis.navigator?.userAgent ?? "");
