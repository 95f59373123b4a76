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
  const message = cut(error instanceof Error ? error.message : String(error));
  if (error instanceof EngineError) {
    const { kind, fatal, lostSegment } = error;
    return { kind, message, fatal, lostSegment };
  }
  const kind = error instanceof RequestError ? error.kind : "device";
  return { kind, message, fatal: false, lostSegment: null };
}

/** Nobody reads more of a text, and a letter's header must not pass its limit. */
const TEXT_LIMIT = 4096;

export function cut(text: string): string {
  return text.length <= TEXT_LIMIT ? text : `${text.slice(0, TEXT_LIMIT)}…`;
}
