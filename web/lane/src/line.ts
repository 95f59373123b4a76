/*
 * The line to Holdfast: one socket at a time, hello and welcome, pings watched, and when it is cut,
 * another try after a while.
 */

import { backOffMs, type Clock } from "#lane/clock";
import { type Letter, Outbox, sendFrame } from "#lane/outbox";
import type { Socket } from "#lane/socket";
import { Assembler, FrameError, type Received, split } from "#wire/frame";
import type { FromLane, Hello, ToLane, Welcome } from "#wire/messages";

export type LineState =
  | { type: "connecting" }
  | { type: "connected"; name: string }
  | { type: "waiting"; forMs: number; reason: string }
  | { type: "ended"; reason: string };

/** What the line needs from the lane. */
export interface LineOwner {
  hello(): Hello;
  welcomed(welcome: Welcome): void;
  received(
    message: Exclude<ToLane, Welcome | { type: "refused" }>,
    body: Received<ToLane>["body"],
  ): void;
  /** A message came whose body does not fit into memory. */
  hadNoRoom(message: ToLane, bodyLen: number): void;
  lineChanged(state: LineState): void;
}

/** How long a server may take to say welcome. */
const WELCOME_MS = 15_000;
const HEARTBEATS = 3;
/** A close code of the range that applications may use. */
const PROTOCOL_BROKEN = 4002;

export class Line {
  readonly #owner: LineOwner;
  readonly #open: () => Socket;
  readonly #clock: Clock;
  #socket: Socket | null = null;
  #outbox: Outbox | null = null;
  #stopTimer: () => void = () => {};
  #attempt = 0;
  #heardAt = 0;
  #state: LineState = { type: "ended", reason: "not started" };

  constructor(owner: LineOwner, open: () => Socket, clock: Clock) {
    this.#owner = owner;
    this.#open = open;
    this.#clock = clock;
  }

  get state(): LineState {
    return this.#state;
  }

  /** Whether something large is on its way. */
  get isSending(): boolean {
    return this.#outbox?.isSending === true;
  }

  start(): void {
    if (this.#state.type !== "ended") {
      return;
    }
    this.#attempt = 0;
    this.#connect();
  }

  /** Sends if the lane is welcome at the moment; who needs more keeps the letter. */
  send(message: FromLane, body: Letter["body"] = []): void {
    this.#outbox?.send({ message, body });
  }

  /** Waiting has become pointless, for example because the network is back. */
  retryNow(): void {
    if (this.#state.type === "waiting") {
      this.#connect();
    }
  }

  /** Hangs up and looks for Holdfast again after a while. */
  hangUp(reason: string, code = 1000): void {
    if (this.#state.type === "ended") {
      return;
    }
    this.#letGo(code);
    const forMs = backOffMs(this.#attempt, this.#clock);
    this.#attempt += 1;
    this.#change({ type: "waiting", forMs, reason });
    this.#stopTimer = this.#clock.after(forMs, () => this.#connect());
  }

  /** Hangs up for good. */
  end(reason: string): void {
    if (this.#state.type === "ended") {
      return;
    }
    this.#letGo(1000);
    this.#change({ type: "ended", reason });
  }

  #connect(): void {
    this.#stopTimer();
    this.#change({ type: "connecting" });
    const socket = this.#open();
    this.#socket = socket;
    socket.binaryType = "arraybuffer";
    const assembler = new Assembler<ToLane>((message, bodyLen) =>
      this.#owner.hadNoRoom(message, bodyLen),
    );
    socket.onopen = () => {
      for (const frame of split(0, { type: "hello", ...this.#owner.hello() })) {
        sendFrame(socket, frame);
      }
    };
    socket.onmessage = ({ data }) => this.#receive(assembler, data);
    socket.onclose = ({ code, reason }) =>
      this.hangUp(reason || `the connection was closed (${code})`);
    this.#stopTimer = this.#clock.after(WELCOME_MS, () =>
      this.hangUp("Holdfast did not answer in time"),
    );
  }

  #receive(assembler: Assembler<ToLane>, data: unknown): void {
    this.#heardAt = this.#clock.now();
    try {
      if (!(data instanceof ArrayBuffer)) {
        throw new FrameError("a frame that is not binary");
      }
      const received = assembler.push(data);
      if (received) {
        this.#take(received);
      }
    } catch (error) {
      if (!(error instanceof FrameError)) {
        throw error;
      }
      this.send({ type: "error", request: null, kind: "protocol", message: error.message });
      this.hangUp(`Holdfast said something unreadable: ${error.message}`, PROTOCOL_BROKEN);
    }
  }

  #take({ message, body }: Received<ToLane>): void {
    if (message.type === "refused") {
      this.end(message.reason);
    } else if (message.type === "welcome") {
      if (this.#outbox) {
        throw new FrameError("a second welcome");
      }
      this.#welcome(message);
    } else if (this.#outbox) {
      this.#owner.received(message, body);
    } else {
      throw new FrameError(`a ${message.type} before the welcome`);
    }
  }

  #welcome(welcome: Welcome): void {
    if (!this.#socket) {
      return;
    }
    this.#stopTimer();
    this.#attempt = 0;
    this.#outbox = new Outbox(this.#socket, this.#clock, welcome.frameBytes);
    this.#watch(welcome.heartbeatMs * HEARTBEATS);
    this.#change({ type: "connected", name: welcome.name });
    this.#owner.welcomed(welcome);
  }

  #watch(silenceMs: number): void {
    const leftMs = this.#heardAt + silenceMs - this.#clock.now();
    if (leftMs <= 0) {
      this.hangUp("Holdfast was not heard of for too long");
      return;
    }
    this.#stopTimer = this.#clock.after(leftMs, () => this.#watch(silenceMs));
  }

  /** The socket's own close event can take long on a dead line: it is not waited for. */
  #letGo(code: number): void {
    this.#stopTimer();
    this.#outbox?.close();
    this.#outbox = null;
    const socket = this.#socket;
    this.#socket = null;
    if (!socket) {
      return;
    }
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close(code);
  }

  #change(state: LineState): void {
    this.#state = state;
    this.#owner.lineChanged(state);
  }
}
