/*
 * The element types that the engine takes: what the wire, ONNX Runtime and WebNN call them, and
 * where each of them can live.
 */

import type { Tensor } from "onnxruntime-web";
import { EngineError } from "#engine/engine";

export interface Dtype {
  /** On the wire. */
  name: string;
  /** In ONNX Runtime; null where it takes no such tensors: they can be kept, and fed to nothing. */
  ort: Exclude<Tensor.Type, "string" | "uint4" | "int4"> | null;
  /** Of one element; less than one where several share a byte. */
  byteLen: number;
  /** Whether ONNX Runtime takes it from and leaves it in a GPU buffer. */
  onGpu: boolean;
  /** What WebNN calls it; null where ONNX Runtime does not put it there. */
  webnn: string | null;
  /** Elements over bytes, without a copy where they are aligned. */
  view(bytes: Uint8Array<ArrayBuffer>): Elements;
}

/** What ONNX Runtime takes as the data of a tensor. */
export type Elements = Exclude<Tensor.DataType, string[]>;

/** The type that the wire calls `name`. */
export function dtypeNamed(name: string): Dtype {
  const dtype = DTYPES.find((dtype) => dtype.name === name);
  if (dtype === undefined) {
    const known = DTYPES.map((dtype) => dtype.name).join(", ");
    throw new EngineError(
      "caller",
      `element type \`${name}\` is not supported; it can be ${known}`,
    );
  }
  return dtype;
}

/** The type that ONNX Runtime calls `ort`. */
export function dtypeOfOrt(ort: Tensor.Type): Dtype {
  const dtype = DTYPES.find((dtype) => dtype.ort === ort);
  if (dtype === undefined) {
    throw new EngineError(
      "device",
      `the engine gave a tensor of type \`${ort}\`, which cannot be sent`,
    );
  }
  return dtype;
}

/** How many bytes a tensor has. */
export function byteLenOf(dtype: Dtype, dims: readonly number[]): number {
  return Math.ceil(elementCount(dims) * dtype.byteLen);
}

/** How many elements a shape has. */
export function elementCount(dims: readonly number[]): number {
  return dims.reduce((count, dim) => count * dim, 1);
}

type ViewConstructor = {
  new (buffer: ArrayBuffer, offset: number, length: number): Elements;
  readonly BYTES_PER_ELEMENT: number;
};

function dtype(
  name: string,
  ort: Dtype["ort"],
  View: ViewConstructor,
  places: { onGpu: boolean; webnn: string | null },
): Dtype {
  const byteLen = View.BYTES_PER_ELEMENT;
  const view = (bytes: Uint8Array<ArrayBuffer>): Elements => {
    const aligned = bytes.byteOffset % byteLen === 0 ? bytes : bytes.slice();
    return new View(aligned.buffer, aligned.byteOffset, aligned.byteLength / byteLen);
  };
  return { name, ort, byteLen, ...places, view };
}

/** One that can only be kept. */
function keptOnly(name: string, byteLen: number): Dtype {
  return { name, ort: null, byteLen, onGpu: false, webnn: null, view: (bytes) => bytes };
}

export const DTYPES: readonly Dtype[] = [
  dtype("f32", "float32", Float32Array, { onGpu: true, webnn: "float32" }),
  dtype("f16", "float16", Uint16Array, { onGpu: true, webnn: "float16" }),
  dtype("f64", "float64", Float64Array, { onGpu: false, webnn: null }),
  dtype("i8", "int8", Int8Array, { onGpu: false, webnn: "int8" }),
  dtype("u8", "uint8", Uint8Array, { onGpu: true, webnn: "uint8" }),
  dtype("i16", "int16", Int16Array, { onGpu: false, webnn: null }),
  dtype("u16", "uint16", Uint16Array, { onGpu: false, webnn: null }),
  dtype("i32", "int32", Int32Array, { onGpu: true, webnn: "int32" }),
  dtype("u32", "uint32", Uint32Array, { onGpu: true, webnn: "uint32" }),
  dtype("i64", "int64", BigInt64Array, { onGpu: true, webnn: "int64" }),
  dtype("u64", "uint64", BigUint64Array, { onGpu: false, webnn: "uint64" }),
  dtype("bool", "bool", Uint8Array, { onGpu: true, webnn: "uint8" }),
  keptOnly("bf16", 2),
  keptOnly("u4", 1 / 2),
  keptOnly("i4", 1 / 2),
  keptOnly("u2", 1 / 4),
  keptOnly("i2", 1 / 4),
];
