/*
 * Writes small ONNX graphs for tests, with weights inside or in files of their own.
 */

export interface GraphSpec {
  nodes: { op: string; inputs: string[]; outputs: string[]; domain?: string }[];
  inputs: ValueSpec[];
  outputs: ValueSpec[];
  weights?: WeightSpec[];
}

export interface ValueSpec {
  name: string;
  dtype: keyof typeof ELEMENT_TYPES;
  /** A size, a name, or null where the graph says nothing. */
  dims: (number | string | null)[];
}

export interface WeightSpec {
  name: string;
  dims: number[];
  /** The file that holds its f32 bytes. */
  file: string;
  byteLen: number;
}

const ELEMENT_TYPES = { f32: 1, u8: 2, i32: 6, i64: 7, bool: 9, f16: 10, f64: 11 };

export function writeOnnx(spec: GraphSpec): Uint8Array<ArrayBuffer> {
  const graph = message([
    ...spec.nodes.map((node) => bytesField(1, writeNode(node))),
    textField(2, "test"),
    ...(spec.weights ?? []).map((weight) => bytesField(5, writeWeight(weight))),
    ...spec.inputs.map((value) => bytesField(11, writeValue(value))),
    ...spec.outputs.map((value) => bytesField(12, writeValue(value))),
  ]);
  const opset = (domain: string, version: number) =>
    bytesField(8, message([textField(1, domain), numberField(2, version)]));
  return new Uint8Array(
    message([numberField(1, 8), bytesField(7, graph), opset("", 17), opset("com.microsoft", 1)]),
  );
}

function writeNode(node: GraphSpec["nodes"][number]): number[] {
  return message([
    ...node.inputs.map((name) => textField(1, name)),
    ...node.outputs.map((name) => textField(2, name)),
    textField(3, `node of ${node.outputs[0]}`),
    textField(4, node.op),
    textField(7, node.domain ?? ""),
  ]);
}

function writeValue({ name, dtype, dims }: ValueSpec): number[] {
  const size = (dim: number | string | null) => {
    if (dim === null) {
      return [];
    }
    return typeof dim === "number" ? numberField(1, dim) : textField(2, dim);
  };
  const sizes = dims.map((dim) => bytesField(1, size(dim)));
  const tensor = message([numberField(1, ELEMENT_TYPES[dtype]), bytesField(2, message(sizes))]);
  return message([textField(1, name), bytesField(2, bytesField(1, tensor))]);
}

function writeWeight({ name, dims, file, byteLen }: WeightSpec): number[] {
  const entry = (key: string, value: string) =>
    bytesField(13, message([textField(1, key), textField(2, value)]));
  return message([
    ...dims.map((dim) => numberField(1, dim)),
    numberField(2, ELEMENT_TYPES.f32),
    textField(8, name),
    entry("location", file),
    entry("offset", "0"),
    entry("length", String(byteLen)),
    numberField(14, EXTERNAL),
  ]);
}

const EXTERNAL = 1;

function message(fields: number[][]): number[] {
  return fields.flat();
}

function numberField(field: number, value: number): number[] {
  return [...varint(field << 3), ...varint(value)];
}

function bytesField(field: number, bytes: number[]): number[] {
  return [...varint((field << 3) | 2), ...varint(bytes.length), ...bytes];
}

function textField(field: number, text: string): number[] {
  return bytesField(field, [...new TextEncoder().encode(text)]);
}

function varint(value: number): number[] {
  const bytes: number[] = [];
  let rest = value;
  while (rest > 127) {
    bytes.push((rest & 127) | 128);
    rest >>>= 7;
  }
  return [...bytes, rest];
}
