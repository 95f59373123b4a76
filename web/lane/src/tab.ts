/*
 * What a tab remembers across reloads, if the browser lets it: its link and its name. Some browsers
 * refuse even to be asked, and the page goes on without.
 */

import { type Link, parseLink } from "#lane/link";

const LINK_KEY = "holdfast-link";
const PAGE_KEY = "holdfast-page";
const CONSENT_KEY = "holdfast-consent";

/** Takes the token out of the address bar if the tab can remember it for a reload. */
export function takeLink(): Link | null {
  const fresh = location.hash.length > 1 && parseLink(location.hash) ? location.hash : null;
  if (fresh && remember(LINK_KEY, fresh)) {
    history.replaceState(null, "", location.pathname + location.search);
  }
  return parseLink(fresh ?? recall(LINK_KEY) ?? "");
}

/** The owner has said that the device may take part, whatever that costs it. */
export function rememberConsent(): void {
  remember(CONSENT_KEY, "yes");
}

/** Whether the owner has said so in this tab. */
export function hasConsent(): boolean {
  return recall(CONSENT_KEY) === "yes";
}

/** The same across reloads, but not in a copy of the tab, which copies the storage too. */
export async function pageId(): Promise<string> {
  const kept = recall(PAGE_KEY);
  if (kept && (await isMine(kept))) {
    return kept;
  }
  const made = crypto.randomUUID();
  remember(PAGE_KEY, made);
  await isMine(made);
  return made;
}

/** Holds a lock with the page's name for as long as the page lives. */
function isMine(page: string): Promise<boolean> {
  if (!navigator.locks) {
    return Promise.resolve(true);
  }
  return new Promise((resolve) => {
    const held = navigator.locks.request(`holdfast-page-${page}`, { ifAvailable: true }, (lock) => {
      resolve(lock !== null);
      return lock && new Promise(() => {});
    });
    held.catch(() => resolve(true));
  });
}

function remember(key: string, value: string): boolean {
  try {
    sessionStorage.setItem(key, value);
    return true;
  } catch {
    return false;
  }
}

function recall(key: string): string | null {
  try {
    return sessionStorage.getItem(key);
  } catch {
    return null;
  }
}
