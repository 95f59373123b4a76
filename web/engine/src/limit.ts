/* Waiting with a limit, for parts of browsers that sometimes never answer. */

/** How long a browser may take to say whether it has something. */
export const PROBE_MS = 10_000;

/** What `work` gives, or a failure after `ms`. */
export async function withLimit<T>(work: Promise<T>, ms: number, what: string): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const over = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} did not answer within ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([work, over]);
  } finally {
    clearTimeout(timer);
  }
}
