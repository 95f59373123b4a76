/*
 * A lane: takes requests from Holdfast, has the engine do them one at a time, and keeps answers
 * until they are acknowledged. Everything that touches the world is passed in.
 */

import { SPARE_FROM_BYTES } from "#engine/spare";
import { Answers } from "#lane/answers";
import type { BlobSource } from "#lane/blobs";
import type { Clock } from "#lane/clock";
import { type Broken, buffersOf } from "#lane/engine-calls";
import type { DisposableEngine } from "#lane/engine-client";
import { Holdings } from "#lane/holdings";
import { type LaneStatus, StatusReporter } from "#lane/lane-status";
import { Line, type LineOwner, type LineState } from "#lane/line";
import { LoadTask } from "#lane/load-task";
import type { Letter } from "#lane/outbox";
import { type Failure, failureOf } from "#lane/request-error";
import { RunTask } from "#lane/run-task";
import { CopyTask, DropTask, GetTask, PutTask, UnloadTask } from "#lane/small-tasks";
import type { Socket } from "#lane/socket";
import type { Task, TaskContext } from "#lane/task";
import { Turns } from "#lane/turns";
import { type Bytes, FrameError } from "#wire/frame";
import type { ErrorKind, Hello, LaneStats, PowerInfo, ToLane, Welcome } from "#wire/messages";

export interface LaneParts {
  /** Who the lane is; it fills in the rest. */
  hello: Omit<Hello, "resume">;
  openSocket: () => Socket;
  /** `onBroken` is called when the engine fails by itself. */
  createEngine: (onBroken: (broken: Broken) => void) => DisposableEngine;
  blobs: BlobSource;
  clock: Clock;
  onStatus?: (status: LaneStatus) => void;
}

/** How long an engine may take to come back from something that was given up. */
export const GRACE_MS = 3000;
/** How long an engine that holds nothing may stay, in case that the next load comes soon. */
export const IDLE_MS = 1000;
/**
 * Engines in a row that find nothing to compute on before the lane goes. A GPU whose process ended
 * may not be back for the first one.
 */
const STARTS_IN_VAIN = 2;
/** Blobs that may wait in memory for the engine's turn. */
const FETCHED_BYTES_LIMIT = 1024 * 1024 * 1024;

type Request = Extract<
  ToLane,
  { type: "load" | "unload" | "put" | "get" | "copy" | "drop" | "run" }
>;

export class Lane implements LineOwner, TaskContext {
  readonly clock: Clock;
  readonly blobs: BlobSource;
  readonly holdings = new Holdings();
  tensorLimitBytes = 0;
  readonly #parts: LaneParts;
  readonly #line: Line;
  readonly #answers: Answers;
  readonly #turns = new Turns<Task>();
  /** Tasks that are not answered yet, waiting or under way. */
  readonly #tasks = new Map<number, { task: Task; stopDeadline: () => void }>();
  readonly #reporter: StatusReporter;
  #engine: DisposableEngine | null = null;
  #underWay: Task | null = null;
  #stopGrace: () => void = () => {};
  #stopIdle: () => void = () => {};
  #session: string | null = null;
  #restarts = 0;
  #startsInVain = 0;
  #power: PowerInfo;
  /** What the last hello said of it. */
  #helloPower: PowerInfo;

  constructor(parts: LaneParts) {
    this.#parts = parts;
    this.#power = this.#helloPower = parts.hello.power;
    this.clock = parts.clock;
    this.blobs = parts.blobs;
    this.#line = new Line(this, parts.openSocket, parts.clock);
    this.#answers = new Answers(({ message, body }) => this.#line.send(message, body));
    this.#reporter = new StatusReporter(parts.clock, () => this.#status(), parts.onStatus);
  }

  start(): void {
    this.#line.start();
  }

  /** Ends the lane, and says so if it can. */
  stop(reason: string): void {
    this.#line.send({ type: "bye", reason });
    this.#line.end(reason);
  }

  /** The device can spare more or less than before. */
  setPower(power: PowerInfo): void {
    this.#power = power;
    // If it is not welcome at the moment, the next hello or what follows a welcome tells.
    this.#line.send({ type: "power", power });
  }

  /** The network is back. */
  retryNow(): void {
    this.#line.retryNow();
  }

  hello(): Hello {
    const session = this.#session;
    const resume = session === null ? null : { session, requests: this.#answers.numbers() };
    const { hello } = this.#parts;
    const storage = { ...hello.storage, usedBytes: this.blobs.usedBytes };
    this.#helloPower = this.#power;
    return { ...hello, storage, power: this.#power, resume };
  }

  welcomed(welcome: Welcome): void {
    this.tensorLimitBytes = welcome.tensorLimitBytes;
    this.blobs.admit(welcome.blobKey, welcome.cacheLimitBytes);
    if (!welcome.resumed) {
      this.#startEmpty();
    }
    this.#session = welcome.session;
    if (this.#power !== this.#helloPower) {
      this.#line.send({ type: "power", power: this.#power });
    }
    this.#answers.resume();
  }

  lineChanged(state: LineState): void {
    if (state.type === "ended") {
      this.#session = null;
      this.#startEmpty();
    }
    this.#reporter.now();
  }

  received(message: Parameters<LineOwner["received"]>[0], body: Bytes): void {
    switch (message.type) {
      case "ping":
        this.#line.send({ type: "pong", nonce: message.nonce });
        break;
      case "ack":
        this.#giveBack(this.#answers.acknowledge(message.requests));
        break;
      case "cancel":
        this.#giveUp(message.request, "cancelled", "the request was cancelled");
        break;
      case "stats":
        this.#line.send({ type: "stats", request: message.request, stats: this.#stats() });
        break;
      case "leave":
        this.#leave(message.reason, message.comeBack);
        break;
      case "load":
      case "unload":
      case "put":
      case "get":
      case "copy":
      case "drop":
      case "run":
        this.#ask(message, body);
        break;
      default:
        throw new FrameError(`a message of the unknown type ${(message as ToLane).type}`);
    }
  }

  hadNoRoom(message: ToLane, bodyLen: number): void {
    if (!("request" in message) || !this.#answers.begin(message.request, 0)) {
      return;
    }
    const text = `there is no memory for a ${message.type} of ${bodyLen} bytes`;
    this.#answers.fail(message.request, "memory", text);
  }

  startEngine(): void {
    this.#ensureEngine();
  }

  advance(): void {
    const task = this.#turns.next(this.#underWay);
    this.#reporter.soon();
    if (task) {
      this.#underWay = task;
      void this.#work(task);
    }
    this.#watchIdle();
  }

  failed(task: Task, error: unknown): void {
    if (this.#turns.remove(task)) {
      this.#fail(task, failureOf(error));
    }
    this.advance();
  }

  say(task: Task, said: Letter): void {
    if (task.givenUp || !this.#tasks.has(task.request)) {
      return;
    }
    this.#reporter.soon();
    if (said.message.type !== "part") {
      this.#line.send(said.message, said.body);
      return;
    }
    const unsendable = this.#answers.part(task.request, said);
    if (unsendable !== null) {
      this.#giveUp(task.request, "protocol", unsendable);
    }
  }

  /** The engine can use the memory of an answer again, unless the answer is being said once more. */
  #giveBack(heard: Letter[]): void {
    if (this.#line.isSending) {
      return;
    }
    const buffers = buffersOf(heard.flatMap((letter) => letter.body));
    this.#engine?.takeBack(buffers.filter((buffer) => buffer.byteLength >= SPARE_FROM_BYTES));
  }

  #ask(message: Request, body: Bytes): void {
    const { request } = message;
    if (!this.#answers.begin(request, body.length)) {
      return;
    }
    try {
      this.#add(this.#task(message, body));
    } catch (error) {
      const { kind, message: text } = failureOf(error);
      // What is not told apart here is a field that is missing or of the wrong type.
      this.#answers.fail(request, kind === "device" ? "protocol" : kind, text);
    }
  }

  #task(message: Request, body: Bytes): Task {
    switch (message.type) {
      case "load":
        return new LoadTask(this, message, (task) => this.#mayFetch(task));
      case "run":
        return new RunTask(this, message, body);
      case "put":
        return new PutTask(this, message, body);
      case "get":
        return new GetTask(this, message);
      case "copy":
        return new CopyTask(this, message);
      case "drop":
        return new DropTask(this, message);
      case "unload":
        return new UnloadTask(this, message);
    }
  }

  #add(task: Task): void {
    let stopDeadline = () => {};
    if (task instanceof RunTask) {
      const { request, deadlineMs } = task;
      stopDeadline = this.clock.after(deadlineMs, () =>
        this.#giveUp(request, "timeout", `the deadline of ${deadlineMs} ms passed`),
      );
    }
    this.#tasks.set(task.request, { task, stopDeadline });
    this.#turns.add(task);
    this.advance();
  }

  async #work(task: Task): Promise<void> {
    let engine: DisposableEngine | null = null;
    try {
      task.check();
      engine = this.#ensureEngine();
      const answer = await task.perform(engine);
      // An engine that is gone took its task along, and that was seen to.
      if (this.#engine !== engine) {
        return;
      }
      this.#finish(task, answer);
    } catch (error) {
      if (engine !== null && this.#engine !== engine) {
        return;
      }
      const failure = failureOf(error);
      // Told before the answer, so that nobody acts on the answer and still counts on what is gone.
      if (failure.fatal) {
        this.#lose(failure.message);
      }
      this.#fail(task, failure);
    }
    this.#stopGrace();
    this.#underWay = null;
    this.advance();
  }

  #ensureEngine(): DisposableEngine {
    if (this.#engine) {
      return this.#engine;
    }
    const engine = this.#parts.createEngine(({ reason, backendGone }) => {
      if (this.#engine !== engine) {
        return;
      }
      this.#startsInVain += backendGone ? 1 : 0;
      if (this.#startsInVain >= STARTS_IN_VAIN) {
        // Whoever asks is better off elsewhere, and a browser that was started is replaced.
        this.stop(reason);
        return;
      }
      // A task under way fails by itself, with what it was about.
      if (this.#underWay !== null) {
        return;
      }
      this.#lose(reason);
      this.advance();
    });
    this.#engine = engine;
    return engine;
  }

  #giveUp(request: number, kind: ErrorKind, message: string): void {
    const task = this.#tasks.get(request)?.task;
    if (!task || task.givenUp) {
      return;
    }
    task.givenUp = true;
    task.stop();
    const failure = { kind, message };
    if (this.#turns.remove(task)) {
      this.#fail(task, failure);
      this.advance();
      return;
    }
    if (!task.committed) {
      this.#fail(task, failure);
    }
    this.#engine?.cancel();
    this.#stopGrace = this.clock.after(GRACE_MS, () => {
      this.#lose(`the engine did not come back from ${task.kind} ${request} (${message})`);
      this.#fail(task, failure);
      this.advance();
    });
  }

  /** The engine is of no use any more. The next task that can go on gets a new one. */
  #lose(reason: string): void {
    this.#endEngine();
    this.#restarts += 1;
    this.holdings.lose();
    this.#answers.lose(reason);
    this.#reporter.noteError(reason);
  }

  /** The memory of an engine only comes back with its end: one that holds nothing may go. */
  #watchIdle(): void {
    this.#stopIdle();
    const isIdle = this.#underWay === null && this.#tasks.size === 0 && this.holdings.isEmpty;
    if (!isIdle || this.#engine === null) {
      return;
    }
    this.#stopIdle = this.clock.after(IDLE_MS, () => {
      this.#endEngine();
      this.holdings.lose();
      this.#reporter.soon();
    });
  }

  #leave(reason: string, comeBack: boolean): void {
    if (!comeBack) {
      this.stop(reason);
      return;
    }
    this.#session = null;
    this.#startEmpty();
    this.#line.hangUp(reason);
  }

  /** Nobody knows any more what was asked and loaded before. */
  #startEmpty(): void {
    for (const { task, stopDeadline } of this.#tasks.values()) {
      stopDeadline();
      task.stop();
    }
    this.#tasks.clear();
    this.#turns.clear();
    this.#answers.clear();
    this.#endEngine();
    this.holdings.clear();
  }

  #endEngine(): void {
    this.#stopGrace();
    this.#stopIdle();
    this.#underWay = null;
    const engine = this.#engine;
    this.#engine = null;
    engine?.terminate();
  }

  #finish(task: Task, answer: Letter): void {
    if (!this.#settleTask(task)) {
      return;
    }
    this.#startsInVain = 0;
    this.#reporter.done += 1;
    this.#answers.answer(task.request, answer);
  }

  #fail(task: Task, { kind, message }: Pick<Failure, "kind" | "message">): void {
    if (!this.#settleTask(task)) {
      return;
    }
    this.#reporter.failed += 1;
    this.#reporter.noteError(`a ${task.kind} failed: ${message}`);
    this.#answers.fail(task.request, kind, message);
  }

  /** False if the task was answered before. */
  #settleTask(task: Task): boolean {
    const entry = this.#tasks.get(task.request);
    if (entry?.task !== task) {
      return false;
    }
    entry.stopDeadline();
    this.#tasks.delete(task.request);
    this.#reporter.soon();
    return true;
  }

  #mayFetch(task: LoadTask): boolean {
    let held = 0;
    for (const other of this.#tasks.values()) {
      if (other.task instanceof LoadTask && other.task.holdsBlobs) {
        held += other.task.totalBytes;
      }
    }
    return held === 0 || held + task.totalBytes <= FETCHED_BYTES_LIMIT;
  }

  #stats(): LaneStats {
    return {
      segments: this.holdings.segments.size,
      tensors: this.holdings.tensors.size,
      tensorBytes: this.holdings.tensorBytes,
      deviceTensorBytes: this.holdings.deviceTensorBytes,
      liftedBytes: this.holdings.liftedBytes,
      unacknowledged: this.#answers.unacknowledged,
      cacheBytes: this.blobs.usedBytes,
      downloadedBytes: this.blobs.downloadedBytes,
      engineRestarts: this.#restarts,
      engineHeapBytes: this.holdings.heapBytes,
    };
  }

  #status(): Omit<LaneStatus, "done" | "failed" | "lastError"> {
    const downloads = { doneBytes: 0, totalBytes: 0 };
    for (const { task } of this.#tasks.values()) {
      if (!(task instanceof LoadTask)) {
        continue;
      }
      downloads.doneBytes += task.doneBytes;
      downloads.totalBytes += task.totalBytes;
    }
    return {
      line: this.#line.state,
      running: this.#underWay?.kind ?? null,
      waiting: this.#turns.length,
      segmentBytes: this.holdings.segmentBytes,
      downloads: downloads.totalBytes > 0 ? downloads : null,
      stats: this.#stats(),
    };
  }
}
