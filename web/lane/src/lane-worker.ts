/*
 * The worker of one lane, as the page sees it: started, told things, and started again after a while
 * if it fails.
 */

import { backOffMs, type Clock } from "#lane/clock";
import type { LaneView } from "#lane/words";
import type { FromWorker, LaneSetup, ToWorker } from "#lane/worker-messages";
import type { PowerInfo } from "#wire/messages";

/** The part of a worker that is used here. */
export interface PageWorker {
  postMessage(message: ToWorker): void;
  terminate(): void;
  onmessage: ((event: MessageEvent<FromWorker>) => void) | null;
  onerror: ((event: ErrorEvent) => void) | null;
}

/** How long a lane may take to say goodbye. */
export const GOODBYE_MS = 500;

export interface LaneWorkerParts {
  setup: LaneSetup;
  spawn: () => PageWorker;
  clock: Clock;
  /** Something to show has changed. */
  onChange: () => void;
}

export class LaneWorker {
  readonly view: LaneView;
  readonly #parts: LaneWorkerParts;
  #worker: PageWorker | null = null;
  #attempt = 0;
  #stopTimer: () => void = () => {};
  #stopped = false;
  #power: PowerInfo;

  constructor(parts: LaneWorkerParts) {
    const { lane, backend } = parts.setup;
    this.#parts = parts;
    this.#power = parts.setup.power;
    this.view = { lane, backend, missing: null, failure: null, status: null, statusAt: 0 };
  }

  /** Starts it, in a worker that is there already if one is given. */
  start(worker = this.#parts.spawn()): void {
    this.#worker = worker;
    worker.onmessage = ({ data }) => this.#heard(data);
    worker.onerror = ({ message }) => this.#failed(message || "its script cannot be loaded");
    const setup = { ...this.#parts.setup, power: this.#power };
    worker.postMessage({ type: "start", setup });
  }

  /** Waiting for the network has become pointless. */
  retryNow(): void {
    this.#worker?.postMessage({ type: "retry" });
  }

  /** The device can spare more or less than before. */
  setPower(power: PowerInfo): void {
    this.#power = power;
    this.#worker?.postMessage({ type: "power", power });
  }

  /** Lets it say goodbye. */
  stop(reason: string): void {
    this.#stopped = true;
    this.#stopTimer();
    this.#worker?.postMessage({ type: "stop", reason });
    this.#stopTimer = this.#parts.clock.after(GOODBYE_MS, () => this.end());
  }

  /** Ends it at once. */
  end(): void {
    this.#stopped = true;
    this.#stopTimer();
    this.#letGo();
  }

  #heard(message: FromWorker): void {
    switch (message.type) {
      case "status":
        this.view.status = message.status;
        this.view.statusAt = this.#parts.clock.now();
        this.view.failure = null;
        if (message.status.line.type === "connected") {
          this.#attempt = 0;
        }
        this.#parts.onChange();
        return;
      case "failed":
        this.#failed(message.reason);
        return;
      case "stopped":
        if (this.#stopped) {
          this.end();
        }
    }
  }

  #failed(reason: string): void {
    this.#letGo();
    if (this.#stopped) {
      return;
    }
    this.view.failure = reason;
    this.view.status = null;
    this.#stopTimer = this.#parts.clock.after(backOffMs(this.#attempt, this.#parts.clock), () =>
      this.start(),
    );
    this.#attempt += 1;
    this.#parts.onChange();
  }

  #letGo(): void {
    const worker = this.#worker;
    this.#worker = null;
    if (!worker) {
      return;
    }
    worker.onmessage = worker.onerror = null;
    worker.terminate();
  }
}
