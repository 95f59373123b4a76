/* What a lane tells the page about itself: not more often than a person can read. */

import type { Clock } from "#lane/clock";
import type { LineState } from "#lane/line";
import type { LaneStats } from "#wire/messages";

export interface LaneStatus {
  line: LineState;
  /** The kind of request under way. */
  running: string | null;
  waiting: number;
  segmentBytes: number;
  /** Segments on their way. */
  downloads: { doneBytes: number; totalBytes: number } | null;
  stats: LaneStats;
  done: number;
  failed: number;
  lastError: string | null;
}

/** Numbers that count up need not be shown at once, and to draw them takes time from a run. */
const EVERY_MS = 1000;
const DOWNLOADING_EVERY_MS = 200;

export class StatusReporter {
  done = 0;
  failed = 0;
  #lastError: string | null = null;
  readonly #clock: Clock;
  readonly #take: () => Omit<LaneStatus, "done" | "failed" | "lastError">;
  readonly #report: ((status: LaneStatus) => void) | undefined;
  #due: (() => void) | null = null;

  constructor(
    clock: Clock,
    take: () => Omit<LaneStatus, "done" | "failed" | "lastError">,
    report: ((status: LaneStatus) => void) | undefined,
  ) {
    this.#clock = clock;
    this.#take = take;
    this.#report = report;
  }

  noteError(message: string): void {
    this.#lastError = message;
    this.soon();
  }

  /** Something changed. Costs next to nothing when a report is due anyway. */
  soon(): void {
    if (!this.#report || this.#due) {
      return;
    }
    const everyMs = this.#take().downloads ? DOWNLOADING_EVERY_MS : EVERY_MS;
    this.#due = this.#clock.after(everyMs, () => this.now());
  }

  now(): void {
    this.#due?.();
    this.#due = null;
    const { done, failed } = this;
    this.#report?.({ ...this.#take(), done, failed, lastError: this.#lastError });
  }
}
