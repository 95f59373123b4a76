/*
 * Tensors in WebNN's ML tensors, on one context that all sessions of the engine have in common.
 */

import type { InferenceSession, Tensor } from "onnxruntime-web";
import { byteLenOf, type Dtype, dtypeOfOrt } from "#engine/dtypes";
import { BackendGone, EngineError, type HostTensor } from "#engine/engine";
import { checkedDtype, hostResident, hostResidentOf } from "#engine/host";
import { Loss } from "#engine/loss";
import type { OrtModule } from "#engine/ort";
import type { Place, Resident } from "#engine/place";
import { type MlContext, type MlTensor, type OpenMl, openMlContexts } from "#engine/webnn";
import { windowed } from "#engine/window";

/** Opens the best kind of device that the browser gives; see `openMlContexts`. */
export async function openMl(): Promise<OpenMl> {
  const { open, refusals } = await openMlContexts();
  const [best, ...others] = open;
  for (const { context } of others) {
    context.destroy?.();
  }
  if (best === undefined) {
    const why = refusals.join("; ") || "there is no navigator.ml";
    throw new BackendGone(`this browser opens no WebNN context (${why})`);
  }
  return best;
}

/** What WebNN calls bytes. */
const BYTES = "uint8";

export class MlPlace implements Place {
  readonly provider: InferenceSession.WebNNExecutionProviderOption;
  readonly #ort: OrtModule;
  readonly #context: MlContext;
  readonly #loss: Loss;
  readonly #types: Set<string>;
  /** The smallest output that nobody has waited for yet. */
  #pending: { tensor: MlTensor; byteLen: number } | null = null;

  constructor(ort: OrtModule, { context, deviceType }: OpenMl) {
    this.#ort = ort;
    this.#context = context;
    this.provider = { name: "webnn", context, deviceType } as never;
    this.#loss = new Loss(context.lost, "the WebNN context was lost");
    const { input, output } = context.opSupportLimits();
    this.#types = new Set(input.dataTypes.filter((type) => output.dataTypes.includes(type)));
  }

  outputLocation(type: Tensor.Type, mixed: boolean): "cpu" | "ml-tensor" {
    // What a node on the processor gives, ONNX Runtime does not write to the ML tensor it shows.
    return !mixed && this.#holds(dtypeOfOrt(type)) ? "ml-tensor" : "cpu";
  }

  async upload(tensor: HostTensor): Promise<Resident> {
    const dtype = checkedDtype(tensor);
    const { byteLength: byteLen } = tensor.bytes;
    if (!this.#holds(dtype) || byteLen === 0 || tensor.dims.length === 0) {
      return this.#uploadBytes(tensor, dtype);
    }
    const create = this.#context.createTensor({
      dataType: dtype.webnn ?? "",
      shape: tensor.dims,
      readable: true,
      writable: true,
    });
    const mlTensor = await this.#loss.race(create);
    this.#context.writeTensor(mlTensor, tensor.bytes);
    const feed = () =>
      this.#ort.Tensor.fromMLTensor(mlTensor as never, {
        dataType: dtype.ort as Tensor.MLTensorDataTypes,
        dims: tensor.dims,
      });
    return this.#resident(mlTensor, dtype, tensor.dims, feed, () => mlTensor.destroy());
  }

  /** What WebNN has no tensors of lies there as bytes, and is fed from the page's memory. */
  async #uploadBytes(tensor: HostTensor, dtype: Dtype): Promise<Resident> {
    if (!this.#types.has(BYTES)) {
      throw new EngineError("device", `this WebNN context holds no tensors of ${dtype.name}`);
    }
    // It has no empty tensors.
    const bytes = tensor.bytes.byteLength > 0 ? tensor.bytes : new Uint8Array(1);
    const create = this.#context.createTensor({
      dataType: BYTES,
      shape: [bytes.byteLength],
      readable: true,
      writable: true,
    });
    const mlTensor = await this.#loss.race(create);
    this.#context.writeTensor(mlTensor, bytes);
    const feed = async () => hostResident(this.#ort, await resident.read(false)).feed();
    const dispose = () => mlTensor.destroy();
    const resident: Resident = this.#resident(mlTensor, dtype, tensor.dims, feed, dispose);
    return resident;
  }

  receive(output: Tensor): Resident {
    if (output.location !== "ml-tensor") {
      return hostResidentOf(this.#ort, output);
    }
    const mlTensor = output.mlTensor as unknown as MlTensor;
    const dtype = dtypeOfOrt(output.type);
    const byteLen = output.size * dtype.byteLen;
    if (this.#pending === null || byteLen < this.#pending.byteLen) {
      this.#pending = { tensor: mlTensor, byteLen };
    }
    const dispose = () => output.dispose();
    return this.#resident(mlTensor, dtype, output.dims, () => output, dispose);
  }

  /**
   * Waits by reading an output: WebNN orders what touches one tensor, and reads of others come back
   * before a graph is done.
   */
  async fenced<T>(work: () => Promise<T>, read?: () => Promise<unknown>): Promise<T> {
    this.#loss.check();
    this.#pending = null;
    const result = await this.#loss.race(work());
    if (read !== undefined) {
      await this.#loss.race(read());
    } else if (this.#pending !== null) {
      const { tensor } = this.#pending as { tensor: MlTensor };
      await this.#loss.race(this.#context.readTensor(tensor));
    }
    return result;
  }

  lost(): string | null {
    return this.#loss.reason();
  }

  onLost(tell: (reason: string) => void): void {
    this.#loss.listen(({ message }) => tell(message));
  }

  #holds(dtype: Dtype): boolean {
    return dtype.webnn !== null && this.#types.has(dtype.webnn);
  }

  #resident(
    mlTensor: MlTensor,
    dtype: Dtype,
    dims: readonly number[],
    feed: () => Tensor | Promise<Tensor>,
    dispose: () => void,
  ): Resident {
    const byteLen = byteLenOf(dtype, dims);
    const read = async (): Promise<HostTensor> => {
      this.#loss.check();
      const data = await this.#loss.race(this.#context.readTensor(mlTensor));
      return { dtype: dtype.name, dims: [...dims], bytes: new Uint8Array(data, 0, byteLen) };
    };
    const resident: Resident = {
      dtype: dtype.name,
      dims,
      byteLen,
      onDevice: true,
      feed,
      read,
      // WebNN reads whole tensors only; what is not wanted stays in this worker.
      readWindow: async (window) => windowed(await read(), window),
      // WebNN cannot copy on the device; ONNX Runtime reuses an ML tensor only once it is let go.
      detach: () => resident,
      dispose,
    };
    return resident;
  }
}
