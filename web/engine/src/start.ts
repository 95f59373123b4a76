/*
 * A graph of one node, `y = Identity(x)` on f32[1]. Making a session of it is what starts ONNX
 * Runtime, so that a backend that cannot start says so at once; and the session stays, because
 * ONNX Runtime lets go of its GPU device with its last session.
 */

export const START_GRAPH = new Uint8Array([
  8, 8, 58, 59, 10, 16, 10, 1, 120, 18, 1, 121, 34, 8, 73, 100, 101, 110, 116, 105, 116, 121, 18, 5,
  115, 116, 97, 114, 116, 90, 15, 10, 1, 120, 18, 10, 10, 8, 8, 1, 18, 4, 10, 2, 8, 1, 98, 15, 10,
  1, 121, 18, 10, 10, 8, 8, 1, 18, 4, 10, 2, 8, 1, 66, 4, 10, 0, 16, 17,
]);
