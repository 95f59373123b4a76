/* What a lane does for a request: waits for its turn, has the engine to itself, gives an answer. */

import type { Engine } from "#engine/engine";
import type { BlobSource } from "#lane/blobs";
import type { Clock } from "#lane/clock";
import type { Holdings } from "#lane/holdings";
import type { Letter } from "#lane/outbox";
import type { Bytes } from "#wire/frame";
import type { FromLane } from "#wire/messages";

/** What tasks need of their lane. */
export interface TaskContext {
  readonly clock: Clock;
  readonly blobs: BlobSource;
  readonly holdings: Holdings;
  readonly tensorLimitBytes: number;
  /** An engine will be needed soon. It takes a while to start. */
  startEngine(): void;
  /** Something that a task waited for is there. */
  advance(): void;
  /** A task failed before its turn. */
  failed(task: Task, error: unknown): void;
  /** Something to say about a task that is not its answer; `part`s are kept until then. */
  say(task: Task, letter: Letter): void;
}

export abstract class Task {
  readonly request: number;
  readonly kind: string;
  /** Names of what it needs or changes: others that touch the same do not overtake it. */
  readonly touches: readonly string[];
  /** Its answer is no longer wanted; what it does has to be undone. */
  givenUp = false;
  /** It is past the point where it could be undone. */
  committed = false;
  protected readonly context: TaskContext;

  constructor(context: TaskContext, request: number, kind: string, touches: string[]) {
    this.context = context;
    this.request = request;
    this.kind = kind;
    this.touches = touches;
  }

  /** Whether it can start. Asked whenever nothing before it holds it up, also while others work. */
  ready(): boolean {
    return true;
  }

  /** Throws if what it needs is not there. */
  check(): void {}

  /** Does it. The engine is its own meanwhile. */
  abstract perform(engine: Engine): Promise<Letter>;

  /** Ends what it does without the engine. */
  stop(): void {}

  protected done(): Letter {
    return letter({ type: "done", request: this.request });
  }
}

export function letter(message: FromLane, body: Bytes[] = []): Letter {
  return { message, body };
}

export function segmentTouch(segment: string): string {
  return `segment ${segment}`;
}

export function tensorTouch(tensor: string): string {
  return `tensor ${tensor}`;
}
