/*
 * The engine: sessions and kept tensors of one backend, behind the door that `engine.ts` describes.
 */

import { byteLenOf, dtypeNamed } from "#engine/dtypes";
import { allowEmbind } from "#engine/embind";
import {
  BackendGone,
  type Engine,
  EngineError,
  type EngineOptions,
  type EngineStats,
  type HostOutput,
  type HostTensor,
  type LoadTimes,
  type Program,
  type ProgramOutcome,
  type SegmentFiles,
} from "#engine/engine";
import { type During, toEngineError } from "#engine/failure";
import { GpuPlace, openGpu } from "#engine/gpu";
import { HostPlace, hostResident } from "#engine/host";
import { KeptTensors } from "#engine/kept";
import { LiftedWeights } from "#engine/lifted";
import { MlPlace, openMl } from "#engine/ml";
import { loadOrt, type Ort, type OrtModule, startOrt } from "#engine/ort";
import type { Place, Resident } from "#engine/place";
import { describePlacement } from "#engine/placement";
import { runProgram } from "#engine/program";
import { Queue } from "#engine/queue";
import { Session } from "#engine/session";
import { Spare } from "#engine/spare";
import { START_GRAPH } from "#engine/start";
import type { Backend, LoadPhase, TensorWindow } from "#wire/messages";

/**
 * Starts an engine. A worker can have one: ONNX Runtime's memory comes back only with the worker's
 * end. `onLost` is told when the backend is gone, be it while nothing runs.
 */
export async function createEngine(
  options: EngineOptions,
  onLost: (reason: string) => void = () => {},
): Promise<Engine> {
  try {
    const threads = options.backend === "wasm" ? options.threads : 1;
    const module = await loadOrt(options.backend, options.ortBase, threads);
    const spare = new Spare();
    const place = await openPlace(options.backend, module, spare);
    const { ort } = await startOrt(module, () =>
      module.InferenceSession.create(START_GRAPH, {
        executionProviders: [place.provider],
        graphOptimizationLevel: "disabled",
      }),
    );
    place.onLost(onLost);
    return new OrtEngine(ort, place, spare);
  } catch (error) {
    if (error instanceof BackendGone) {
      throw error;
    }
    const failure = toEngineError(error, "start", `the ${options.backend} engine cannot start`);
    throw new EngineError(failure.kind, failure.message, true);
  }
}

async function openPlace(backend: Backend, module: OrtModule, spare: Spare): Promise<Place> {
  switch (backend) {
    case "wasm":
      return new HostPlace(module, spare);
    case "webgpu":
      return new GpuPlace(module, await openGpu());
    case "webnn":
      allowEmbind();
      return new MlPlace(module, await openMl());
  }
}

class OrtEngine implements Engine {
  readonly #ort: Ort;
  readonly #place: Place;
  readonly #spare: Spare;
  readonly #queue = new Queue();
  readonly #sessions = new Map<string, Session>();
  readonly #lifted: LiftedWeights;
  /** Segments whose session was given up, and why. */
  readonly #givenUp = new Map<string, string>();
  readonly #kept = new KeptTensors();
  #aside = new Map<string, Resident>();
  #cancelled = false;
  #dead: EngineError | null = null;

  constructor(ort: Ort, place: Place, spare: Spare) {
    this.#ort = ort;
    this.#place = place;
    this.#spare = spare;
    this.#lifted = new LiftedWeights(place);
  }

  load(files: SegmentFiles, onPhase: (phase: LoadPhase) => void): Promise<LoadTimes> {
    return this.#turn("load", `segment ${files.segment} cannot be loaded`, async () => {
      const ready = this.#sessions.get(files.segment);
      if (ready !== undefined) {
        const placement = ready.placement && describePlacement(ready.placement);
        return { createMs: 0, warmUpMs: null, warmUpError: null, placement };
      }
      onPhase("create");
      const started = performance.now();
      const session = await this.#createSession(files);
      const createMs = performance.now() - started;
      this.#sessions.set(files.segment, session);
      this.#givenUp.delete(files.segment);
      const placement = session.placement && describePlacement(session.placement);
      if (files.warmUp.length === 0) {
        return { createMs, warmUpMs: null, warmUpError: null, placement };
      }
      onPhase("warm_up");
      return { createMs, ...(await this.#warmUp(files)), placement };
    });
  }

  unload(segment: string): Promise<void> {
    return this.#turn("load", `segment ${segment} cannot be let go`, async () => {
      const session = this.#sessions.get(segment);
      this.#sessions.delete(segment);
      this.#givenUp.delete(segment);
      await session?.release();
    });
  }

  put(name: string, tensor: HostTensor): Promise<void> {
    return this.#turn("transfer", `tensor \`${name}\` cannot be kept`, async () => {
      this.#kept.keep(name, await this.#place.upload(tensor));
    });
  }

  get(name: string, window: TensorWindow | null = null): Promise<HostTensor> {
    return this.#turn("transfer", `tensor \`${name}\` cannot be read`, () => {
      const kept = this.#kept.get(name);
      return window === null ? kept.read(false) : kept.readWindow(window);
    });
  }

  copy(name: string, window: TensorWindow | null, to: string): Promise<number> {
    return this.#turn("transfer", `tensor \`${name}\` cannot be copied`, async () => {
      const kept = this.#kept.get(name);
      const copied = await this.#place.fenced(async () => kept.copy?.(window) ?? null);
      const read = () => (window === null ? kept.read(false) : kept.readWindow(window));
      const copy = copied ?? (await this.#place.upload(await read()));
      this.#kept.keep(to, copy);
      return copy.byteLen;
    });
  }

  drop(name: string): Promise<void> {
    return this.#turn("transfer", `tensor \`${name}\` cannot be let go`, () =>
      this.#kept.drop(name),
    );
  }

  run(program: Program, onPart: (outputs: HostOutput[]) => void): Promise<ProgramOutcome> {
    return this.#turn("run", "the program failed", async () => {
      this.#letAsideGo();
      this.#cancelled = false;
      const { outputs, steps, aside } = await this.#runProgram(program, onPart);
      this.#aside = aside;
      const kept = [...aside].map(([tensor, { dtype, dims }]) => ({
        tensor,
        dtype,
        dims: [...dims],
      }));
      return { outputs, steps, kept, heapBytes: this.#ort.heapBytes() };
    });
  }

  settle(keep: boolean): Promise<void> {
    return this.#turn("transfer", "what the program keeps cannot be settled", () => {
      if (!keep) {
        this.#letAsideGo();
        return;
      }
      for (const [name, resident] of this.#aside) {
        this.#kept.keep(name, resident);
      }
      this.#aside = new Map();
    });
  }

  cancel(): void {
    this.#cancelled = true;
  }

  takeBack(buffers: ArrayBuffer[]): void {
    for (const buffer of buffers) {
      this.#spare.give(buffer);
    }
  }

  stats(): Promise<EngineStats> {
    return this.#turn("transfer", "the engine cannot be looked at", () => ({
      segments: this.#sessions.size,
      tensors: this.#kept.size,
      tensorBytes: this.#kept.byteLen,
      deviceTensorBytes: this.#kept.deviceByteLen,
      liftedBytes: this.#lifted.byteLen,
      heapBytes: this.#ort.heapBytes(),
    }));
  }

  /** Does `work` when its turn has come. After a fatal failure nothing has a turn any more. */
  #turn<T>(during: During, what: string, work: () => Promise<T> | T): Promise<T> {
    return this.#queue.run(async () => {
      const lost = this.#place.lost();
      this.#dead ??= lost === null ? null : new EngineError("device", lost, true);
      if (this.#dead !== null) {
        throw this.#dead;
      }
      const heapBytes = this.#ort.heapBytes() ?? 0;
      try {
        return await work();
      } catch (error) {
        const failure = this.#withMemory(toEngineError(error, during, what), heapBytes);
        if (failure.fatal) {
          this.#dead = failure;
        }
        throw failure;
      }
    });
  }

  /** A heap that grew until it was full does not shrink: only a new engine has memory again. */
  #withMemory(failure: EngineError, heapBytesBefore: number): EngineError {
    const grew = (this.#ort.heapBytes() ?? 0) > heapBytesBefore;
    const isFull = failure.kind === "memory" && grew && this.#place instanceof HostPlace;
    return isFull ? new EngineError("memory", failure.message, true) : failure;
  }

  #runProgram(program: Program, onPart: (outputs: HostOutput[]) => void) {
    return runProgram(program, {
      place: this.#place,
      session: (segment) => this.#session(segment),
      kept: (name) => this.#kept.get(name),
      inline: (tensor) => hostResident(this.#ort.module, tensor),
      checkCancelled: () => {
        if (this.#cancelled) {
          throw new EngineError("cancelled", "the program was cancelled between two steps");
        }
      },
      failed: (session) => this.#giveUp(session),
      onPart,
    });
  }

  /** Makes a session, and sees to it that its weights really are on the device. */
  async #createSession(files: SegmentFiles): Promise<Session> {
    let session: Session | null = null;
    try {
      return await this.#place.fenced(async () => {
        const lifted = this.#lifted.take(files.lifted);
        session = await Session.create(this.#ort, this.#place, files, lifted);
        return session;
      });
    } catch (error) {
      const failure = toEngineError(error, "load", `segment ${files.segment} cannot be loaded`);
      if (!failure.fatal) {
        await (session as Session | null)?.release();
      }
      throw failure;
    }
  }

  async #warmUp(files: SegmentFiles): Promise<Pick<LoadTimes, "warmUpMs" | "warmUpError">> {
    const started = performance.now();
    try {
      await this.#runProgram(zeros(files), () => undefined);
      return { warmUpMs: performance.now() - started, warmUpError: null };
    } catch (error) {
      const failure = toEngineError(error, "run", "the first run failed");
      if (failure.fatal) {
        throw failure;
      }
      if (!this.#sessions.has(files.segment)) {
        this.#sessions.set(files.segment, await this.#createSession(files));
        this.#givenUp.delete(files.segment);
      }
      return { warmUpMs: null, warmUpError: failure.message };
    }
  }

  /**
   * Lets a session go that failed while it ran. Where outputs stay on the device, ONNX Runtime binds
   * inputs to the session, and after a failure it goes on with those of the failed run: its next
   * answer would be wrong.
   */
  async #giveUp(session: Session): Promise<boolean> {
    if (this.#place instanceof HostPlace) {
      return false;
    }
    this.#sessions.delete(session.segment);
    this.#givenUp.set(session.segment, "its session failed while it ran");
    await session.release();
    return true;
  }

  #session(segment: string): Session {
    const session = this.#sessions.get(segment);
    if (session === undefined) {
      const why = this.#givenUp.get(segment);
      throw why === undefined
        ? new EngineError("caller", `segment ${segment} is not loaded`)
        : new EngineError("state_lost", `segment ${segment} has to be loaded again: ${why}`);
    }
    return session;
  }

  #letAsideGo(): void {
    for (const resident of this.#aside.values()) {
      resident.dispose();
    }
    this.#aside = new Map();
  }
}

/** A program that runs a segment once on zeros, for all its outputs. */
function zeros(files: SegmentFiles): Program {
  const byteLens = files.warmUp.map(({ dtype, dims }) => byteLenOf(dtypeNamed(dtype), dims));
  const body = new Uint8Array(Math.max(0, ...byteLens));
  const inputs = files.warmUp.map(({ name, dtype, dims }, position) => {
    const byteLen = byteLens[position] ?? 0;
    return { name, from: { type: "inline" as const, value: { dtype, dims, offset: 0, byteLen } } };
  });
  const outputs = files.outputs.map((name) => ({ name, to: { returned: false, keep: null } }));
  const step = { segment: files.segment, inputs, outputs, early: false };
  return { steps: [step], body };
}
