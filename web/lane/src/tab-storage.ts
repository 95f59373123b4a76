/* What a tab remembers across reloads, if the browser lets it: some refuse even to be asked. */

/** Whether it will be remembered. */
export function remember(key: string, value: string): boolean {
  try {
    sessionStorage.setItem(key, value);
    return true;
  } catch {
    return false;
  }
}

export function recall(key: string): string | null {
  try {
    return sessionStorage.getItem(key);
  } catch {
    return null;
  }
}
