/*
 * Runs a program: checks all of it first, then one step after the other, with what lies between two
 * steps staying on the device.
 */

import { EngineError, type HostOutput, type Program, type ProgramStep } from "#engine/engine";
import { toEngineError } from "#engine/failure";
import type { Place, Resident } from "#engine/place";
import { type Declared, describe, fits, type Session } from "#engine/session";
import type { StepTiming } from "#wire/messages";

/** What a program needs of the engine. */
export interface Surroundings {
  place: Place;
  session(segment: string): Session;
  kept(name: string): Resident;
  inline(tensor: { dtype: string; dims: number[]; bytes: Uint8Array<ArrayBuffer> }): Resident;
  /** Throws if the program is to end. */
  checkCancelled(): void;
  /** The session failed while it ran. True if it had to be let go. */
  failed(session: Session): Promise<boolean>;
  onPart(outputs: HostOutput[]): void;
}

export interface ProgramResult {
  outputs: HostOutput[];
  steps: StepTiming[];
  /** To keep by these names. */
  aside: Map<string, Resident>;
}

export async function runProgram(program: Program, around: Surroundings): Promise<ProgramResult> {
  const steps = prepare(program, around);
  const done: Map<string, Resident>[] = [];
  const result: ProgramResult = { outputs: [], steps: [], aside: new Map() };
  try {
    for (const [number, step] of steps.entries()) {
      if (number > 0) {
        await nextTask();
        around.checkCancelled();
      }
      const inputs = new Map<string, Resident>();
      for (const { declared, source } of step.inputs) {
        inputs.set(declared.name, resolve(source, declared, number, done));
      }
      const started = performance.now();
      const outputs = new Map<string, Resident>();
      done.push(outputs);
      // What leaves nothing behind is waited for by reading it; the times cannot be told apart then.
      let returned: HostOutput[] | null = null;
      const read = async () => {
        returned = await readBack(program, number, outputs);
      };
      const readAtOnce = leavesNothing(program, number) ? read : undefined;
      await runStep(step, number, inputs, outputs, around, readAtOnce);
      const ran = performance.now();
      returned ??= await readBack(program, number, outputs);
      result.steps.push({ runMs: ran - started, readbackMs: performance.now() - ran });
      if (step.wanted.early) {
        around.onPart(returned);
      } else {
        result.outputs.push(...returned);
      }
    }
    await setAside(steps, done, result.aside, around.place);
  } catch (error) {
    const failure = toEngineError(error, "run", "the program failed");
    // After a fatal failure nothing of the engine may be touched.
    if (!failure.fatal) {
      disposeAll(result.aside.values(), ...done.map((outputs) => outputs.values()));
    }
    throw failure;
  }
  disposeAll(...done.map((outputs) => outputs.values()));
  return result;
}

type Source = { type: "value"; value: Resident } | { type: "step"; step: number; output: string };

interface PreparedStep {
  wanted: ProgramStep;
  session: Session;
  inputs: { declared: Declared; source: Source }[];
}

/** Finds what each step needs, so that a wrong program fails before anything is computed. */
function prepare(program: Program, around: Surroundings): PreparedStep[] {
  return program.steps.map((step, number) => {
    const session = around.session(step.segment);
    const inputs = new Map<string, { declared: Declared; source: Source }>();
    for (const { name, from } of step.inputs) {
      const declared = find(session.inputs, name, number, "input");
      if (inputs.has(name)) {
        throw caller(`input \`${name}\` of step ${number} is given twice`);
      }
      inputs.set(name, { declared, source: sourceOf(from, name, number, program, around) });
    }
    for (const declared of session.inputs) {
      const given = inputs.get(declared.name);
      if (given === undefined) {
        const what = describe(declared);
        throw caller(`step ${number} lacks input \`${declared.name}\`, which is ${what}`);
      }
      if (given.source.type === "value") {
        checkFits(declared, given.source.value, number);
      }
    }
    for (const { name } of step.outputs) {
      find(session.outputs, name, number, "output");
    }
    return { wanted: step, session, inputs: [...inputs.values()] };
  });
}

function sourceOf(
  from: ProgramStep["inputs"][number]["from"],
  name: string,
  number: number,
  program: Program,
  around: Surroundings,
): Source {
  switch (from.type) {
    case "inline": {
      const { dtype, dims, offset, byteLen } = from.value;
      const { body } = program;
      if (offset < 0 || byteLen < 0 || offset + byteLen > body.byteLength) {
        throw caller(`input \`${name}\` of step ${number} lies outside of the message's body`);
      }
      const bytes = body.subarray(offset, offset + byteLen);
      return {
        type: "value",
        value: at(name, number, () => around.inline({ dtype, dims, bytes })),
      };
    }
    case "kept":
      return { type: "value", value: at(name, number, () => around.kept(from.tensor)) };
    case "step": {
      const earlier = from.step < number ? program.steps[from.step] : undefined;
      if (!earlier?.outputs.some((output) => output.name === from.output)) {
        throw caller(
          `input \`${name}\` of step ${number} wants output \`${from.output}\` of step ${from.step}, which does not name it or does not come before`,
        );
      }
      return { type: "step", step: from.step, output: from.output };
    }
  }
}

function at<T>(name: string, number: number, find: () => T): T {
  try {
    return find();
  } catch (error) {
    if (error instanceof EngineError) {
      const message = `input \`${name}\` of step ${number}: ${error.message}`;
      throw new EngineError(error.kind, message, error.fatal);
    }
    throw error;
  }
}

function resolve(
  source: Source,
  declared: Declared,
  number: number,
  done: Map<string, Resident>[],
): Resident {
  if (source.type === "value") {
    return source.value;
  }
  const value = done[source.step]?.get(source.output);
  if (value === undefined) {
    throw new EngineError("device", `step ${source.step} gave no output \`${source.output}\``);
  }
  checkFits(declared, value, number);
  return value;
}

async function runStep(
  step: PreparedStep,
  number: number,
  inputs: Map<string, Resident>,
  outputs: Map<string, Resident>,
  around: Surroundings,
  read?: () => Promise<void>,
): Promise<void> {
  const names = step.wanted.outputs.map((output) => output.name);
  try {
    await around.place.fenced(async () => {
      for (const [name, output] of await step.session.run(inputs, names)) {
        outputs.set(name, output);
      }
    }, read);
  } catch (error) {
    const failure = toEngineError(error, "run", `step ${number} (${step.wanted.segment}) failed`);
    if (failure.fatal || !(await around.failed(step.session))) {
      throw failure;
    }
    throw new EngineError(failure.kind, failure.message, false, step.wanted.segment);
  }
}

async function readBack(
  program: Program,
  number: number,
  outputs: Map<string, Resident>,
): Promise<HostOutput[]> {
  const named = program.steps[number]?.outputs ?? [];
  const read = async (name: string): Promise<HostOutput> => {
    const output = outputs.get(name);
    if (output === undefined) {
      throw new EngineError("device", `step ${number} gave no output \`${name}\``);
    }
    return { step: number, name, value: await output.read(!isNeededLater(program, number, name)) };
  };
  try {
    return await Promise.all(
      named.filter((output) => output.to.returned).map((output) => read(output.name)),
    );
  } catch (error) {
    throw toEngineError(error, "transfer", `outputs of step ${number} cannot be read`);
  }
}

/** Whether all outputs of a step are for being read once. */
function leavesNothing(program: Program, number: number): boolean {
  const named = program.steps[number]?.outputs ?? [];
  const isRead = ({ name, to }: ProgramStep["outputs"][number]) =>
    to.returned && !isNeededLater(program, number, name);
  return named.length > 0 && named.every(isRead);
}

/** Whether an output is for more than being read once. */
function isNeededLater(program: Program, number: number, name: string): boolean {
  const uses = program.steps[number]?.outputs.filter((output) => output.name === name) ?? [];
  const feedsAStep = program.steps.some((step) =>
    step.inputs.some(
      ({ from }) => from.type === "step" && from.step === number && from.output === name,
    ),
  );
  return feedsAStep || uses.length > 1 || uses.some((use) => use.to.keep !== null);
}

/** Takes what is to be kept out of `done`. */
async function setAside(
  steps: PreparedStep[],
  done: Map<string, Resident>[],
  aside: Map<string, Resident>,
  place: Place,
): Promise<void> {
  const kept = steps.flatMap(({ wanted }, number) =>
    wanted.outputs.flatMap(({ name, to }) =>
      to.keep === null ? [] : [{ number, name, keep: to.keep }],
    ),
  );
  if (kept.length === 0) {
    return;
  }
  try {
    await place.fenced(async () => {
      for (const { number, name, keep } of kept) {
        const output = done[number]?.get(name);
        if (output === undefined) {
          throw caller(`output \`${name}\` of step ${number} is kept twice`);
        }
        aside.get(keep)?.dispose();
        aside.set(keep, output.detach());
        done[number]?.delete(name);
      }
    });
  } catch (error) {
    throw toEngineError(error, "transfer", "outputs cannot be kept");
  }
}

function checkFits(declared: Declared, value: Resident, number: number): void {
  if (!fits(declared, value)) {
    throw caller(
      `input \`${declared.name}\` of step ${number} is ${describe(declared)}, but ${describe(value)} was given`,
    );
  }
}

function find(values: readonly Declared[], name: string, number: number, what: string): Declared {
  const value = values.find((value) => value.name === name);
  if (value === undefined) {
    const names = values.map((value) => value.name).join(", ");
    throw caller(`the segment of step ${number} has no ${what} \`${name}\`; it has ${names}`);
  }
  return value;
}

function caller(message: string): EngineError {
  return new EngineError("caller", message);
}

function disposeAll(...groups: Iterable<Resident>[]): void {
  for (const residents of groups) {
    for (const resident of residents) {
      resident.dispose();
    }
  }
}

/** Lets what was posted to this worker in, such as a wish to cancel. */
function nextTask(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}
