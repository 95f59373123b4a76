/* What the page and a lane's I/O worker say to each other. */

import type { Capabilities } from "#engine/capabilities";
import type { LaneStatus } from "#lane/lane-status";
import type { Backend, PowerInfo } from "#wire/messages";

/** What a lane is started with. */
export interface LaneSetup {
  token: string;
  /** Chosen by the page at random. */
  page: string;
  /** The lane's number within the page. */
  lane: number;
  backend: Backend;
  capabilities: Capabilities;
  /** What the device can spare at the moment. */
  power: PowerInfo;
}

export type ToWorker =
  | { type: "probe"; threads: number }
  | { type: "start"; setup: LaneSetup }
  /** Waiting for the network has become pointless. */
  | { type: "retry" }
  /** The device can spare more or less than before. */
  | { type: "power"; power: PowerInfo }
  | { type: "stop"; reason: string };

export type FromWorker =
  | { type: "probed"; capabilities: Capabilities }
  | { type: "status"; status: LaneStatus }
  /** After this the worker can be ended. */
  | { type: "stopped" }
  | { type: "failed"; reason: string };
