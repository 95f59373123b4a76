/*
 * Where the nodes of a session run. ONNX Runtime refuses a session whose nodes do not all fit on
 * the backend without saying which; it names them only in its verbose log.
 */

/** Nodes that run on the processor although the session is for another backend. */
export interface Placement {
  /** Number of nodes by provider, such as `WebNN`. */
  nodes: Record<string, number>;
  /** Operators of the nodes on the processor, each once. */
  onProcessor: string[];
}

/** Whether a session was refused because some of its nodes would run on the processor. */
export function lacksOperators(error: unknown): boolean {
  return error instanceof Error && error.message.includes("assigned to the default CPU EP");
}

export function readPlacement(lines: readonly string[]): Placement {
  const placement: Placement = { nodes: {}, onProcessor: [] };
  const operators = new Set<string>();
  let provider: string | null = null;
  for (const line of lines) {
    const header =
      /(?:All nodes|Node\(s\)) placed on \[(\w+?)(?:ExecutionProvider)?\]\. Number of nodes: (\d+)/.exec(
        line,
      );
    if (header) {
      provider = header[1] ?? "";
      placement.nodes[provider] = Number(header[2]);
      continue;
    }
    const node = /VerifyEachNodeIsAssignedToAnEp\]\s+(\w+)(?: \(|$)/.exec(line);
    if (node?.[1] && provider === "CPU") {
      operators.add(node[1]);
    }
  }
  placement.onProcessor = [...operators].sort();
  return placement;
}

export function describePlacement({ nodes, onProcessor }: Placement): string {
  const counts = Object.entries(nodes).map(([provider, count]) => `${count} on ${provider}`);
  return `${counts.join(", ")} (on the processor: ${onProcessor.join(", ")})`;
}
