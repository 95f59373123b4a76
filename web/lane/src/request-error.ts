/* Why a request failed, in the words of the wire. */

import { EngineError } from "#engine/engine";
import type { ErrorKind } from "#wire/messages";

export class RequestError extends Error {
  override readonly name = "RequestError";
  readonly kind: ErrorKind;

  constructor(kind: ErrorKind, message: string, options?: ErrorOptions) {
    super(message, options);
    this.kind = kind;
  }
}

export interface Failure {
  kind: ErrorKind;
  message: string;
  /** The engine has to be replaced. */
  fatal: boolean;
  /** The segment that the engine let go with this failure. */
  lostSegment: string | null;
}

/** What an error says. One that nobody meant to happen is the device's. */
export function failureOf(error: unknown): Failure {
  if (error instanceof EngineError) {
    const { kind, message, fatal, lostSegment } = error;
    return { kind, message, fatal, lostSegment };
  }
  if (error instanceof RequestError) {
    return { kind: error.kind, message: error.message, fatal: false, lostSegment: null };
  }
  const message = error instanceof Error ? error.message : String(error);
  return { kind: "device", message, fatal: false, lostSegment: null };
}
