/*
 * The tasks that are one call of the engine: keep, read and drop a tensor, let a segment go. Those
 * that change something cannot be undone once they have begun.
 */

import type { Engine } from "#engine/engine";
import type { Letter } from "#lane/outbox";
import { RequestError } from "#lane/request-error";
import { letter, segmentTouch, Task, type TaskContext, tensorTouch } from "#lane/task";
import { BodyWriter, bytesOf } from "#wire/body";
import type { Bytes } from "#wire/frame";
import type { TensorSlice, TensorWindow, ToLane } from "#wire/messages";

type Of<T extends ToLane["type"]> = Extract<ToLane, { type: T }>;

export class PutTask extends Task {
  readonly #tensor: string;
  readonly #value: TensorSlice;
  readonly #bytes: Bytes;

  constructor(context: TaskContext, { request, tensor, value }: Of<"put">, body: Bytes) {
    super(context, request, "put", [tensorTouch(tensor)]);
    const bytes = bytesOf(value, body);
    if (!bytes) {
      throw new RequestError("protocol", `tensor ${tensor} does not lie in the message's body`);
    }
    this.#tensor = tensor;
    this.#value = value;
    this.#bytes = bytes;
  }

  override check(): void {
    const { holdings, tensorLimitBytes } = this.context;
    const replaced = holdings.tensors.get(this.#tensor) ?? 0;
    if (holdings.tensorBytes - replaced + this.#bytes.length > tensorLimitBytes) {
      throw new RequestError(
        "memory",
        `tensor ${this.#tensor} has ${this.#bytes.length} bytes; the lane keeps ` +
          `${holdings.tensorBytes} of ${tensorLimitBytes} already; drop some`,
      );
    }
  }

  async perform(engine: Engine): Promise<Letter> {
    this.committed = true;
    const { dtype, dims } = this.#value;
    const byteLen = this.#bytes.length;
    // Both are asked at once: the engine answers in order, and the second trip is saved.
    const put = engine.put(this.#tensor, { dtype, dims, bytes: this.#bytes });
    const [, stats] = await Promise.all([put, engine.stats()]);
    this.context.holdings.tensorKept(this.#tensor, byteLen);
    this.context.holdings.update(stats);
    return this.done();
  }
}

export class GetTask extends Task {
  readonly #tensor: string;
  readonly #window: TensorWindow | null;

  constructor(context: TaskContext, { request, tensor, window }: Of<"get">) {
    super(context, request, "get", [tensorTouch(tensor)]);
    this.#tensor = tensor;
    this.#window = window;
  }

  override check(): void {
    this.context.holdings.requireTensor(this.#tensor);
  }

  async perform(engine: Engine): Promise<Letter> {
    const writer = new BodyWriter();
    const value = writer.push(await engine.get(this.#tensor, this.#window));
    return letter({ type: "tensor", request: this.request, value }, writer.pieces);
  }
}

export class CopyTask extends Task {
  readonly #asked: Of<"copy">;

  constructor(context: TaskContext, asked: Of<"copy">) {
    super(context, asked.request, "copy", [tensorTouch(asked.tensor), tensorTouch(asked.to)]);
    this.#asked = asked;
  }

  override check(): void {
    const { holdings, tensorLimitBytes } = this.context;
    const { tensor, to } = this.#asked;
    holdings.requireTensor(tensor);
    const replaced = holdings.tensors.get(to) ?? 0;
    // A part is no larger than all of it.
    const byteLen = holdings.tensors.get(tensor) ?? 0;
    if (holdings.tensorBytes - replaced + byteLen > tensorLimitBytes) {
      throw new RequestError(
        "memory",
        `tensor ${tensor} has ${byteLen} bytes; the lane keeps ` +
          `${holdings.tensorBytes} of ${tensorLimitBytes} already; drop some`,
      );
    }
  }

  async perform(engine: Engine): Promise<Letter> {
    this.committed = true;
    const { tensor, window, to } = this.#asked;
    const [byteLen, stats] = await Promise.all([engine.copy(tensor, window, to), engine.stats()]);
    this.context.holdings.tensorKept(to, byteLen);
    this.context.holdings.update(stats);
    return this.done();
  }
}

export class DropTask extends Task {
  readonly #tensor: string;

  constructor(context: TaskContext, { request, tensor }: Of<"drop">) {
    super(context, request, "drop", [tensorTouch(tensor)]);
    this.#tensor = tensor;
  }

  override check(): void {
    this.context.holdings.requireTensor(this.#tensor);
  }

  async perform(engine: Engine): Promise<Letter> {
    this.committed = true;
    await engine.drop(this.#tensor);
    this.context.holdings.tensors.delete(this.#tensor);
    this.context.holdings.update(await engine.stats());
    return this.done();
  }
}

export class UnloadTask extends Task {
  readonly #segment: string;

  constructor(context: TaskContext, { request, segment }: Of<"unload">) {
    super(context, request, "unload", [segmentTouch(segment)]);
    this.#segment = segment;
  }

  override check(): void {
    this.context.holdings.requireSegment(this.#segment);
  }

  async perform(engine: Engine): Promise<Letter> {
    this.committed = true;
    await engine.unload(this.#segment);
    this.context.holdings.segments.delete(this.#segment);
    this.context.holdings.update(await engine.stats());
    return this.done();
  }
}
