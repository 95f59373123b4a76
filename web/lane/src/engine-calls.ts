/*
 * What a lane and its engine's worker say to each other: each call with its answer. Big buffers
 * change hands, they are not copied.
 */

import type {
  EngineOptions,
  EngineStats,
  HostOutput,
  HostTensor,
  LoadTimes,
  Program,
  ProgramOutcome,
  SegmentFiles,
} from "#engine/engine";
import type { Failure } from "#lane/request-error";
import type { LoadPhase, TensorWindow } from "#wire/messages";

export interface EngineCalls {
  load: { asked: SegmentFiles; answer: LoadTimes };
  unload: { asked: string; answer: undefined };
  put: { asked: { name: string; tensor: HostTensor }; answer: undefined };
  get: { asked: { name: string; window: TensorWindow | null }; answer: HostTensor };
  copy: { asked: { name: string; window: TensorWindow | null; to: string }; answer: number };
  drop: { asked: string; answer: undefined };
  run: { asked: Program; answer: ProgramOutcome };
  settle: { asked: boolean; answer: undefined };
  stats: { asked: undefined; answer: EngineStats };
}

export type EngineCall = keyof EngineCalls;

export type ToEngine =
  | { type: "open"; options: EngineOptions }
  | { type: "cancel" }
  | { type: "take_back"; buffers: ArrayBuffer[] }
  | { [C in EngineCall]: { type: C; id: number; asked: EngineCalls[C]["asked"] } }[EngineCall];

export type FromEngine =
  | { type: "answer"; id: number; answer: EngineCalls[EngineCall]["answer"] }
  | { type: "failed"; id: number; failure: Failure }
  | { type: "phase"; id: number; phase: LoadPhase }
  | { type: "part"; id: number; outputs: HostOutput[] }
  /** The engine is of no use any more, be it while nothing runs. */
  | ({ type: "broken" } & Broken);

/** Why an engine is of no use any more. */
export interface Broken {
  reason: string;
  /** It never was: the browser does not give what its backend computes on. */
  backendGone: boolean;
}

/** The buffers below these bytes, each once, to be handed over with a message. */
export function buffersOf(views: Iterable<Uint8Array<ArrayBuffer>>): ArrayBuffer[] {
  const buffers = new Set<ArrayBuffer>();
  for (const view of views) {
    buffers.add(view.buffer);
  }
  return [...buffers];
}
