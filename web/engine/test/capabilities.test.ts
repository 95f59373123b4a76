import { afterEach, expect, it, vi } from "vitest";
import { bestBrand, parseUserAgent, probe } from "#engine/capabilities";
import { PROBE_MS } from "#engine/limit";

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

it.each([
  [
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/147.0.0.0 Safari/537.36",
    { name: "Chromium", version: "147.0.0.0", platform: "Linux", mobile: false },
  ],
  [
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/147.0.0.0 Safari/537.36 Edg/147.0.0.0",
    { name: "Microsoft Edge", version: "147.0.0.0", platform: "Windows", mobile: false },
  ],
  [
    "Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0",
    { name: "Firefox", version: "153.0", platform: "Linux", mobile: false },
  ],
  [
    "Mozilla/5.0 (iPhone; CPU iPhone OS 26_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Mobile/15E148 Safari/604.1",
    { name: "Safari", version: "26.0", platform: "iOS", mobile: true },
  ],
  [
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/60.5 Safari/605.1.15",
    { name: "WebKitGTK", version: "60.5", platform: "Linux", mobile: false },
  ],
  ["curl/8", { name: "unknown", version: "unknown", platform: "unknown", mobile: false }],
])("reads %s", (text, expected) => {
  expect(parseUserAgent(text)).toEqual(expected);
});

it("takes the browser's own name before its engine's and a made-up one", () => {
  const brands = [{ brand: "Not)A;Brand" }, { brand: "Chromium" }, { brand: "Google Chrome" }];
  expect(bestBrand(brands)).toEqual({ brand: "Google Chrome" });
  expect(bestBrand(brands.slice(0, 2))).toEqual({ brand: "Chromium" });
  expect(bestBrand(brands.slice(0, 1))).toBeUndefined();
});

it("calls what never answers missing, and the rest by its name", async () => {
  vi.useFakeTimers();
  const never = () => new Promise(() => {});
  const context = { opSupportLimits: () => ({ input: { dataTypes: ["float32"] } }) };
  vi.stubGlobal("navigator", {
    userAgent: "",
    hardwareConcurrency: 2,
    gpu: { requestAdapter: never },
    ml: {
      createContext: ({ deviceType }: { deviceType: string }) =>
        deviceType === "npu" ? never() : Promise.resolve(context),
    },
  });
  const probing = probe(1);
  await vi.advanceTimersByTimeAsync(PROBE_MS);
  const { webgpu, webnn } = await probing;
  expect(webgpu).toMatchObject({ type: "missing", reason: expect.stringContaining("10000 ms") });
  expect(webnn).toEqual({ type: "available", deviceTypes: ["cpu", "gpu"], chosen: "gpu" });
});

it.each([
  ["Firefox/153.0 Linux", "mesa-vulkan-drivers", "Firefox has no WebNN"],
  ["HeadlessChrome/147.0 Linux", "--enable-unsafe-webgpu", "--enable-features="],
  ["Firefox/153.0 Windows", "check the graphics driver", "Firefox has no WebNN"],
])("says what to do about a missing GPU in %s", async (userAgent, forGpu, forNn) => {
  vi.stubGlobal("isSecureContext", true);
  vi.stubGlobal("navigator", {
    userAgent,
    hardwareConcurrency: 2,
    gpu: { requestAdapter: () => Promise.resolve(null) },
  });
  const { webgpu, webnn } = await probe(1);
  expect(webgpu).toEqual({ type: "missing", reason: expect.stringContaining(forGpu) });
  expect(webnn).toEqual({ type: "missing", reason: expect.stringContaining(forNn) });
});

it.each([
  [true, true, 4],
  [true, false, 1],
  [false, true, 1],
])("isolated %s and with shared memory %s it has %i threads", async (isolated, shared, threads) => {
  vi.stubGlobal("navigator", { userAgent: "", hardwareConcurrency: 4 });
  vi.stubGlobal("crossOriginIsolated", isolated);
  vi.stubGlobal("SharedArrayBuffer", shared ? SharedArrayBuffer : undefined);
  expect((await probe(4)).wasm.threads).toBe(threads);
});
