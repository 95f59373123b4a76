/*
 * Tensors in WebNN's ML tensors, on one context that all sessions of the engine have in common.
 */

import type { InferenceSession, Tensor } from "onnxruntime-web";
import { type Dtype, dtypeNamed, dtypeOfOrt } from "./dtypes.ts";
import { EngineError, type HostTensor } from "./engine.ts";
import { hostResident, hostResidentOf } from "./host.ts";
import { Loss } from "./loss.ts";
import type { OrtModule } from "./ort.ts";
import type { Place, Resident } from "./place.ts";
import { type MlContext, type MlTensor, type OpenMl, openMlContexts } from "./webnn.ts";

/** Opens the best kind of device that the browser gives; see `openMlContexts`. */
export async function openMl(): Promise<OpenMl> {
  const { open, refusals } = await openMlContexts();
  const [best, ...others] = open;
  for (const { context } of others) {
    context.destroy?.();
  }
  if (best === undefined) {
    const why = refusals.join("; ") || "there is no navigator.ml";
    throw new EngineError("device", `this browser opens no WebNN context (${why})`, true);
  }
  return best;
}

export class MlPlace implements Place {
  readonly provider: InferenceSession.WebNNExecutionProviderOption;
  readonly #ort: OrtModule;
  readonly #context: MlContext;
  readonly #loss: Loss;
  readonly #tick: MlTensor;
  readonly #types: Set<string>;
  #ticks = 0;

  static async open(ort: OrtModule, { context, deviceType }: OpenMl): Promise<MlPlace> {
    const tick = await context.createTensor({
      dataType: "int32",
      shape: [1],
      readable: true,
      writable: true,
    });
    return new MlPlace(ort, context, deviceType, tick);
  }

  private constructor(ort: OrtModule, context: MlContext, deviceType: string, tick: MlTensor) {
    this.#ort = ort;
    this.#context = context;
    this.#tick = tick;
    this.provider = { name: "webnn", context, deviceType } as never;
    this.#loss = new Loss(context.lost, "the WebNN context was lost");
    const { input, output } = context.opSupportLimits();
    this.#types = new Set(input.dataTypes.filter((type) => output.dataTypes.includes(type)));
  }

  outputLocation(type: Tensor.Type): "cpu" | "ml-tensor" {
    return this.#holds(dtypeOfOrt(type)) ? "ml-tensor" : "cpu";
  }

  async upload(tensor: HostTensor): Promise<Resident> {
    const dtype = dtypeNamed(tensor.dtype);
    const host = hostResident(this.#ort, tensor);
    if (!this.#holds(dtype) || host.byteLen === 0 || host.dims.length === 0) {
      // ONNX Runtime converts such tensors itself when they are fed.
      return hostResident(this.#ort, { ...tensor, bytes: tensor.bytes.slice() });
    }
    return this.fenced(async () => {
      const mlTensor = await this.#context.createTensor({
        dataType: dtype.webnn ?? "",
        shape: tensor.dims,
        readable: true,
        writable: true,
      });
      this.#context.writeTensor(mlTensor, tensor.bytes);
      const feed = () =>
        this.#ort.Tensor.fromMLTensor(mlTensor as never, {
          dataType: dtype.ort as Tensor.MLTensorDataTypes,
          dims: tensor.dims,
        });
      return this.#resident(mlTensor, dtype, tensor.dims, feed, () => mlTensor.destroy());
    });
  }

  receive(output: Tensor): Resident {
    if (output.location !== "ml-tensor") {
      return hostResidentOf(this.#ort, output);
    }
    const mlTensor = output.mlTensor as unknown as MlTensor;
    const dispose = () => output.dispose();
    return this.#resident(mlTensor, dtypeOfOrt(output.type), output.dims, () => output, dispose);
  }

  async fenced<T>(work: () => Promise<T>): Promise<T> {
    this.#loss.check();
    const result = await this.#loss.race(work());
    await this.#loss.race(this.#fence());
    return result;
  }

  lost(): string | null {
    return this.#loss.reason();
  }

  /** Waits for all work on the context, by a number that has to come through it. */
  async #fence(): Promise<void> {
    this.#ticks = (this.#ticks + 1) % 2 ** 31;
    this.#context.writeTensor(this.#tick, new Int32Array([this.#ticks]));
    const [tick] = new Int32Array(await this.#context.readTensor(this.#tick));
    if (tick !== this.#ticks) {
      throw new EngineError("device", "WebNN did not do the work it was given", true);
    }
  }

  #holds(dtype: Dtype): boolean {
    return dtype.webnn !== null && this.#types.has(dtype.webnn);
  }

  #resident(
    mlTensor: MlTensor,
    dtype: Dtype,
    dims: readonly number[],
    feed: () => Tensor,
    dispose: () => void,
  ): Resident {
    const byteLen = dims.reduce((count, dim) => count * dim, dtype.byteLen);
    const read = async (): Promise<HostTensor> => {
      this.#loss.check();
      const data = await this.#loss.race(this.#context.readTensor(mlTensor));
      return { dtype: dtype.name, dims: [...dims], bytes: new Uint8Array(data) };
    };
    const resident: Resident = {
      dtype: dtype.name,
      dims,
      byteLen,
      feed,
      read,
      // WebNN cannot copy on the device; ONNX Runtime reuses an ML tensor only once it is let go.
      detach: () => resident,
      dispose,
    };
    return resident;
  }
}
