/*
 * Why a browser lacks something, and what its owner can do about it. The same lack has another cause
 * in each browser, so the words depend on which one it is.
 */

import type { BrowserInfo } from "#wire/messages";

/** There is no `navigator.gpu`. */
export function noWebGpu({ name }: BrowserInfo): string {
  if (name === "WebKitGTK") {
    return "WebKitGTK has no WebGPU; use Chromium or Firefox for it";
  }
  if (name === "Firefox") {
    return "WebGPU is off in this Firefox; set dom.webgpu.enabled in about:config, or use a newer one";
  }
  if (name === "Safari") {
    return "this Safari has no WebGPU; use version 26 or newer";
  }
  return "this browser has no WebGPU; use a newer one, or switch it on in its settings";
}

/** WebGPU is there and gives no adapter. */
export function noAdapter({ name, platform }: BrowserInfo): string {
  if (name === "Firefox" && platform === "Linux") {
    return "Firefox finds no GPU that it may use; install a Vulkan driver (Debian and Ubuntu: mesa-vulkan-drivers, which also computes without a graphics card), and set gfx.webgpu.ignore-blocklist in about:config";
  }
  if (name === "Firefox" || name === "Safari") {
    return "the browser finds no GPU that it may use; check the graphics driver";
  }
  return "the browser finds no GPU that it may use; check the graphics driver, or start Chromium with --enable-unsafe-webgpu";
}

/** There is no `navigator.ml`. */
export function noWebNn({ name }: BrowserInfo): string {
  if (name === "Firefox" || name === "Safari" || name === "WebKitGTK") {
    return `${name} has no WebNN; use Chromium, Chrome or Edge for it`;
  }
  return "this browser has no WebNN; start Chromium with --enable-features=WebMachineLearningNeuralNetwork";
}
