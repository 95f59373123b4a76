/*
 * Tensors in the memory of the page: the place of the wasm backend, and of what is fed from there.
 */

import type { Tensor } from "onnxruntime-web";
import { byteLenOf, type Dtype, dtypeNamed, dtypeOfOrt } from "#engine/dtypes";
import { EngineError, type HostTensor } from "#engine/engine";
import type { OrtModule } from "#engine/ort";
import type { Feedable, Place, Resident } from "#engine/place";
import { Spare } from "#engine/spare";
import { windowed } from "#engine/window";

export class HostPlace implements Place {
  readonly provider = "wasm";
  readonly #ort: OrtModule;
  readonly #spare: Spare;

  constructor(ort: OrtModule, spare: Spare) {
    this.#ort = ort;
    this.#spare = spare;
  }

  outputLocation(): "cpu" {
    return "cpu";
  }

  async upload(tensor: HostTensor): Promise<Resident> {
    // The caller's bytes may be a window of something much larger, which must not stay with them.
    const { bytes } = tensor;
    const isWhole = bytes.byteLength === bytes.buffer.byteLength;
    const own = isWhole ? tensor : { ...tensor, bytes: bytes.slice() };
    return hostResident(this.#ort, own, this.#spare);
  }

  receive(output: Tensor): Resident {
    return hostResidentOf(this.#ort, output, this.#spare);
  }

  async fenced<T>(work: () => Promise<T>, read?: () => Promise<unknown>): Promise<T> {
    const result = await work();
    await read?.();
    return result;
  }

  lost(): null {
    return null;
  }

  onLost(): void {}
}

/** A tensor over bytes in the memory of the page, without a copy where they are aligned. */
export function hostResident(
  ort: OrtModule,
  tensor: HostTensor,
  spare: Spare = new Spare(),
): Feedable {
  const dtype = checkedDtype(tensor);
  const resident: Feedable = {
    dtype: tensor.dtype,
    dims: tensor.dims,
    byteLen: tensor.bytes.byteLength,
    onDevice: false,
    feed: () => {
      if (dtype.ort === null) {
        throw new EngineError("caller", `a model cannot be fed tensors of ${dtype.name} here`);
      }
      return new ort.Tensor(dtype.ort, dtype.view(tensor.bytes), tensor.dims);
    },
    readWindow: async (window) => windowed(tensor, window),
    read: async (last) => (last ? tensor : { ...tensor, bytes: spare.copy(tensor.bytes) }),
    detach: () => resident,
    dispose: () => undefined,
  };
  return resident;
}

/** The type of a tensor that has as many bytes as it has to have. */
export function checkedDtype(tensor: HostTensor): Dtype {
  const dtype = dtypeNamed(tensor.dtype);
  const expected = byteLenOf(dtype, tensor.dims);
  if (tensor.bytes.byteLength !== expected) {
    throw new EngineError(
      "caller",
      `${tensor.dtype}[${tensor.dims.join(", ")}] takes ${expected} bytes, but ${tensor.bytes.byteLength} were given`,
    );
  }
  return dtype;
}

/** An output that ONNX Runtime left in the memory of the page. */
export function hostResidentOf(ort: OrtModule, output: Tensor, spare?: Spare): Resident {
  const dtype = dtypeOfOrt(output.type);
  const data = output.data;
  if (Array.isArray(data)) {
    throw new EngineError("device", "the engine gave strings, which cannot be sent");
  }
  const view = data as Exclude<typeof data, string[]>;
  const bytes = new Uint8Array(view.buffer as ArrayBuffer, view.byteOffset, view.byteLength);
  return hostResident(ort, { dtype: dtype.name, dims: [...output.dims], bytes }, spare);
}
