/* The worker that an engine lives in: takes calls, gives answers. See engine-client.ts for why. */

import { createEngine } from "#engine/create";
import {
  BackendGone,
  type Engine,
  EngineError,
  type EngineOptions,
  type HostOutput,
} from "#engine/engine";
import { buffersOf, type FromEngine, type ToEngine } from "#lane/engine-calls";
import { failureOf } from "#lane/request-error";
import type { LoadPhase } from "#wire/messages";

const scope = self as unknown as DedicatedWorkerGlobalScope;
let opened: Promise<Engine> = Promise.reject(new EngineError("protocol", "no engine was opened"));
opened.catch(() => {});

scope.onmessage = ({ data }: MessageEvent<ToEngine>) => {
  switch (data.type) {
    case "open":
      opened = openEngine(data.options);
      opened.catch(() => {});
      return;
    case "cancel":
      opened.then((engine) => engine.cancel()).catch(() => {});
      return;
    case "take_back":
      opened.then((engine) => engine.takeBack(data.buffers)).catch(() => {});
      return;
    default:
      opened
        .then((engine) => answer(engine, data))
        .catch((error) => say({ type: "failed", id: data.id, failure: failureOf(error) }));
  }
};

async function openEngine(options: EngineOptions): Promise<Engine> {
  try {
    return await createEngine(options, (reason) =>
      say({ type: "broken", reason, backendGone: false }),
    );
  } catch (error) {
    // Without an engine this worker is of no use; the next one may do better.
    const { kind, message } = failureOf(error);
    if (error instanceof BackendGone) {
      say({ type: "broken", reason: message, backendGone: true });
    }
    throw new EngineError(kind, message, true);
  }
}

type Call = Exclude<ToEngine, { type: "open" | "cancel" | "take_back" }>;

async function answer(engine: Engine, call: Call): Promise<void> {
  const { id } = call;
  switch (call.type) {
    case "load": {
      const onPhase = (phase: LoadPhase) => say({ type: "phase", id, phase });
      return say({ type: "answer", id, answer: await engine.load(call.asked, onPhase) });
    }
    case "run": {
      const onPart = (outputs: HostOutput[]) =>
        say({ type: "part", id, outputs }, outputBuffers(outputs));
      const outcome = await engine.run(call.asked, onPart);
      return say({ type: "answer", id, answer: outcome }, outputBuffers(outcome.outputs));
    }
    case "get": {
      const tensor = await engine.get(call.asked.name, call.asked.window);
      return say({ type: "answer", id, answer: tensor }, buffersOf([tensor.bytes]));
    }
    case "copy": {
      const { name, window, to } = call.asked;
      return say({ type: "answer", id, answer: await engine.copy(name, window, to) });
    }
    case "stats":
      return say({ type: "answer", id, answer: await engine.stats() });
    case "put":
      await engine.put(call.asked.name, call.asked.tensor);
      break;
    case "unload":
    case "drop":
      await engine[call.type](call.asked);
      break;
    case "settle":
      await engine.settle(call.asked);
  }
  say({ type: "answer", id, answer: undefined });
}

function outputBuffers(outputs: HostOutput[]): ArrayBuffer[] {
  return buffersOf(outputs.map((output) => output.value.bytes));
}

function say(message: FromEngine, transfer: Transferable[] = []): void {
  scope.postMessage(message, transfer);
}
