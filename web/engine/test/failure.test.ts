import { expect, it } from "vitest";
import { EngineError } from "#engine/engine";
import { type During, toEngineError } from "#engine/failure";

function check(error: unknown, during: During, kind: string, fatal: boolean): void {
  const failure = toEngineError(error, during, "it failed");
  expect({ kind: failure.kind, fatal: failure.fatal }).toEqual({ kind, fatal });
}

const ort = (code: number, message: string) =>
  new Error(`failed to call OrtRun(). ERROR_CODE: ${code}, ERROR_MESSAGE: ${message}`);

it("blames the caller for invalid arguments of a run, and not of a load", () => {
  check(ort(2, "Got invalid dimensions for input: x"), "run", "caller", false);
  check(ort(2, "whatever"), "load", "device", false);
});

it("blames the caller for shapes that an operator refuses, and for nothing that sounds alike", () => {
  const refused = (text: string) =>
    `Non-zero status code returned while running Add node. Name:'a' Status Message: ${text}`;
  const broadcast = "Attempting to broadcast an axis by a dimension other than 1. 2 by 3";
  check(ort(6, refused(broadcast)), "run", "caller", false);
  check(ort(1, refused("MatMul dimension mismatch")), "run", "caller", false);
  check(ort(6, refused(broadcast)), "load", "device", false);
  check(ort(6, broadcast), "run", "device", false);
  check(ort(6, refused("cannot map a buffer of this shape")), "run", "device", false);
  check(ort(6, refused("std::bad_alloc, dimension mismatch")), "run", "memory", false);
});

it("blames the caller for a graph that is no graph, and the device for one it cannot run", () => {
  check(ort(7, "protobuf parsing failed"), "load", "caller", false);
  check(ort(9, "Could not find an implementation for Foo(1)"), "load", "device", false);
  check(ort(6, "Non-zero status code"), "run", "device", false);
});

it("knows a lack of memory by its many names", () => {
  check(ort(6, "std::bad_alloc"), "run", "memory", false);
  // More bytes than 32 bits can count.
  check(ort(6, "SafeIntOnOverflow() Integer overflow"), "run", "memory", false);
  check(new RangeError("Array buffer allocation failed"), "transfer", "memory", false);
  check(
    new RangeError("WebAssembly.Memory.grow(): Maximum memory size exceeded"),
    "load",
    "memory",
    false,
  );
  check(
    new Error("Can't create a session. failed to allocate a buffer of size 9."),
    "load",
    "memory",
    false,
  );
  check(new RangeError("precision is out of range"), "run", "device", false);
});

it("gives an engine up that aborted", () => {
  check(new Error("Aborted(OOM). Build with -sASSERTIONS for more info."), "load", "memory", true);
  check(new Error("Aborted(). Build with -sASSERTIONS for more info."), "run", "device", true);
  check(new WebAssembly.RuntimeError("unreachable"), "run", "device", true);
  check(139264, "run", "device", true);
});

it("leaves an engine error as it is", () => {
  const error = new EngineError("cancelled", "stop");
  expect(toEngineError(error, "run", "it failed")).toBe(error);
});

it("says what failed and why, without codes and file names", () => {
  const text = "/onnxruntime_src/core/graph.cc:12 Nonsense is not a registered op\n";
  expect(toEngineError(ort(10, text), "load", "it failed").message).toBe(
    "it failed: Nonsense is not a registered op",
  );
});
