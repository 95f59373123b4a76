/* What the page makes of a link and of a browser, and what it says. */

import { describe, expect, test } from "vitest";
import type { Capabilities } from "#engine/capabilities";
import { capabilitiesOf, chooseLanes, chooseThreads } from "#lane/choose-lanes";
import type { LaneStatus } from "#lane/lane-status";
import type { LineState } from "#lane/line";
import { parseLink } from "#lane/link";
import {
  adapterWords,
  byteWords,
  headline,
  isSoftware,
  laneFacts,
  laneTrouble,
  sentence,
} from "#lane/words";

const CAPABILITIES: Capabilities = {
  browser: { name: "Chromium", version: "147", platform: "Linux", mobile: false },
  machine: { cores: 8, memoryGib: 8, crossOriginIsolated: true },
  webgpu: {
    type: "available",
    vendor: "google",
    architecture: "swiftshader",
    device: "",
    description: "",
    fallback: true,
    features: [],
    limits: {},
  },
  webnn: { type: "missing", reason: "no WebNN here" },
  wasm: { simd: true, threads: 2, jspi: true },
};

describe("links", () => {
  test.each([
    ["#token=abc", { token: "abc", lanes: null, threads: null, page: null }],
    ["#token=abc&page=mine", { token: "abc", lanes: null, threads: null, page: "mine" }],
    ["#token=abc&lanes=auto", { token: "abc", lanes: null, threads: null, page: null }],
    [
      "#token=abc&lanes=wasm,wasm,webgpu&threads=3",
      { token: "abc", lanes: ["wasm", "wasm", "webgpu"], threads: 3, page: null },
    ],
    ["#lanes=wasm", null],
    ["", null],
  ])("%s", (fragment, link) => {
    expect(parseLink(fragment)).toEqual(link);
  });

  test.each(["#token=a&lanes=cuda", "#token=a&threads=0", "#token=a&threads=many"])(
    "%s makes no sense",
    (fragment) => {
      expect(() => parseLink(fragment)).toThrow("The link asks for");
    },
  );
});

describe("lanes", () => {
  test("by themselves are those that the browser has", () => {
    const lanes = chooseLanes(null, CAPABILITIES);
    expect(lanes.map(({ backend, missing }) => [backend, missing])).toEqual([
      ["webgpu", null],
      ["wasm", null],
    ]);
  });

  test("asked for by name are not replaced by others", () => {
    expect(chooseLanes(["webnn", "wasm"], CAPABILITIES)).toEqual([
      { lane: 0, backend: "webnn", missing: "no WebNN here" },
      { lane: 1, backend: "wasm", missing: null },
    ]);
  });

  test("have the threads that the link says, else not more than pay off", () => {
    expect(chooseThreads(7, 2)).toBe(7);
    expect(chooseThreads(null, 2)).toBe(2);
    expect(chooseThreads(null, 64)).toBe(4);
  });

  test("divide the cores among those that compute with threads, and no others", () => {
    expect(chooseThreads(null, 4, ["wasm", "wasm"])).toBe(2);
    expect(chooseThreads(null, 2, ["wasm", "wasm", "wasm"])).toBe(1);
    expect(chooseThreads(null, 4, ["webgpu", "webgpu", "wasm"])).toBe(4);
    expect(chooseThreads(null, 4, ["webgpu"])).toBe(4);
    expect(chooseThreads(3, 4, ["wasm", "wasm"])).toBe(3);
  });

  test("of one backend may be several, each with its own number", () => {
    const lanes = chooseLanes(["wasm", "wasm"], CAPABILITIES);
    expect(lanes.map(({ lane, backend }) => [lane, backend])).toEqual([
      [0, "wasm"],
      [1, "wasm"],
    ]);
  });

  test("tell of threads only where they compute with them", () => {
    expect(capabilitiesOf("wasm", CAPABILITIES)).toEqual(CAPABILITIES);
    expect(capabilitiesOf("webgpu", CAPABILITIES).wasm.threads).toBe(1);
    expect(capabilitiesOf("webnn", CAPABILITIES).wasm.threads).toBe(1);
  });
});

describe("words", () => {
  const view = (line: LineState | null, missing: string | null = null) => ({
    lane: 0,
    backend: "wasm" as const,
    missing,
    failure: null,
    status: line && status(line),
    statusAt: 1000,
  });

  test.each([
    [[view(null)], "Connecting…"],
    [[view({ type: "connected", name: "x" })], "Connected"],
    [[view({ type: "connected", name: "x" }), view(null)], "Connected with 1 of 2 lanes"],
    [[view({ type: "connected", name: "x" }), view(null, "no GPU")], "Connected"],
    [[view(null, "no GPU")], "This browser cannot help"],
    [[view({ type: "ended", reason: "stopped" })], "Stopped"],
  ])("headline %#", (lanes, title) => {
    expect(headline(lanes, 0).title).toBe(title);
  });

  test("a lane that waits says how long", () => {
    const lanes = [view({ type: "waiting", forMs: 5000, reason: "cut" })];
    expect(headline(lanes, 2500).detail).toBe("Cut. Trying again in 4 s.");
    expect(headline(lanes, 9000).detail).toBe("Cut. Trying again now.");
  });

  test("a page that was stopped says so, whatever its lanes said last", () => {
    const lanes = [view({ type: "connected", name: "x" })];
    const stopped = { state: "stopped", title: "Stopped", detail: "It was stopped here." };
    expect(headline(lanes, 0, "it was stopped here")).toEqual(stopped);
    expect(headline([], 0, "it was stopped here")).toEqual(stopped);
  });

  test("a lane says what is wrong with it", () => {
    expect(laneTrouble(view(null, "no GPU"))).toBe("Not started: no GPU.");
    expect(laneTrouble(view({ type: "ended", reason: "reload the page" }))).toBe(
      "Reload the page.",
    );
    const failed = { ...view(null), failure: "out of memory" };
    expect(laneTrouble(failed)).toBe("It failed: out of memory. Starting it again.");
    expect(headline([failed], 0).title).toBe("Connecting…");
    expect(laneTrouble(view({ type: "connected", name: "x" }))).toBeNull();
  });

  test("a software adapter is called one", () => {
    expect(adapterWords("webgpu", CAPABILITIES)).toBe("google swiftshader");
    expect(isSoftware(CAPABILITIES)).toBe(true);
    const real = {
      ...CAPABILITIES.webgpu,
      vendor: "nvidia",
      architecture: "ampere",
      fallback: false,
    };
    const capabilities = { ...CAPABILITIES, webgpu: real } as Capabilities;
    expect(adapterWords("webgpu", capabilities)).toBe("nvidia ampere");
    expect(isSoftware(capabilities)).toBe(false);
    for (const named of [{ vendor: "Software" }, { device: "softpipe" }]) {
      const webgpu = { ...real, ...named } as Capabilities["webgpu"];
      expect(isSoftware({ ...CAPABILITIES, webgpu })).toBe(true);
    }
  });

  test("a lane's card says what it does", () => {
    const facts = Object.fromEntries(
      laneFacts({
        ...status({ type: "connected", name: "x" }),
        running: "run",
        waiting: 2,
        failed: 1,
      }),
    );
    expect(facts).toMatchObject({
      Doing: "Computing, 2 waiting",
      "Model parts": "2 (90 MB)",
      "Requests done": "12, 1 failed",
    });
  });

  test("sizes and sentences", () => {
    expect([0, 999, 1500, 90_400_000, 999_999].map(byteWords)).toEqual([
      "0 B",
      "999 B",
      "1.5 kB",
      "90 MB",
      "1.0 MB",
    ]);
    expect(sentence("no GPU")).toBe("No GPU.");
    expect(sentence("Why?")).toBe("Why?");
    expect(sentence(`no sha256-${"ab".repeat(32)}`)).toBe("No sha256-abababab…");
  });
});

function status(line: LineState): LaneStatus {
  return {
    line,
    running: null,
    waiting: 0,
    segmentBytes: 90_000_000,
    downloads: null,
    stats: {
      segments: 2,
      tensors: 0,
      tensorBytes: 0,
      deviceTensorBytes: 0,
      liftedBytes: 0,
      unacknowledged: 0,
      cacheBytes: 0,
      downloadedBytes: 0,
      engineRestarts: 0,
      engineHeapBytes: null,
    },
    done: 12,
    failed: 0,
    lastError: null,
  };
}
