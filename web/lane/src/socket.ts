/* The part of a WebSocket that a lane uses, so that tests can script one. */

import { SUBPROTOCOL, TOKEN_SUBPROTOCOL_PREFIX } from "#wire/messages";

export interface Socket {
  binaryType: BinaryType;
  readonly bufferedAmount: number;
  send(frame: Uint8Array<ArrayBuffer>): void;
  close(code?: number, reason?: string): void;
  onopen: ((event: Event) => void) | null;
  onmessage: ((event: MessageEvent) => void) | null;
  onclose: ((event: CloseEvent) => void) | null;
}

/** Opens the lane's socket on the page's own origin. */
export function openSocket(origin: string, token: string): Socket {
  const address = new URL("/lane", origin);
  address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
  // A page can set no header of a WebSocket, and an address ends up in logs.
  return new WebSocket(address, [SUBPROTOCOL, TOKEN_SUBPROTOCOL_PREFIX + token]);
}
