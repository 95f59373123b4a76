/*
 * Where the nodes of a session run. ONNX Runtime refuses a session whose nodes do not all fit on
 * the backend without saying which; it names them only in its verbose log.
 */

/** A session of which some nodes run on the processor. */
export interface Placement {
  nodesOnBackend: number;
  nodesOnProcessor: number;
  /** The operators on the processor, each once. */
  onProcessor: string[];
}

/** Whether a session was refused because some of its nodes would run on the processor. */
export function lacksOperators(error: unknown): boolean {
  return error instanceof Error && error.message.includes("assigned to the default CPU EP");
}

/** Reads what ONNX Runtime logged while it made a session. */
export function readPlacement(lines: readonly string[]): Placement {
  const placement: Placement = { nodesOnBackend: 0, nodesOnProcessor: 0, onProcessor: [] };
  let largestGraph = 0;
  let provider: string | null = null;
  const lacking: string[] = [];
  for (const line of lines) {
    // WebNN makes one node of many, but says before how many they were; of each subgraph too.
    const taken =
      /number of nodes in the graph: (\d+) number of nodes supported by WebNN: (\d+)/.exec(line);
    if (taken && Number(taken[1]) > largestGraph) {
      largestGraph = Number(taken[1]);
      placement.nodesOnBackend = Number(taken[2]);
    }
    // Where all nodes go to the processor, they are counted and not listed.
    const all = /All nodes placed on \[CPUExecutionProvider\]\. Number of nodes: (\d+)/.exec(line);
    placement.nodesOnProcessor += Number(all?.[1] ?? 0);
    lacking.push(...(LACKING.exec(line)?.slice(1, 3).filter(Boolean) ?? []));
    provider = /placed on \[(\w+?)ExecutionProvider\]/.exec(line)?.[1] ?? provider;
    const operator = /VerifyEachNodeIsAssignedToAnEp\]\s+(\w+) \(/.exec(line)?.[1];
    if (operator === undefined || operator.startsWith("Memcpy")) {
      continue;
    }
    if (provider === "CPU") {
      placement.nodesOnProcessor += 1;
      placement.onProcessor.push(operator);
    } else if (provider !== "WebNN") {
      placement.nodesOnBackend += 1;
    }
  }
  const operators = placement.onProcessor.length > 0 ? placement.onProcessor : lacking;
  placement.onProcessor = [...new Set(operators)].sort();
  return placement;
}

/** What WebGPU and WebNN say about an operator that they do not take. */
const LACKING = /webgpu kernel .*for Op type: (\w+) |Operator type: \[(\w+)\] .*supported: \[0\]/;

/** Whether the backend does enough for the session to count as one of its own. */
export function isWorthwhile({ nodesOnBackend, nodesOnProcessor }: Placement): boolean {
  return nodesOnBackend > nodesOnProcessor;
}

export function describePlacement(placement: Placement): string {
  const { nodesOnBackend, nodesOnProcessor, onProcessor } = placement;
  const all = nodesOnBackend + nodesOnProcessor;
  return `${nodesOnProcessor} of ${all} nodes on the processor (${onProcessor.join(", ")})`;
}
