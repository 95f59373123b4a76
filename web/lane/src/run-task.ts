/* Running a program. What it keeps is only kept if its answer is still wanted when it is done. */

import { byteLenOf, dtypeNamed } from "#engine/dtypes";
import type { Engine, HostOutput, ProgramOutcome } from "#engine/engine";
import type { Letter } from "#lane/outbox";
import { failureOf, RequestError } from "#lane/request-error";
import { letter, segmentTouch, Task, type TaskContext, tensorTouch } from "#lane/task";
import { BodyWriter, bytesOf } from "#wire/body";
import type { Bytes } from "#wire/frame";
import type { KeptTensor, OutputTensor, Step, ToLane } from "#wire/messages";

type Run = Extract<ToLane, { type: "run" }>;

export class RunTask extends Task {
  readonly deadlineMs: number;
  readonly #steps: Step[];
  readonly #body: Bytes;
  readonly #keeps: string[];
  readonly #arrivedAt: number;

  constructor(context: TaskContext, run: Run, body: Bytes) {
    super(context, run.request, "run", touches(run.steps));
    this.deadlineMs = run.deadlineMs;
    this.#steps = run.steps;
    this.#body = body;
    this.#keeps = keeps(run.steps);
    this.#arrivedAt = context.clock.now();
    for (const step of run.steps) {
      for (const { name, from } of step.inputs) {
        if (from.type === "inline" && !bytesOf(from.value, body)) {
          throw new RequestError("protocol", `input ${name} does not lie in the message's body`);
        }
      }
    }
  }

  override check(): void {
    const { holdings, tensorLimitBytes } = this.context;
    for (const step of this.#steps) {
      holdings.requireSegment(step.segment);
      for (const { from } of step.inputs) {
        if (from.type === "kept") {
          holdings.requireTensor(from.tensor);
        }
      }
    }
    const grows = this.#keeps.some((tensor) => !holdings.tensors.has(tensor));
    if (grows && holdings.tensorBytes >= tensorLimitBytes) {
      throw new RequestError(
        "memory",
        `the lane keeps ${holdings.tensorBytes} bytes of tensors, its limit is ${tensorLimitBytes}; drop some`,
      );
    }
  }

  async perform(engine: Engine): Promise<Letter> {
    const startedAt = this.context.clock.now();
    const outcome = await this.#run(engine);
    if (this.givenUp) {
      await engine.settle(false);
      throw new RequestError("cancelled", "the program was given up");
    }
    this.committed = true;
    this.context.holdings.heapBytes = outcome.heapBytes;
    const { kept, steps } = outcome;
    await this.#settle(engine, kept);
    const { outputs, body } = lay(outcome.outputs);
    const queuedMs = startedAt - this.#arrivedAt;
    return letter({ type: "outcome", request: this.request, outputs, queuedMs, steps, kept }, body);
  }

  async #run(engine: Engine): Promise<ProgramOutcome> {
    try {
      return await engine.run({ steps: this.#steps, body: this.#body }, (part) => {
        const { outputs, body } = lay(part);
        this.context.say(this, letter({ type: "part", request: this.request, outputs }, body));
      });
    } catch (error) {
      // An engine lets go of a session that failed where it cannot be trusted any more.
      const { lostSegment } = failureOf(error);
      if (lostSegment !== null) {
        this.context.holdings.segmentLost(lostSegment);
      }
      throw error;
    }
  }

  async #settle(engine: Engine, kept: KeptTensor[]): Promise<void> {
    const settled = engine.settle(true);
    if (kept.length === 0) {
      // Nothing depends on it, so the answer need not wait for one more trip to the worker. Should
      // it fail, the engine fails at its next call too.
      settled.catch(() => {});
      return;
    }
    const [, stats] = await Promise.all([settled, engine.stats()]);
    for (const { tensor, dtype, dims } of kept) {
      this.context.holdings.tensorKept(tensor, byteLenOf(dtypeNamed(dtype), dims));
    }
    this.context.holdings.update(stats);
  }
}

function touches(steps: Step[]): string[] {
  const names = new Set(keeps(steps).map(tensorTouch));
  for (const step of steps) {
    names.add(segmentTouch(step.segment));
    for (const { from } of step.inputs) {
      if (from.type === "kept") {
        names.add(tensorTouch(from.tensor));
      }
    }
  }
  return [...names];
}

function keeps(steps: Step[]): string[] {
  return steps.flatMap((step) => step.outputs.flatMap(({ to }) => to.keep ?? []));
}

function lay(outputs: HostOutput[]): { outputs: OutputTensor[]; body: Bytes[] } {
  const writer = new BodyWriter();
  const laid = outputs.map(({ step, name, value }) => ({ step, name, value: writer.push(value) }));
  return { outputs: laid, body: writer.pieces };
}
