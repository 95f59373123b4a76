/*
 * A segment as a session of ONNX Runtime. Graphs arrive lowered and run as they are. A session says
 * where its nodes run: first it is made without any on the processor, and only where the backend
 * lacks operators with its help, which is then told.
 */

import type { InferenceSession, Tensor } from "onnxruntime-web";
import { dtypeOfOrt } from "#engine/dtypes";
import { EngineError, type SegmentFiles } from "#engine/engine";
import { toEngineError } from "#engine/failure";
import type { Lifted } from "#engine/lifted";
import type { Ort } from "#engine/ort";
import type { Place, Resident } from "#engine/place";
import {
  describePlacement,
  isWorthwhile,
  lacksOperators,
  type Placement,
  readPlacement,
} from "#engine/placement";

/** An input or output as the graph declares it; null where it does not say. */
export interface Declared {
  name: string;
  dtype: string;
  dims: (number | null)[] | null;
}

/** Whether a tensor can be what is declared. */
export function fits({ dtype, dims }: Declared, value: Pick<Resident, "dtype" | "dims">): boolean {
  const dimsFit =
    dims === null ||
    (dims.length === value.dims.length &&
      dims.every((dim, axis) => dim === null || dim === value.dims[axis]));
  return dtype === value.dtype && dimsFit;
}

export function describe({ dtype, dims }: Pick<Declared | Resident, "dtype" | "dims">): string {
  return dims === null ? dtype : `${dtype}[${dims.map((dim) => dim ?? "?").join(", ")}]`;
}

export class Session {
  readonly segment: string;
  /** Those that a program has to give. */
  readonly inputs: readonly Declared[];
  readonly outputs: readonly Declared[];
  /** Null where all nodes run on the backend. */
  readonly placement: Placement | null;
  readonly #session: InferenceSession;
  readonly #place: Place;
  readonly #lifted: Lifted;
  /** What the session is fed at every run. */
  readonly #weights: Record<string, Tensor> = {};

  /** `lifted` belongs to the session from now on. */
  static async create(
    ort: Ort,
    place: Place,
    files: SegmentFiles,
    lifted: Lifted,
  ): Promise<Session> {
    try {
      const [session, placement] = await make(ort, place, files);
      const create = () => new Session(files, place, session, placement, lifted);
      return await orRelease(session, create);
    } catch (error) {
      lifted.release();
      throw error;
    }
  }

  private constructor(
    files: SegmentFiles,
    place: Place,
    session: InferenceSession,
    placement: Placement | null,
    lifted: Lifted,
  ) {
    this.segment = files.segment;
    this.#place = place;
    this.#session = session;
    this.placement = placement;
    this.#lifted = lifted;
    const inputs = session.inputMetadata.map((value) => declared(value, files.dims));
    for (const [name, weight] of lifted.inputs) {
      checkLifted(files.segment, inputs, name, weight);
      this.#weights[name] = weight.feed();
    }
    this.inputs = inputs.filter(({ name }) => !lifted.inputs.has(name));
    this.outputs = session.outputMetadata.map((value) => declared(value, files.dims));
  }

  /** Runs it for the outputs named, or all if none is. What it gives belongs to the caller. */
  async run(
    inputs: ReadonlyMap<string, Resident>,
    names: readonly string[],
  ): Promise<Map<string, Resident>> {
    const feeds: Record<string, Tensor> = { ...this.#weights };
    for (const [name, resident] of inputs) {
      feeds[name] = await resident.feed();
    }
    const fetches = names.length > 0 ? names : this.outputs.map((output) => output.name);
    const results = await this.#session.run(feeds, [...new Set(fetches)]);
    const outputs = new Map<string, Resident>();
    try {
      for (const [name, output] of Object.entries(results)) {
        outputs.set(name, this.#place.receive(output as Tensor));
      }
      return outputs;
    } catch (error) {
      for (const [name, output] of Object.entries(results)) {
        (outputs.get(name) ?? (output as Tensor)).dispose();
      }
      throw error;
    }
  }

  async release(): Promise<void> {
    try {
      await this.#session.release();
    } finally {
      this.#lifted.release();
    }
  }
}

function checkLifted(
  segment: string,
  inputs: readonly Declared[],
  name: string,
  weight: Resident,
): void {
  const input = inputs.find((input) => input.name === name);
  if (input === undefined || !fits(input, weight)) {
    const found = input === undefined ? "not an input of its graph" : describe(input);
    throw new EngineError(
      "caller",
      `segment ${segment} cannot be loaded: its lifted weight \`${name}\` is ${describe(weight)}, but \`${name}\` is ${found}`,
    );
  }
}

async function make(
  ort: Ort,
  place: Place,
  files: SegmentFiles,
): Promise<[InferenceSession, Placement | null]> {
  const common: InferenceSession.SessionOptions = {
    executionProviders: [place.provider],
    externalData: files.weights.map(({ name, bytes }) => ({ path: name, data: bytes })),
    freeDimensionOverrides: files.dims,
    graphOptimizationLevel: "disabled",
    logSeverityLevel: LOG_ERROR,
  };
  const create = (options: InferenceSession.SessionOptions) =>
    ort.module.InferenceSession.create(files.graph, { ...common, ...options });
  try {
    if (place.provider === "wasm") {
      return [await create({ extra: WITHOUT_SPINNING }), null];
    }
    const [session, placement] = await makePlaced(ort, place, create);
    const mixed = placement !== null;
    const locations = await orRelease(session, () => outputLocations(session, place, mixed));
    const usual = place.outputLocation("float32", mixed);
    if (Object.values(locations).every((location) => location === usual)) {
      return [session, placement];
    }
    // Only the session tells which types its outputs have, and some cannot stay on the device.
    await session.release();
    const extra = mixed ? {} : WITHOUT_PROCESSOR;
    return [await create({ preferredOutputLocation: locations, extra }), placement];
  } catch (error) {
    throw toEngineError(error, "load", `segment ${files.segment} cannot be loaded`);
  }
}

/** Lets the session go if `work` on it fails. */
async function orRelease<T>(session: InferenceSession, work: () => T): Promise<T> {
  try {
    return work();
  } catch (error) {
    await session.release();
    throw error;
  }
}

/** Makes a session without the processor, or else with its help if the backend does most. */
async function makePlaced(
  ort: Ort,
  place: Place,
  create: (options: InferenceSession.SessionOptions) => Promise<InferenceSession>,
): Promise<[InferenceSession, Placement | null]> {
  try {
    const preferredOutputLocation = place.outputLocation("float32", false);
    return [await create({ preferredOutputLocation, extra: WITHOUT_PROCESSOR }), null];
  } catch (error) {
    if (!lacksOperators(error)) {
      throw error;
    }
  }
  const placement = await tellPlacement(ort, create);
  if (!isWorthwhile(placement)) {
    throw new Error(
      `the backend lacks operators or needs fixed dimensions, with ${describePlacement(placement)}; bind all dimensions when the model is lowered, or use another backend`,
    );
  }
  const preferredOutputLocation = place.outputLocation("float32", true);
  return [await create({ preferredOutputLocation }), placement];
}

/**
 * Where the nodes of a session would run that is refused without the processor. Only a session that
 * talks tells, and it would go on talking with every run, so it is not the one that is used. It is
 * made without its weights: a session that is let go leaves them on the device for as long as any
 * other is there. That they are missing is noticed only after the nodes have their places.
 */
async function tellPlacement(
  ort: Ort,
  create: (options: InferenceSession.SessionOptions) => Promise<InferenceSession>,
): Promise<Placement> {
  const { result: failure, lines } = await ort.logged(async () => {
    try {
      const made = await create({ externalData: [], logSeverityLevel: LOG_VERBOSE });
      await made.release();
      return null;
    } catch (error) {
      return error;
    }
  });
  const placement = readPlacement(lines);
  if (failure !== null && placement.nodesOnBackend + placement.nodesOnProcessor === 0) {
    throw failure;
  }
  return placement;
}

/**
 * Threads that wait for work in a loop take the core that carries the answer away, or the one of
 * another lane.
 */
const WITHOUT_SPINNING = { session: { intra_op: { allow_spinning: "0" } } };
const WITHOUT_PROCESSOR = { session: { disable_cpu_ep_fallback: "1" } };
const LOG_VERBOSE = 0;
const LOG_ERROR = 3;

function outputLocations(session: InferenceSession, place: Place, mixed: boolean) {
  const locations: Record<string, "cpu" | "gpu-buffer" | "ml-tensor"> = {};
  for (const output of session.outputMetadata) {
    locations[output.name] = output.isTensor ? place.outputLocation(output.type, mixed) : "cpu";
  }
  return locations;
}

function declared(value: InferenceSession.ValueMetadata, bound: Record<string, number>): Declared {
  if (!value.isTensor) {
    throw new EngineError("device", `\`${value.name}\` is not a tensor`);
  }
  const size = (dim: number | string) =>
    typeof dim === "string" ? (bound[dim] ?? null) : isSaid(dim) ? dim : null;
  // ONNX Runtime gives no dimensions both for a scalar and for a value of unknown rank.
  const dims = value.shape.length > 0 ? value.shape.map(size) : null;
  return { name: value.name, dtype: dtypeOfOrt(value.type).name, dims };
}

/** A dimension without size and name is -1, which ONNX Runtime Web reads as an unsigned number. */
function isSaid(dim: number): boolean {
  return dim >= 0 && dim < 2 ** 31;
}
