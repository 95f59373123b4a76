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
  #isFetching = false;
  /** What is there so far. */
  readonly #fetched: FetchedBlobs = {
    bytes: new Map(),
    traffic: { downloadedBytes: 0, cachedBytes: 0 },
  };
  #fetchMs = 0;
  #saidAt = Number.NEGATIVE_INFINITY;

  /** `mayFetch` says whether there is room for its blobs in memory. */
  constructor(context: TaskContext, load: Load, mayFetch: (task: LoadTask) => boolean) {
    super(context, load.request, "load", [segmentTouch(load.segment)]);
    this.#load = load;
    this.#mayFetch = mayFetch;
    this.totalBytes = total([...this.#ownBlobs(), ...this.#liftedBlobs()]);
  }

  /** Whether its blobs take memory. */
  get holdsBlobs(): boolean {
    return this.#isFetching || this.#fetched.bytes.size > 0;
  }

  override ready(): boolean {
    if (this.context.holdings.segments.has(this.#load.segment)) {
      return true;
    }
    const lacking = this.#isFetching ? [] : this.#lacking();
    // What goes on with its blobs has its room already.
    if (lacking.length > 0 && (this.holdsBlobs || this.#mayFetch(this))) {
      this.#isFetching = true;
      this.context.startEngine();
      this.#fetch(lacking).catch((error) => this.context.failed(this, error));
    }
    return !this.#isFetching && lacking.length === 0;
  }

  async perform(engine: Engine): Promise<Letter> {
    const { segment, dims, warmUp, outputs, graph, weights, lifted } = this.#load;
    const held = this.context.holdings.segments.get(segment);
    if (held !== undefined) {
      // Asks the engine, which says so if its device is gone and the segment with it.
      this.context.holdings.update(await engine.stats());
      const { placement } = held;
      return this.#loaded({ createMs: 0, warmUpMs: null, warmUpError: null, placement });
    }
    const fetched = this.#fetched.bytes;
    const bytes = ({ name }: BlobRef) => fetched.get(name) as Uint8Array<ArrayBuffer>;
    const files = {
      segment,
      graph: bytes(graph),
      weights: unique(weights).map((blob) => ({ name: blob.name, bytes: bytes(blob) })),
      lifted: lifted.map(({ input, blob, dtype, dims }) => ({
        input,
        weight: blob.name,
        dtype,
        dims,
        bytes: fetched.get(blob.name) ?? null,
      })),
      dims,
      warmUp,
      outputs,
    };
    const times = await engine.load(files, (phase) => this.#say(phase));
    if (this.givenUp) {
      await engine.unload(segment);
    } else {
      this.committed = true;
      this.context.holdings.segmentLoaded(segment, {
        byteLen: total(this.#ownBlobs()),
        lifted: new Set(lifted.map(({ blob }) => blob.name)),
        placement: times.placement,
      });
    }
    this.context.holdings.update(await engine.stats());
    return this.#loaded(times);
  }

  override stop(): void {
    this.#abort.abort();
  }

  async #fetch(blobs: BlobRef[]): Promise<void> {
    const began = this.context.clock.now();
    const there = this.totalBytes - total(blobs);
    const fetched = await this.context.blobs.fetch(blobs, this.#abort.signal, (bytes) => {
      this.doneBytes = there + bytes;
      if (this.context.clock.now() - this.#saidAt >= PROGRESS_MS) {
        this.#say("fetch");
      }
    });
    this.#fetchMs += this.context.clock.now() - began;
    for (const [name, bytes] of fetched.bytes) {
      this.#fetched.bytes.set(name, bytes);
    }
    this.#fetched.traffic.downloadedBytes += fetched.traffic.downloadedBytes;
    this.#fetched.traffic.cachedBytes += fetched.traffic.cachedBytes;
    this.#isFetching = false;
    this.doneBytes = this.totalBytes;
    this.context.advance();
  }

  /**
   * What has to be fetched still. A lifted weight that a segment has brought is not, for as long as
   * there is such a segment: it may be let go while this task waits for its turn.
   */
  #lacking(): BlobRef[] {
    const { holdings } = this.context;
    const lifted = this.#liftedBlobs().filter(({ name }) => !holdings.hasLifted(name));
    return [...this.#ownBlobs(), ...lifted].filter(({ name }) => !this.#fetched.bytes.has(name));
  }

  /** The graph and the weights that it refers to. */
  #ownBlobs(): BlobRef[] {
    return unique([this.#load.graph, ...this.#load.weights]);
  }

  /** Lifted weights, except for those that the graph refers to as well. */
  #liftedBlobs(): BlobRef[] {
    const own = new Set(this.#ownBlobs().map(({ name }) => name));
    const lifted = unique(this.#load.lifted.map(({ blob }) => blob));
    return lifted.filter(({ name }) => !own.has(name));
  }

  #say(phase: LoadPhase): void {
    this.#saidAt = this.context.clock.now();
    const { request, doneBytes, totalBytes } = this;
    this.context.say(this, letter({ type: "progress", request, phase, doneBytes, totalBytes }));
  }

  #loaded(times: LoadTimes): Letter {
    return letter({
      type: "loaded",
      request: this.request,
      traffic: this.#fetched.traffic,
      fetchMs: this.#fetchMs,
      createMs: times.createMs,
      warmUpMs: times.warmUpMs,
      warmUpError: times.warmUpError && cut(times.warmUpError),
      placement: times.placement && cut(times.placement),
    });
  }
}

function total(blobs: BlobRef[]): number {
  return blobs.reduce((sum, blob) => sum + blob.byteLen, 0);
}

function unique(blobs: BlobRef[]): BlobRef[] {
  return [...new Map(blobs.map((blob) => [blob.name, blob])).values()];
}
