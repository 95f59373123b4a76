/*
 * Tensors in GPU buffers, on one device that all sessions of the engine have in common.
 */

import type { InferenceSession, Tensor } from "onnxruntime-web";
import { type Dtype, dtypeNamed, dtypeOfOrt } from "#engine/dtypes";
import { BackendGone, EngineError, type HostTensor } from "#engine/engine";
import { checkedDtype, hostResident, hostResidentOf } from "#engine/host";
import { Loss } from "#engine/loss";
import type { OrtModule } from "#engine/ort";
import type { Feedable, Place, Resident, Weight } from "#engine/place";
import { poked } from "#engine/poke";
import { gathered, runsOf } from "#engine/window";
import type { TensorWindow } from "#wire/messages";

/** Opens the GPU with all that its adapter allows. */
export async function openGpu(): Promise<GPUDevice> {
  const adapter = await navigator.gpu?.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) {
    throw new BackendGone("this browser gives no GPU adapter");
  }
  const features = USEFUL_FEATURES.filter((feature) => adapter.features.has(feature));
  const requiredLimits: Record<string, number> = {};
  for (const name in adapter.limits) {
    const limit = adapter.limits[name as keyof GPUSupportedLimits];
    if (typeof limit === "number") {
      requiredLimits[name] = limit;
    }
  }
  return adapter.requestDevice({ requiredFeatures: features, requiredLimits });
}

export class GpuPlace implements Place {
  readonly provider: InferenceSession.WebGpuExecutionProviderOption;
  readonly #ort: OrtModule;
  readonly #device: GPUDevice;
  readonly #loss: Loss;
  readonly #tick: { source: GPUBuffer; target: GPUBuffer };
  /** Errors that no error scope caught, since the last look. */
  #uncaptured: GPUError[] = [];
  #ticks = 0;

  constructor(ort: OrtModule, device: GPUDevice) {
    this.#ort = ort;
    this.#device = device;
    this.provider = { name: "webgpu", device };
    this.#loss = new Loss(device.lost, "the GPU was lost");
    const { COPY_DST, COPY_SRC, MAP_READ } = GPUBufferUsage;
    this.#tick = {
      source: device.createBuffer({ size: 4, usage: COPY_DST | COPY_SRC }),
      target: device.createBuffer({ size: 4, usage: COPY_DST | MAP_READ }),
    };
    device.addEventListener("uncapturederror", (event) => this.#uncaptured.push(event.error));
  }

  outputLocation(type: Tensor.Type): "cpu" | "gpu-buffer" {
    return dtypeOfOrt(type).onGpu ? "gpu-buffer" : "cpu";
  }

  async upload(tensor: HostTensor): Promise<Resident> {
    const dtype = checkedDtype(tensor);
    const { dims } = tensor;
    const { byteLength: byteLen } = tensor.bytes;
    return this.fenced(async () => {
      return this.#keep(this.#write(tensor.bytes), dtype, dims, byteLen);
    });
  }

  lift(bytes: Uint8Array<ArrayBuffer>): Weight {
    const { byteLength: byteLen } = bytes;
    const buffer = this.#write(bytes);
    return {
      byteLen,
      as: (name, dims) => {
        const dtype = dtypeNamed(name);
        if (!dtype.onGpu) {
          throw new EngineError("device", `weights of ${name} cannot be lifted to a GPU`);
        }
        return this.#own(buffer, dtype, dims, byteLen);
      },
      dispose: () => buffer.destroy(),
    };
  }

  receive(output: Tensor): Resident {
    if (output.location !== "gpu-buffer") {
      return hostResidentOf(this.#ort, output);
    }
    const dtype = dtypeOfOrt(output.type);
    const byteLen = output.size * dtype.byteLen;
    const buffer = output.gpuBuffer as unknown as GPUBuffer;
    return {
      dtype: dtype.name,
      dims: output.dims,
      byteLen,
      onDevice: true,
      feed: () => output,
      readWindow: (window) => this.#readWindow(buffer, dtype, byteLen, window),
      // Not `getData`, which turns the tensor into one on the host.
      read: () => this.#read(buffer, dtype, output.dims, byteLen),
      detach: () => {
        // The buffer belongs to the session's pool, which goes when the session goes.
        const copy = this.#createBuffer(byteLen);
        const encoder = this.#device.createCommandEncoder();
        encoder.copyBufferToBuffer(buffer, 0, copy, 0, padded(byteLen, 4));
        this.#device.queue.submit([encoder.finish()]);
        output.dispose();
        return this.#own(copy, dtype, output.dims, byteLen);
      },
      dispose: () => output.dispose(),
    };
  }

  fenced<T>(work: () => Promise<T>, read?: () => Promise<unknown>): Promise<T> {
    return poked(this.#device.queue, () => this.#fenced(work, read));
  }

  async #fenced<T>(work: () => Promise<T>, read?: () => Promise<unknown>): Promise<T> {
    this.#loss.check();
    this.#uncaptured = [];
    for (const filter of ERROR_FILTERS) {
      this.#device.pushErrorScope(filter);
    }
    const [done] = await Promise.allSettled([this.#loss.race(work())]);
    this.#loss.check();
    // Begun within the scopes, so that they catch its errors too.
    const isRead = done.status === "fulfilled" && read !== undefined;
    const through = Promise.allSettled([isRead ? read() : this.#fence()]);
    const errors = ERROR_FILTERS.map(() => this.#device.popErrorScope().catch(() => null));
    const [[came], ...seen] = await this.#loss.race(Promise.all([through, ...errors]));
    if (!isRead && came.status === "rejected") {
      throw came.reason;
    }
    const error = seen.find((error) => error !== null) ?? this.#uncaptured[0];
    if (error) {
      await this.#loss.blame();
      throw gpuFailure(error);
    }
    if (done.status === "rejected") {
      throw done.reason;
    }
    if (came.status === "rejected") {
      throw came.reason;
    }
    return done.value;
  }

  lost(): string | null {
    return this.#loss.reason();
  }

  onLost(tell: (reason: string) => void): void {
    this.#loss.listen(({ message }) => tell(message));
  }

  /**
   * Waits for all work that was submitted, by a number that has to come through the queue: a lost
   * GPU ends other ways of waiting without an error.
   */
  async #fence(): Promise<void> {
    try {
      await this.#tickThrough();
    } catch (error) {
      // Without a fence nothing can be told any more about what the GPU has done.
      const why = error instanceof Error ? error.message : String(error);
      throw new EngineError("device", `the GPU did not do the work it was given: ${why}`, true);
    }
  }

  async #tickThrough(): Promise<void> {
    this.#ticks = (this.#ticks + 1) % 2 ** 32;
    const { source, target } = this.#tick;
    this.#device.queue.writeBuffer(source, 0, new Uint32Array([this.#ticks]));
    const encoder = this.#device.createCommandEncoder();
    encoder.copyBufferToBuffer(source, 0, target, 0, 4);
    this.#device.queue.submit([encoder.finish()]);
    await target.mapAsync(GPUMapMode.READ);
    const [tick] = new Uint32Array(target.getMappedRange());
    target.unmap();
    if (tick !== this.#ticks) {
      throw new Error("another number came through its queue");
    }
  }

  async #read(
    buffer: GPUBuffer,
    dtype: Dtype,
    dims: readonly number[],
    byteLen: number,
  ): Promise<HostTensor> {
    const size = padded(byteLen, 4);
    const bytes = await this.#readParts(buffer, [{ from: 0, to: size }], byteLen);
    return { dtype: dtype.name, dims: [...dims], bytes };
  }

  /** Reads parts of a buffer one behind the other; `byteLen` bytes of them are wanted. */
  async #readParts(
    buffer: GPUBuffer,
    parts: Part[],
    byteLen: number,
  ): Promise<Uint8Array<ArrayBuffer>> {
    this.#loss.check();
    const size = parts.reduce((size, { from, to }) => size + to - from, 0);
    if (size === 0) {
      return new Uint8Array();
    }
    const { COPY_DST, MAP_READ } = GPUBufferUsage;
    const staging = this.#device.createBuffer({ size, usage: COPY_DST | MAP_READ });
    try {
      const encoder = this.#device.createCommandEncoder();
      let at = 0;
      for (const { from, to } of parts) {
        encoder.copyBufferToBuffer(buffer, from, staging, at, to - from);
        at += to - from;
      }
      this.#device.queue.submit([encoder.finish()]);
      const mapped = () => this.#loss.race(staging.mapAsync(GPUMapMode.READ));
      await poked(this.#device.queue, mapped);
      return new Uint8Array(staging.getMappedRange().slice(0, byteLen));
    } finally {
      staging.destroy();
    }
  }

  /** Reads what a window shows, and little more: the GPU copies multiples of four bytes only. */
  async #readWindow(
    buffer: GPUBuffer,
    dtype: Dtype,
    byteLen: number,
    window: TensorWindow,
  ): Promise<HostTensor> {
    const runs = runsOf(window, dtype, byteLen);
    const ends = runs.starts.map((start) => start + runs.byteLen);
    const first = runs.starts[0] ?? 0;
    // Of many small runs, what lies between them is read too.
    const isApart = runs.starts.length <= MOST_COPIES;
    const parts = isApart
      ? runs.starts.map((start, run) => aligned(start, ends[run] ?? start))
      : [aligned(first, ends.at(-1) ?? first)];
    const places: number[] = [];
    let size = 0;
    for (const { from, to } of parts) {
      places.push(size);
      size += to - from;
    }
    const bytes = await this.#readParts(buffer, parts, size);
    const find = (start: number, run: number) => {
      const part = isApart ? run : 0;
      return (places[part] ?? 0) + start - (parts[part]?.from ?? 0);
    };
    return { dtype: dtype.name, dims: [...window.dims], bytes: gathered(runs, bytes, find) };
  }

  /** A new buffer with these bytes. */
  #write(bytes: Uint8Array<ArrayBuffer>): GPUBuffer {
    const { byteLength: byteLen } = bytes;
    const { maxBufferSize } = this.#device.limits;
    if (byteLen > maxBufferSize) {
      throw new EngineError(
        "memory",
        `${byteLen} bytes do not fit into a buffer of this GPU, which holds ${maxBufferSize}`,
      );
    }
    const buffer = this.#createBuffer(byteLen);
    const whole = bytes.subarray(0, byteLen - (byteLen % 4));
    this.#device.queue.writeBuffer(buffer, 0, whole);
    if (whole.byteLength < byteLen) {
      // The queue writes multiples of four bytes only.
      const rest = new Uint8Array(4);
      rest.set(bytes.subarray(whole.byteLength));
      this.#device.queue.writeBuffer(buffer, whole.byteLength, rest);
    }
    return buffer;
  }

  #createBuffer(byteLen: number): GPUBuffer {
    const { COPY_DST, COPY_SRC, STORAGE } = GPUBufferUsage;
    return this.#device.createBuffer({
      // Empty tensors have a buffer too, so that they are like all others.
      size: Math.max(padded(byteLen, 16), 16),
      usage: COPY_DST | COPY_SRC | STORAGE,
    });
  }

  /** One to keep: what ONNX Runtime does not take from a buffer is fed from the page's memory. */
  #keep(buffer: GPUBuffer, dtype: Dtype, dims: readonly number[], byteLen: number): Resident {
    const own = this.#own(buffer, dtype, dims, byteLen);
    const feed = async () => hostResident(this.#ort, await own.read(false)).feed();
    const resident = { ...own, feed, detach: () => resident };
    return dtype.onGpu && byteLen > 0 ? own : resident;
  }

  /** A copy of a part of a buffer, if it can be made of multiples of four bytes. */
  #copy(
    buffer: GPUBuffer,
    dtype: Dtype,
    dims: readonly number[],
    byteLen: number,
    window: TensorWindow | null,
  ): Resident | null {
    const whole = { starts: [0], byteLen: padded(byteLen, 4) };
    const runs = window === null ? whole : runsOf(window, dtype, byteLen);
    const isAligned = (at: number) => at % 4 === 0;
    if (runs.starts.length > MOST_COPIES || ![...runs.starts, runs.byteLen].every(isAligned)) {
      return null;
    }
    const copiedBytes = window === null ? byteLen : runs.starts.length * runs.byteLen;
    const copy = this.#createBuffer(copiedBytes);
    const encoder = this.#device.createCommandEncoder();
    for (const [run, start] of runs.starts.entries()) {
      encoder.copyBufferToBuffer(buffer, start, copy, run * runs.byteLen, runs.byteLen);
    }
    this.#device.queue.submit([encoder.finish()]);
    return this.#keep(copy, dtype, window?.dims ?? dims, copiedBytes);
  }

  #own(buffer: GPUBuffer, dtype: Dtype, dims: readonly number[], byteLen: number): Feedable {
    const dataType = dtype.ort as Tensor.GpuBufferDataTypes;
    const resident: Feedable = {
      dtype: dtype.name,
      dims,
      byteLen,
      onDevice: true,
      readWindow: (window) => this.#readWindow(buffer, dtype, byteLen, window),
      copy: (window) => this.#copy(buffer, dtype, dims, byteLen, window),
      feed: () => this.#ort.Tensor.fromGpuBuffer(buffer as never, { dataType, dims }),
      read: () => this.#read(buffer, dtype, dims, byteLen),
      detach: () => resident,
      dispose: () => buffer.destroy(),
    };
    return resident;
  }
}

/** Bytes of a buffer, from and to multiples of four. */
interface Part {
  from: number;
  to: number;
}

function aligned(start: number, end: number): Part {
  return { from: start - (start % 4), to: padded(end, 4) };
}

/** Runs of bytes that are copied one by one. */
const MOST_COPIES = 1024;

/** Those that ONNX Runtime's shaders make use of. */
const USEFUL_FEATURES: GPUFeatureName[] = ["shader-f16", "subgroups", "timestamp-query"];

const ERROR_FILTERS: GPUErrorFilter[] = ["validation", "out-of-memory", "internal"];

function gpuFailure(error: GPUError): EngineError {
  const outOfMemory = error instanceof GPUOutOfMemoryError;
  return new EngineError(outOfMemory ? "memory" : "device", `the GPU reports: ${error.message}`);
}

function padded(byteLen: number, unit: number): number {
  return Math.ceil(byteLen / unit) * unit;
}
