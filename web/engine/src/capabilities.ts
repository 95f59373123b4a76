/*
 * What this browser is and has, told truthfully: a missing API comes with the reason and what to do,
 * and a software adapter is called one. Works in a page and in a worker.
 */

import { noAdapter, noWebGpu, noWebNn } from "#engine/advice";
import { PROBE_MS, withLimit } from "#engine/limit";
import { isMobile } from "#engine/mobile";
import { hasJspi } from "#engine/ort";
import { ml, openMlContexts } from "#engine/webnn";
import type {
  BrowserInfo,
  Hello,
  MachineInfo,
  WasmInfo,
  WebGpuInfo,
  WebNnInfo,
} from "#wire/messages";

export type Capabilities = Pick<Hello, "browser" | "machine" | "webgpu" | "webnn" | "wasm">;

/** Looks at the browser. `threads` is how many the engine would like to use. */
export async function probe(threads: number): Promise<Capabilities> {
  const browser = await probeBrowser();
  const [webgpu, webnn] = await Promise.all([probeWebGpu(browser), probeWebNn(browser)]);
  return { browser, machine: probeMachine(), webgpu, webnn, wasm: probeWasm(threads) };
}

/** Parts of `navigator` that not every browser has, and that TypeScript does not know. */
interface MoreNavigator {
  deviceMemory?: number;
  userAgentData?: {
    brands: { brand: string; version: string }[];
    mobile: boolean;
    platform: string;
    getHighEntropyValues(hints: string[]): Promise<{
      fullVersionList?: { brand: string; version: string }[];
    }>;
  };
}

async function probeBrowser(): Promise<BrowserInfo> {
  const told = (navigator as MoreNavigator).userAgentData;
  const parsed = parseUserAgent(navigator.userAgent);
  if (!told) {
    return parsed;
  }
  const { fullVersionList } = await told.getHighEntropyValues(["fullVersionList"]);
  const best = bestBrand(fullVersionList ?? told.brands);
  return {
    name: best?.brand ?? parsed.name,
    version: best?.version ?? parsed.version,
    platform: told.platform || parsed.platform,
    mobile: told.mobile,
  };
}

/** The brand that says most: browsers add made-up ones, and the engine they are built on. */
export function bestBrand<B extends { brand: string }>(brands: readonly B[]): B | undefined {
  const real = brands.filter(({ brand }) => !/not.?a.?brand/i.test(brand.replaceAll(/\W/g, "")));
  return (
    real.find(({ brand }) => !/Chromium|HeadlessChrome/.test(brand)) ??
    real.find(({ brand }) => brand === "Chromium") ??
    real[0]
  );
}

export function parseUserAgent(text: string): BrowserInfo {
  const found = BROWSERS.map(([name, pattern]) => ({
    name,
    version: pattern.exec(text)?.[1],
  })).find(({ version }) => version !== undefined);
  const platform = PLATFORMS.find(([, pattern]) => pattern.test(text))?.[0] ?? "unknown";
  // There is no Safari for Linux: who says so is a browser built on WebKitGTK.
  const isGtk = found?.name === "Safari" && platform === "Linux";
  return {
    name: isGtk ? "WebKitGTK" : (found?.name ?? "unknown"),
    version: found?.version ?? "unknown",
    platform,
    mobile: isMobile({ userAgent: text }),
  };
}

/** The first that matches counts: most browsers also claim to be the ones below them. */
const BROWSERS: [string, RegExp][] = [
  ["Firefox", /(?:Firefox|FxiOS)\/([\d.]+)/],
  ["Microsoft Edge", /Edg(?:A|iOS)?\/([\d.]+)/],
  ["Opera", /OPR\/([\d.]+)/],
  ["Chromium", /(?:HeadlessChrome|Chromium)\/([\d.]+)/],
  ["Chrome", /(?:Chrome|CriOS)\/([\d.]+)/],
  ["Safari", /Version\/([\d.]+).*Safari/],
];

const PLATFORMS: [string, RegExp][] = [
  ["Android", /Android/],
  ["iOS", /iPhone|iPad|iPod/],
  ["Windows", /Windows/],
  ["macOS", /Mac OS X|Macintosh/],
  ["Chrome OS", /CrOS/],
  ["Linux", /Linux/],
];

function probeMachine(): MachineInfo {
  return {
    cores: navigator.hardwareConcurrency,
    memoryGib: (navigator as MoreNavigator).deviceMemory ?? null,
    crossOriginIsolated: globalThis.crossOriginIsolated === true,
  };
}

async function probeWebGpu(browser: BrowserInfo): Promise<WebGpuInfo> {
  if (!navigator.gpu) {
    return missing(
      globalThis.isSecureContext ? noWebGpu(browser) : "WebGPU needs https or localhost",
    );
  }
  try {
    const asked = navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
    const adapter = await withLimit(asked, PROBE_MS, "the GPU");
    if (adapter === null) {
      return missing(noAdapter(browser));
    }
    const { vendor, architecture, device, description } = adapter.info;
    const limits: Record<string, number> = {};
    for (const name in adapter.limits) {
      const limit = adapter.limits[name as keyof GPUSupportedLimits];
      if (typeof limit === "number") {
        limits[name] = limit;
      }
    }
    return {
      type: "available",
      vendor,
      architecture,
      device,
      description,
      fallback: isFallback(adapter),
      features: [...adapter.features].sort(),
      limits,
    };
  } catch (error) {
    return missing(`WebGPU fails: ${messageOf(error)}`);
  }
}

/** Older browsers say it of the adapter, newer ones of its description. */
function isFallback(adapter: GPUAdapter): boolean {
  const older = adapter as { isFallbackAdapter?: boolean };
  return adapter.info.isFallbackAdapter ?? older.isFallbackAdapter ?? false;
}

async function probeWebNn(browser: BrowserInfo): Promise<WebNnInfo> {
  if (ml() === null) {
    return missing(
      globalThis.isSecureContext ? noWebNn(browser) : "WebNN needs https or localhost",
    );
  }
  const { open, refusals } = await openMlContexts();
  for (const { context } of open) {
    context.destroy?.();
  }
  const [best] = open;
  if (best === undefined) {
    return missing(`the browser opens no WebNN context (${refusals.join("; ")})`);
  }
  const deviceTypes = open.map(({ deviceType }) => deviceType).sort();
  return { type: "available", deviceTypes, chosen: best.deviceType };
}

function probeWasm(threads: number): WasmInfo {
  return {
    simd: WebAssembly.validate(SIMD_MODULE),
    threads: hasSharedMemory() ? Math.max(1, threads) : 1,
    jspi: hasJspi(),
  };
}

/** WebKitGTK has none even for pages that are isolated. */
function hasSharedMemory(): boolean {
  return globalThis.crossOriginIsolated === true && typeof SharedArrayBuffer === "function";
}

/** `(module (func (result v128) i32.const 0 i8x16.splat))` */
const SIMD_MODULE = new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 8, 1, 6, 0, 65, 0, 253, 15,
  11,
]);

function missing(reason: string): { type: "missing"; reason: string } {
  return { type: "missing", reason };
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
