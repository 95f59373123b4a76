/*
 * Whose fault a failure is. ONNX Runtime, WebGPU and WebAssembly throw plain errors with text: this
 * is the one place that reads it.
 */

import { EngineError } from "#engine/engine";

/** What was being done when it failed. */
export type During = "start" | "load" | "run" | "transfer";

/** Makes an `EngineError` of whatever was thrown; `what` says what failed. */
export function toEngineError(error: unknown, during: During, what: string): EngineError {
  if (error instanceof EngineError) {
    return error;
  }
  const text = textOf(error);
  const message = `${what}: ${readable(text)}`;
  if (isOutOfMemory(error, text)) {
    return new EngineError("memory", message, isAbort(error, text));
  }
  if (isAbort(error, text)) {
    return new EngineError("device", message, true);
  }
  const code = ortCode(text);
  const wrongInput = during === "run" && (code === ORT_INVALID_ARGUMENT || isAboutShapes(text));
  const wrongGraph = during === "load" && code === ORT_INVALID_PROTOBUF;
  return new EngineError(wrongInput || wrongGraph ? "caller" : "device", message);
}

/** The part of ONNX Runtime's text that a person can use. */
export function readable(text: string): string {
  const message = /ERROR_MESSAGE: ([\s\S]*)$/.exec(text)?.[1] ?? text;
  return message
    .replace(/^(\/[^\s:]+|[\w./-]+\.(cc|h)):\d+ /, "")
    .replace(/\s+/g, " ")
    .trim();
}

const ORT_INVALID_ARGUMENT = 2;
const ORT_INVALID_PROTOBUF = 7;

function ortCode(text: string): number | null {
  const code = /ERROR_CODE: (\d+)/.exec(text)?.[1];
  return code === undefined ? null : Number(code);
}

function textOf(error: unknown): string {
  if (error instanceof Error) {
    return error.message || error.name;
  }
  // Emscripten throws bare pointers for C++ exceptions that nobody caught.
  return typeof error === "number" ? `the engine threw exception ${error}` : String(error);
}

function isOutOfMemory(error: unknown, text: string): boolean {
  return (
    /bad_alloc|out of memory|OOM\b|failed to allocate|memory access out of bounds|allocation failed|SafeIntOnOverflow|storage size overflowed|max buffer size limit/i.test(
      text,
    ) ||
    (error instanceof RangeError && /allocation|length|memory|size/i.test(text))
  );
}

/**
 * Whether an operator refused the shapes that it was given. Only what can mean nothing else counts,
 * as in crates/devices/src/cpu/fault.rs: what is blamed on the caller is not tried elsewhere.
 */
function isAboutShapes(text: string): boolean {
  return (
    /non-zero status code returned while running/i.test(text) &&
    /attempting to broadcast an axis by a dimension other than 1|cannot broadcast on dim|dimension mismatch|cannot be reshaped to the requested shape|dimensions must match|mismatched dimensions|must be 1 instead of|cannot be split evenly|could not be broadcast together|shape mismatch attempting to re-use buffer/i.test(
      text,
    )
  );
}

/** Whether the WebAssembly instance is of no use any more. */
function isAbort(error: unknown, text: string): boolean {
  return (
    error instanceof WebAssembly.RuntimeError ||
    typeof error === "number" ||
    /^Aborted\(|unreachable|memory access out of bounds/.test(text)
  );
}
