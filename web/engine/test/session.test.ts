/* Sessions that are refused or fail half way leave nothing behind. */

import type { Tensor } from "onnxruntime-web";
import { describe, expect, it } from "vitest";
import { EngineError } from "#engine/engine";
import type { Lifted } from "#engine/lifted";
import type { Ort } from "#engine/ort";
import type { Place, Resident } from "#engine/place";
import { Session } from "#engine/session";

const FILES = {
  segment: "s",
  graph: new Uint8Array(0),
  weights: [],
  lifted: [],
  dims: {},
  warmUp: [],
  outputs: [],
};

const NOTHING_LIFTED: Lifted = { inputs: new Map(), release: () => undefined };

interface Made {
  options: Record<string, unknown>;
  released: boolean;
}

/** ONNX Runtime as far as a session sees it, with one output of this type. */
class ScriptedOrt {
  readonly made: Made[] = [];
  results: Record<string, { dispose(): void }> = {};
  /** What it logs when it makes a session that may use the processor; null if it need not. */
  placementLog: string[] | null = null;
  /** How it fails to make one that talks. */
  talkingFails: Error | null = null;
  readonly #output: string;

  constructor(output = "float32") {
    this.#output = output;
  }

  get ort(): Ort {
    const create = async (_: unknown, options: Record<string, unknown>) => {
      if (this.placementLog && options.extra && "session" in (options.extra as object)) {
        throw new Error("nodes that are assigned to the default CPU EP");
      }
      if (this.talkingFails !== null && options.logSeverityLevel === 0) {
        throw this.talkingFails;
      }
      const made: Made = { options, released: false };
      this.made.push(made);
      const value = { name: "y", isTensor: true, type: this.#output, shape: [1] };
      return {
        inputMetadata: [],
        outputMetadata: [value],
        run: async () => this.results,
        release: async () => {
          made.released = true;
        },
      };
    };
    return {
      module: { InferenceSession: { create } },
      logged: async (work: () => Promise<unknown>) => ({
        result: await work(),
        lines: this.placementLog ?? [],
      }),
    } as unknown as Ort;
  }

  get left(): Made[] {
    return this.made.filter(({ released }) => !released);
  }
}

function place(provider: string, receive: (output: Tensor) => Resident = () => ({}) as Resident) {
  const outputLocation = (type: string) => {
    if (type === "string") {
      throw new EngineError("device", "strings cannot be sent");
    }
    return provider === "wasm" ? "cpu" : "gpu-buffer";
  };
  return { provider, outputLocation, receive } as unknown as Place;
}

describe("a session whose outputs cannot be sent", () => {
  it.each(["wasm", "webgpu"])("is let go on %s", async (provider) => {
    const scripted = new ScriptedOrt("string");
    let released = 0;
    const release = () => {
      released += 1;
    };
    const lifted = { ...NOTHING_LIFTED, release };
    const made = Session.create(scripted.ort, place(provider), FILES, lifted);
    await expect(made).rejects.toMatchObject({ kind: "device" });
    expect(scripted.made).toHaveLength(1);
    expect(scripted.left).toEqual([]);
    expect(released).toBe(1);
  });
});

describe("a session where the processor helps out", () => {
  const at = "VerifyEachNodeIsAssignedToAnEp]";
  const PLACEMENT = [
    `${at} Node(s) placed on [WebGpuExecutionProvider]. Number of nodes: 2`,
    `${at}   Relu (a)`,
    `${at}   Relu (b)`,
    `${at} Node(s) placed on [CPUExecutionProvider]. Number of nodes: 1`,
    `${at}   Hardmax (c)`,
  ];
  const files = { ...FILES, weights: [{ name: "w", bytes: new Uint8Array(4) }] };
  const create = (scripted: ScriptedOrt) =>
    Session.create(scripted.ort, place("webgpu"), files, NOTHING_LIFTED);

  it("is made quietly, after one without weights told where its nodes run", async () => {
    const scripted = new ScriptedOrt();
    scripted.placementLog = PLACEMENT;
    expect((await create(scripted)).placement?.onProcessor).toEqual(["Hardmax"]);
    const [talking, quiet] = scripted.made;
    expect(talking).toMatchObject({ options: { logSeverityLevel: 0, externalData: [] } });
    expect(quiet).toMatchObject({
      options: { logSeverityLevel: 3, externalData: [{ path: "w" }] },
    });
    expect(scripted.left).toEqual([quiet]);
  });

  it("is made once if the one that talks misses its weights", async () => {
    const scripted = new ScriptedOrt();
    scripted.placementLog = PLACEMENT;
    scripted.talkingFails = new Error("w is missing");
    expect((await create(scripted)).placement?.onProcessor).toEqual(["Hardmax"]);
    expect(scripted.made).toHaveLength(1);
  });

  it("is not made if nothing tells where its nodes would run", async () => {
    const scripted = new ScriptedOrt();
    scripted.placementLog = [];
    scripted.talkingFails = new Error("no such operator");
    await expect(create(scripted)).rejects.toThrow("no such operator");
    expect(scripted.made).toEqual([]);
  });

  it("is not made if the processor would do most", async () => {
    const scripted = new ScriptedOrt();
    scripted.placementLog = ["All nodes placed on [CPUExecutionProvider]. Number of nodes: 2"];
    await expect(create(scripted)).rejects.toThrow("2 of 2 nodes on the processor");
    expect(scripted.left).toEqual([]);
  });
});

it("lets go of all outputs if one of them cannot be taken", async () => {
  const scripted = new ScriptedOrt();
  const gone: string[] = [];
  for (const name of ["taken", "refused", "never looked at"]) {
    scripted.results[name] = { dispose: () => gone.push(name) };
  }
  const receive = (output: Tensor) => {
    if (output === (scripted.results.refused as unknown)) {
      throw new Error("refused");
    }
    return { dispose: () => output.dispose() } as Resident;
  };
  const session = await Session.create(scripted.ort, place("wasm", receive), FILES, NOTHING_LIFTED);
  await expect(session.run(new Map(), [])).rejects.toThrow("refused");
  expect(gone).toEqual(["taken", "refused", "never looked at"]);
});
