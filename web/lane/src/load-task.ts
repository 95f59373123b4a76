/* Loading a segment: its blobs come while other tasks run; only the engine's part takes a turn. */

import type { Engine, LoadTimes } from "#engine/engine";
import type { FetchedBlobs } from "#lane/blobs";
import type { Letter } from "#lane/outbox";
import { cut } from "#lane/request-error";
import { letter, segmentTouch, Task, type TaskContext } from "#lane/task";
import type { BlobRef, LoadPhase, ToLane } from "#wire/messages";

type Load = Extract<ToLane, { type: "load" }>;

const PROGRESS_MS = 100;

export class LoadTask extends Task {
  readonly totalBytes: number;
  /** For the person in front of the page. */
  doneBytes = 0;
  readonly #load: Load;
  readonly #abort = new AbortController();
  readonly #mayFetch: (task: LoadTask) => boolean;
  #state: "waiting" | "fetching" | "fetched" = "waiting";
  #fetched: FetchedBlobs | null = null;
  #fetchMs = 0;
  #saidAt = Number.NEGATIVE_INFINITY;

  /** `mayFetch` says whether there is room for its blobs in memory. */
  constructor(context: TaskContext, load: Load, mayFetch: (task: LoadTask) => boolean) {
    super(context, load.request, "load", [segmentTouch(load.segment)]);
    this.#load = load;
    this.#mayFetch = mayFetch;
    this.totalBytes = this.#blobs().reduce((sum, blob) => sum + blob.byteLen, 0);
  }

  /** Whether its blobs take memory. */
  get holdsBlobs(): boolean {
    return this.#state !== "waiting";
  }

  override ready(): boolean {
    if (this.context.holdings.segments.has(this.#load.segment)) return true;
    if (this.#state === "waiting" && this.#mayFetch(this)) {
      this.#state = "fetching";
      this.#fetch().catch((error) => this.context.failed(this, error));
    }
    return this.#state === "fetched";
  }

  async perform(engine: Engine): Promise<Letter> {
    const { segment, dims, warmUp, outputs, graph, weights } = this.#load;
    const fetched = this.#fetched;
    if (!fetched) {
      // Asks the engine, which says so if its device is gone and the segment with it.
      this.context.holdings.update(await engine.stats());
      const placement = this.context.holdings.segments.get(segment)?.placement ?? null;
      return this.#loaded({ createMs: 0, warmUpMs: null, warmUpError: null, placement });
    }
    const bytes = ({ name }: BlobRef) => fetched.bytes.get(name) as Uint8Array<ArrayBuffer>;
    const files = {
      segment,
      graph: bytes(graph),
      weights: unique(weights).map((blob) => ({ name: blob.name, bytes: bytes(blob) })),
      dims,
      warmUp,
      outputs,
    };
    const times = await engine.load(files, (phase) => this.#say(phase));
    if (this.givenUp) {
      await engine.unload(segment);
    } else {
      this.committed = true;
      this.context.holdings.segmentLoaded(segment, this.totalBytes, times.placement);
    }
    this.context.holdings.update(await engine.stats());
    return this.#loaded(times);
  }

  override stop(): void {
    this.#abort.abort();
  }

  async #fetch(): Promise<void> {
    const began = this.context.clock.now();
    const fetched = await this.context.blobs.fetch(this.#blobs(), this.#abort.signal, (bytes) => {
      this.doneBytes = bytes;
      if (this.context.clock.now() - this.#saidAt >= PROGRESS_MS) this.#say("fetch");
    });
    this.#fetchMs = this.context.clock.now() - began;
    this.#fetched = fetched;
    this.#state = "fetched";
    this.doneBytes = this.totalBytes;
    this.context.advance();
  }

  #blobs(): BlobRef[] {
    return unique([this.#load.graph, ...this.#load.weights]);
  }

  #say(phase: LoadPhase): void {
    this.#saidAt = this.context.clock.now();
    const { request, doneBytes, totalBytes } = this;
    this.context.say(this, letter({ type: "progress", request, phase, doneBytes, totalBytes }));
  }

  #loaded(times: LoadTimes): Letter {
    const traffic = this.#fetched?.traffic ?? { downloadedBytes: 0, cachedBytes: 0 };
    return letter({
      type: "loaded",
      request: this.request,
      traffic,
      fetchMs: this.#fetchMs,
      createMs: times.createMs,
      warmUpMs: times.warmUpMs,
      warmUpError: times.warmUpError && cut(times.warmUpError),
      placement: times.placement && cut(times.placement),
    });
  }
}

function unique(blobs: BlobRef[]): BlobRef[] {
  return [...new Map(blobs.map((blob) => [blob.name, blob])).values()];
}
