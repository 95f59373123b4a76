import { expect, it } from "vitest";
import { describePlacement, isWorthwhile, lacksOperators, readPlacement } from "#engine/placement";

const placed = (text: string) =>
  `2026-11-16 04:31:03.1 [V:onnxruntime:, session_state.cc:1280 VerifyEachNodeIsAssignedToAnEp] ${text}`;

it("counts nodes by place, without those that only copy", () => {
  const placement = readPlacement([
    placed("Node placements"),
    placed(" Node(s) placed on [CPUExecutionProvider]. Number of nodes: 1"),
    placed("   Hardmax (node of y)"),
    placed(" Node(s) placed on [WebGpuExecutionProvider]. Number of nodes: 3"),
    placed("   Relu (node of v1)"),
    placed("   Neg (node of v2)"),
    placed("   MemcpyToHost (Memcpy)"),
  ]);
  expect(placement).toEqual({ nodesOnBackend: 2, nodesOnProcessor: 1, onProcessor: ["Hardmax"] });
  expect(isWorthwhile(placement)).toBe(true);
  expect(describePlacement(placement)).toBe("1 of 3 nodes on the processor (Hardmax)");
});

it("counts the nodes that WebNN made one of", () => {
  const placement = readPlacement([
    "WebNNExecutionProvider::GetCapability, number of partitions supported by WebNN: 1 number of nodes in the graph: 5 number of nodes supported by WebNN: 4",
    placed(" Node(s) placed on [WebNNExecutionProvider]. Number of nodes: 1"),
    placed("   WEBNN_8069384115652336285_1 (WebNNExecutionProvider_WEBNN_1_0)"),
    placed(" Node(s) placed on [CPUExecutionProvider]. Number of nodes: 1"),
    placed("   Hardmax (node of y)"),
  ]);
  expect(placement).toEqual({ nodesOnBackend: 4, nodesOnProcessor: 1, onProcessor: ["Hardmax"] });
});

it.each([
  "webgpu kernel not found in registries for Op type: Det node name: node of y",
  "Operator type: [Det] index: [0] name: [node of y] supported: [0]",
])("names operators where no node is on the backend: %s", (line) => {
  const all = placed(" All nodes placed on [CPUExecutionProvider]. Number of nodes: 1");
  const placement = readPlacement(["Operator type: [Relu] supported: [1]", line, all]);
  expect(placement).toEqual({ nodesOnBackend: 0, nodesOnProcessor: 1, onProcessor: ["Det"] });
  expect(isWorthwhile(placement)).toBe(false);
});

it("knows the refusal of a session from other failures", () => {
  const refusal =
    "This session contains graph nodes that are assigned to the default CPU EP, but …";
  expect(lacksOperators(new Error(refusal))).toBe(true);
  expect(lacksOperators(new Error("protobuf parsing failed"))).toBe(false);
});
