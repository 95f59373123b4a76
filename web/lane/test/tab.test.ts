/* What a tab remembers, and that it goes on where the browser lets it remember nothing. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { pageId, takeLink } from "#lane/tab";

const LINK = { token: "abc", lanes: null, threads: null, page: null };
let address = { hash: "#token=abc", pathname: "/join", search: "" };

beforeEach(() => {
  address = { hash: "#token=abc", pathname: "/join", search: "" };
  vi.stubGlobal("location", address);
  vi.stubGlobal("history", {
    replaceState: () => {
      address.hash = "";
    },
  });
});

afterEach(() => {
  vi.unstubAllGlobals();
});

function withStorage(): void {
  const kept = new Map<string, string>();
  vi.stubGlobal("sessionStorage", {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => kept.set(key, value),
  });
}

function withoutStorage(): void {
  const denied = new Proxy({}, { get: () => () => deny() });
  vi.stubGlobal("sessionStorage", denied);
}

function deny(): never {
  throw new DOMException("denied", "SecurityError");
}

function withLocks(request: (taken: (lock: object | null) => unknown) => Promise<unknown>): void {
  const locks = { request: (_: string, __: unknown, taken: never) => request(taken) };
  vi.stubGlobal("navigator", { locks });
}

test("the token leaves the address bar and is there after a reload", () => {
  withStorage();
  expect(takeLink()).toEqual(LINK);
  expect(address.hash).toBe("");
  expect(takeLink()).toEqual(LINK);
});

test("a token that cannot be remembered stays in the address bar", () => {
  withoutStorage();
  expect(takeLink()).toEqual(LINK);
  expect(takeLink()).toEqual(LINK);
  expect(address.hash).toBe("#token=abc");
});

test("a page has the same name after a reload, and a copy of its tab another", async () => {
  withStorage();
  withLocks(async (taken) => void taken({}));
  const page = await pageId();
  expect(await pageId()).toBe(page);
  withLocks(async (taken) => void taken(null));
  expect(await pageId()).not.toBe(page);
});

test("a page that may neither store nor lock has a name all the same", async () => {
  withoutStorage();
  withLocks(async () => deny());
  expect(await pageId()).toMatch(/^[0-9a-f-]{36}$/);
});
