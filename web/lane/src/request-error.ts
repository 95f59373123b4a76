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
}

/** What an error says. One that nobody meant to happen is the device's. */
export function failureOf(error: unknown): Failure {
  if (error instanceof EngineError) {
    return { kind: error.kind, message: error.message, fatal: error.fatal };
  }
  if (error instanceof RequestError) {
    return { kind: error.kind, message: error.message, fatal: false };
  }
  const message = error instanceof Error ? error.message : String(error);
  return { kind: "device", message, fatal: false };
}
