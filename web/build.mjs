/*
 * Builds dist/: what Holdfast serves to browsers. `join.html` is the page, `assets/` what it loads.
 * The same sources give the same bytes.
 */

import { cp, mkdir, readFile, rm } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = new URL("./", import.meta.url);
const dist = new URL("dist/", here);
const path = (relative, base = here) => fileURLToPath(new URL(relative, base));

/** The builds of ONNX Runtime Web that the engine may load. Never JSEP: it gives wrong numbers. */
const ORT_FILES = [
  "ort.wasm.min.mjs",
  "ort-wasm-simd-threaded.mjs",
  "ort-wasm-simd-threaded.wasm",
  "ort.jspi.min.mjs",
  "ort-wasm-simd-threaded.jspi.mjs",
  "ort-wasm-simd-threaded.jspi.wasm",
  "ort.webgpu.min.mjs",
  "ort-wasm-simd-threaded.asyncify.mjs",
  "ort-wasm-simd-threaded.asyncify.wasm",
];

const version = await workspaceVersion();
await rm(dist, { recursive: true, force: true });
await mkdir(path("assets/ort/", dist), { recursive: true });
await Promise.all([
  build({
    absWorkingDir: path("."),
    entryPoints: ["page", "io-worker", "engine-worker"].map((name) => `lane/src/${name}.ts`),
    outdir: path("assets/", dist),
    bundle: true,
    format: "esm",
    target: "es2022",
    minify: true,
    sourcemap: "linked",
    define: { HOLDFAST_VERSION: JSON.stringify(version) },
    logLevel: "warning",
  }),
  cp(path("lane/join.html"), path("join.html", dist)),
  ...["style.css", "icon.svg"].map((name) =>
    cp(path(`lane/${name}`), path(`assets/${name}`, dist)),
  ),
  ...ORT_FILES.map((name) =>
    cp(path(`node_modules/onnxruntime-web/dist/${name}`), path(`assets/ort/${name}`, dist)),
  ),
]);

async function workspaceVersion() {
  const manifest = await readFile(new URL("../Cargo.toml", here), "utf8");
  const section = manifest.split("[workspace.package]")[1]?.split("\n[")[0];
  const found = section?.match(/^version = "([^"]+)"$/m)?.[1];
  if (!found) {
    throw new Error("no version in [workspace.package] of ../Cargo.toml");
  }
  return found;
}
