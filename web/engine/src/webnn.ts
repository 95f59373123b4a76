/*
 * The part of WebNN that the engine uses. TypeScript does not ship its types yet.
 * https://www.w3.org/TR/webnn/
 */

import { PROBE_MS, withLimit } from "#engine/limit";

export type MlDeviceType = "npu" | "gpu" | "cpu";

export interface Ml {
  createContext(options: { deviceType: MlDeviceType }): Promise<MlContext>;
}

export interface MlContext {
  readonly lost: Promise<{ message: string }>;
  createTensor(descriptor: {
    dataType: string;
    shape: readonly number[];
    readable: boolean;
    writable: boolean;
  }): Promise<MlTensor>;
  writeTensor(tensor: MlTensor, data: ArrayBufferView<ArrayBuffer>): void;
  readTensor(tensor: MlTensor): Promise<ArrayBuffer>;
  opSupportLimits(): { input: { dataTypes: string[] }; output: { dataTypes: string[] } };
  destroy?(): void;
}

export interface MlTensor {
  destroy(): void;
}

/** The neural network API of this browser, if it has one. */
export function ml(): Ml | null {
  return (navigator as { ml?: Ml }).ml ?? null;
}

/** An open context, and for what kind of device. */
export interface OpenMl {
  deviceType: MlDeviceType;
  context: MlContext;
}

/**
 * Opens the kinds of device that this browser gives, best first: an NPU is what only WebNN reaches;
 * a GPU comes before the processor. Kinds that do not take f32 come last, because models do.
 */
export async function openMlContexts(): Promise<{ open: OpenMl[]; refusals: string[] }> {
  const api = ml();
  const open: OpenMl[] = [];
  const refusals: string[] = [];
  const tryOne = async (deviceType: MlDeviceType) => {
    try {
      const asked = api?.createContext({ deviceType });
      const context = asked && (await withLimit(asked, PROBE_MS, "WebNN"));
      if (context) {
        open.push({ deviceType, context });
      }
    } catch (error) {
      refusals.push(`${deviceType}: ${error instanceof Error ? error.message : error}`);
    }
  };
  const bestFirst: MlDeviceType[] = ["npu", "gpu", "cpu"];
  // At once, because one that never answers must not hold up the others.
  await Promise.all(bestFirst.map(tryOne));
  const rank = ({ deviceType }: OpenMl) => bestFirst.indexOf(deviceType);
  const lacksFloat = ({ context }: OpenMl) =>
    context.opSupportLimits().input.dataTypes.includes("float32") ? 0 : 1;
  open.sort((a, b) => lacksFloat(a) - lacksFloat(b) || rank(a) - rank(b));
  return { open, refusals };
}
