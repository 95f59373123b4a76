/* A lane whose socket, engine, blobs and clock do what a test says. */

import {
  EngineError,
  type HostOutput,
  type HostTensor,
  type LoadTimes,
  type Program,
  type ProgramOutcome,
  type SegmentFiles,
} from "#engine/engine";
import type { BlobSource, FetchedBlobs } from "#lane/blobs";
import type { Clock } from "#lane/clock";
import type { Broken } from "#lane/engine-calls";
import type { DisposableEngine } from "#lane/engine-client";
import { Lane } from "#lane/lane";
import type { LaneStatus } from "#lane/lane-status";
import type { Socket } from "#lane/socket";
import { Assembler, type Bytes, type Received, split } from "#wire/frame";
import type {
  BlobRef,
  ErrorKind,
  FromLane,
  Hello,
  LoadPhase,
  TensorWindow,
  ToLane,
  Welcome,
} from "#wire/messages";

export class ScriptedClock implements Clock {
  #now = 0;
  #timers: { at: number; callback: () => void }[] = [];

  now(): number {
    return this.#now;
  }

  after(ms: number, callback: () => void): () => void {
    const timer = { at: this.#now + ms, callback };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }

  random(): number {
    return 0;
  }

  /** Lets time pass, and what is due happen. */
  async pass(ms: number): Promise<void> {
    const end = this.#now + ms;
    for (;;) {
      const next = this.#timers.filter(({ at }) => at <= end).sort((a, b) => a.at - b.at)[0];
      if (!next) {
        break;
      }
      this.#now = Math.max(this.#now, next.at);
      this.#timers = this.#timers.filter((other) => other !== next);
      next.callback();
      await settled();
    }
    this.#now = end;
  }
}

export class ScriptedSocket implements Socket {
  binaryType: BinaryType = "blob";
  bufferedAmount = 0;
  onopen: Socket["onopen"] = null;
  onmessage: Socket["onmessage"] = null;
  onclose: Socket["onclose"] = null;
  closed = false;
  frames = 0;
  readonly received: Received<FromLane>[] = [];
  readonly #assembler = new Assembler<FromLane>();

  send(frame: Uint8Array<ArrayBuffer>): void {
    if (this.closed) {
      throw new Error("sent on a closed socket");
    }
    this.frames += 1;
    const received = this.#assembler.push(frame.slice().buffer);
    if (received) {
      this.received.push(received);
    }
  }

  close(): void {
    this.closed = true;
  }

  open(): void {
    this.onopen?.({} as Event);
  }

  say(message: ToLane, body: Bytes[] = []): void {
    for (const bytes of [...split(0, message, body)].flat()) {
      this.sayRaw(bytes.slice().buffer);
    }
  }

  sayRaw(data: unknown): void {
    this.onmessage?.({ data } as MessageEvent);
  }

  cut(): void {
    this.onclose?.({ code: 1006, reason: "" } as CloseEvent);
  }

  /** What came since the last time. */
  take(): FromLane[] {
    return this.received.splice(0).map(({ message }) => message);
  }
}

interface Call {
  name: string;
  resolve(value?: unknown): void;
  reject(kind: ErrorKind, message?: string, fatal?: boolean, lostSegment?: string): void;
  part(outputs: HostOutput[]): void;
  phase(phase: LoadPhase): void;
}

/** Notes calls. `load`, `run`, `get` and `put` are answered by the test, all others at once. */
export class ScriptedEngine implements DisposableEngine {
  readonly calls: string[] = [];
  /** What it was to load. */
  readonly loads: SegmentFiles[] = [];
  open: Call[] = [];
  terminated = false;
  cancels = 0;
  /** Set by a test whose device is gone. */
  dead: string | null = null;
  segments = 0;
  tensorBytes = 0;
  readonly #onBroken: (broken: Broken) => void;

  constructor(onBroken: (broken: Broken) => void) {
    this.#onBroken = onBroken;
  }

  onBroken(reason: string, backendGone = false): void {
    this.#onBroken({ reason, backendGone });
  }

  load(files: SegmentFiles, onPhase: (phase: LoadPhase) => void) {
    this.loads.push(files);
    return this.#later<LoadTimes>(`load ${files.segment}`, { onPhase });
  }
  run(program: Program, onPart: (outputs: HostOutput[]) => void) {
    const names = program.steps.map(({ segment }) => segment).join("+");
    return this.#later<ProgramOutcome>(`run ${names}`, { onPart });
  }
  get(name: string) {
    return this.#later<HostTensor>(`get ${name}`);
  }
  put(name: string, tensor: HostTensor) {
    this.tensorBytes += tensor.bytes.length;
    return this.#later<void>(`put ${name}`);
  }
  async unload(segment: string) {
    this.calls.push(`unload ${segment}`);
    this.segments -= 1;
  }
  async copy(name: string, _window: TensorWindow | null, to: string) {
    this.calls.push(`copy ${name} ${to}`);
    return 0;
  }
  async drop(name: string) {
    this.calls.push(`drop ${name}`);
  }
  async settle(keep: boolean) {
    this.calls.push(`settle ${keep}`);
  }
  async stats() {
    if (this.dead !== null) {
      throw new EngineError("device", this.dead, true);
    }
    const { segments, tensorBytes } = this;
    const tensors = { tensors: 0, tensorBytes, deviceTensorBytes: 0 };
    return { segments, ...tensors, liftedBytes: 7, heapBytes: 5 };
  }
  cancel() {
    this.cancels += 1;
  }
  takeBack(buffers: ArrayBuffer[]) {
    this.calls.push(...buffers.map((buffer) => `take back ${buffer.byteLength}`));
  }
  terminate() {
    this.terminated = true;
    for (const call of this.open.splice(0)) {
      call.reject("device", "the engine was ended", true);
    }
  }

  /** The call under way. */
  get current(): Call {
    const [call] = this.open;
    if (!call) {
      throw new Error(`no call is under way; there were ${this.calls.join(", ")}`);
    }
    return call;
  }

  #later<T>(
    name: string,
    listeners: {
      onPart?: (outputs: HostOutput[]) => void;
      onPhase?: (phase: LoadPhase) => void;
    } = {},
  ): Promise<T> {
    this.calls.push(name);
    if (this.open.length > 0) {
      throw new Error(`${name} while ${this.open[0]?.name} is under way`);
    }
    return new Promise<T>((resolve, reject) => {
      const end = () => {
        this.open = this.open.filter((other) => other !== call);
      };
      const call: Call = {
        name,
        resolve: (value) => {
          end();
          if (name.startsWith("load")) {
            this.segments += 1;
          }
          resolve(value as T);
        },
        reject: (kind, message = "scripted", fatal = false, lostSegment) => {
          end();
          reject(new EngineError(kind, message, fatal, lostSegment));
        },
        part: (outputs) => listeners.onPart?.(outputs),
        phase: (phase) => listeners.onPhase?.(phase),
      };
      this.open.push(call);
    });
  }
}

/** Blobs that are there at once, unless the test holds them back. */
export class ScriptedBlobs implements BlobSource {
  usedBytes = 0;
  downloadedBytes = 0;
  key = "";
  /** The names of what was fetched, load by load. */
  readonly asked: string[][] = [];
  readonly held: {
    signal: AbortSignal;
    progress: (bytes: number) => void;
    give: () => void;
    fail: (error: Error) => void;
  }[] = [];
  holdBack = false;

  admit(key: string): void {
    this.key = key;
  }

  fetch(blobs: BlobRef[], signal: AbortSignal, progress: (bytes: number) => void) {
    this.asked.push(blobs.map(({ name }) => name));
    const bytes = new Map(blobs.map(({ name }) => [name, new Uint8Array(0)]));
    const fetched = { bytes, traffic: { downloadedBytes: 3, cachedBytes: 4 } };
    if (!this.holdBack) {
      return Promise.resolve(fetched);
    }
    return new Promise<FetchedBlobs>((resolve, reject) => {
      this.held.push({ signal, progress, give: () => resolve(fetched), fail: reject });
    });
  }
}

export class ScriptedLane {
  readonly clock = new ScriptedClock();
  readonly sockets: ScriptedSocket[] = [];
  readonly engines: ScriptedEngine[] = [];
  readonly blobs = new ScriptedBlobs();
  readonly statuses: LaneStatus[] = [];
  readonly lane: Lane;

  constructor() {
    this.lane = new Lane({
      hello: HELLO,
      openSocket: () => {
        const socket = new ScriptedSocket();
        this.sockets.push(socket);
        return socket;
      },
      createEngine: (onBroken) => {
        const engine = new ScriptedEngine(onBroken);
        this.engines.push(engine);
        return engine;
      },
      blobs: this.blobs,
      clock: this.clock,
      onStatus: (status) => this.statuses.push(status),
    });
    this.lane.start();
  }

  /** One that is welcome and has said nothing but hello. */
  static async welcome(welcome: Partial<Welcome> = {}): Promise<ScriptedLane> {
    const lane = new ScriptedLane();
    lane.socket.open();
    lane.greet(welcome);
    lane.socket.take();
    return lane;
  }

  /** One that has the segments `a` and `b`, and the tensor `t`. */
  static async loaded(welcome: Partial<Welcome> = {}): Promise<ScriptedLane> {
    const lane = await ScriptedLane.welcome(welcome);
    for (const [at, segment] of ["a", "b"].entries()) {
      await lane.ask(load(901 + at, segment));
      await lane.answer(LOADED);
    }
    await lane.ask(put(903, "t"), [new Uint8Array(8)]);
    await lane.answer();
    lane.socket.say({ type: "ack", requests: [901, 902, 903] });
    lane.socket.take();
    return lane;
  }

  get socket(): ScriptedSocket {
    return this.sockets.at(-1) as ScriptedSocket;
  }

  get engine(): ScriptedEngine {
    return this.engines.at(-1) as ScriptedEngine;
  }

  greet(welcome: Partial<Welcome> = {}): void {
    this.socket.say({ type: "welcome", ...WELCOME, ...welcome });
  }

  async ask(message: ToLane, body: Bytes[] = []): Promise<void> {
    this.socket.say(message, body);
    await settled();
  }

  /** The engine answers the call under way. */
  async answer(value?: unknown): Promise<void> {
    this.engine.current.resolve(value);
    await settled();
  }

  /** The line that was cut is back, and the lane goes on where it was. */
  async comeBack(): Promise<void> {
    await this.clock.pass(100);
    this.socket.open();
    this.socket.take();
    this.greet({ resumed: true });
  }

  /** Cuts the line, and comes back after a while. Gives the hello. */
  async reconnect(): Promise<Hello> {
    this.socket.cut();
    await this.clock.pass(100);
    this.socket.open();
    return this.socket.take()[0] as Extract<FromLane, { type: "hello" }>;
  }
}

export const LOADED: LoadTimes = {
  createMs: 1,
  warmUpMs: null,
  warmUpError: null,
  placement: null,
};

export const OUTCOME: ProgramOutcome = {
  outputs: [],
  steps: [{ runMs: 1, readbackMs: 0 }],
  kept: [],
  heapBytes: 5,
};

/** The outcome of a program that keeps two numbers. */
export function keeping(tensor: string): ProgramOutcome {
  return { ...OUTCOME, kept: [{ tensor, dtype: "f32", dims: [2] }] };
}

export function run(
  request: number,
  segment = "a",
  options: { deadlineMs?: number; keep?: string; kept?: string } = {},
): Extract<ToLane, { type: "run" }> {
  const step = {
    segment,
    inputs: options.kept
      ? [{ name: "x", from: { type: "kept" as const, tensor: options.kept } }]
      : [],
    outputs: [{ name: "y", to: { returned: true, keep: options.keep ?? null } }],
    early: false,
  };
  return { type: "run", request, deadlineMs: options.deadlineMs ?? 10_000, steps: [step] };
}

export function load(request: number, segment: string, byteLen = 10): Load {
  const graph = { name: `sha256-${segment}`, byteLen };
  const rest = { weights: [], lifted: [], dims: {}, warmUp: [], outputs: [] };
  return { type: "load", request, segment, graph, ...rest };
}

/** A segment that takes this weight as an input. */
export function loadLifted(request: number, segment: string, weight: string): Load {
  const blob = { name: `sha256-${weight}`, byteLen: 20 };
  return { ...load(request, segment), lifted: [{ input: "w", blob, dtype: "f32", dims: [5] }] };
}

type Load = Extract<ToLane, { type: "load" }>;

export function put(request: number, tensor: string, byteLen = 8): ToLane {
  const value = { dtype: "u8", dims: [byteLen], offset: 0, byteLen };
  return { type: "put", request, tensor, value };
}

export function output(bytes: Uint8Array<ArrayBuffer>, name = "y", step = 0): HostOutput {
  return { step, name, value: { dtype: "u8", dims: [bytes.length], bytes } };
}

/** Everything that can happen without time passing has happened. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

const WELCOME: Welcome = {
  session: "s",
  resumed: false,
  name: "lane",
  blobKey: "key",
  cacheLimitBytes: 100,
  tensorLimitBytes: 100,
  frameBytes: 300_000,
  heartbeatMs: 60_000,
};

const HELLO: Omit<Hello, "resume"> = {
  protocol: 1,
  version: "0.0.0",
  page: "p",
  lane: 0,
  backend: "wasm",
  browser: { name: "Scripted", version: "1", platform: "Linux", mobile: false },
  machine: { cores: 1, memoryGib: null, crossOriginIsolated: true },
  webgpu: { type: "missing", reason: "scripted" },
  webnn: { type: "missing", reason: "scripted" },
  wasm: { simd: true, threads: 1, jspi: false },
  storage: { kind: "none", quotaBytes: null, usedBytes: 0 },
  power: { onBattery: null, batteryLevel: null, savesData: false, hidden: false, share: 1 },
};
