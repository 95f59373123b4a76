/* Waiting that an AbortSignal ends. */

/** What `work` gives, unless the signal is aborted before. The work itself goes on. */
export async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  let stop = () => {};
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason);
  });
  signal.addEventListener("abort", stop, { once: true });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

/** Aborted as soon as one of two is. Older browsers lack `AbortSignal.any`. */
export function eitherSignal(one: AbortSignal, other: AbortSignal): AbortSignal {
  if (AbortSignal.any) return AbortSignal.any([one, other]);
  const either = new AbortController();
  for (const signal of [one, other]) {
    const abort = () => either.abort(signal.reason);
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true, signal: either.signal });
  }
  return either.signal;
}
