/*
 * What a page does without Holdfast: the same build of ONNX Runtime Web with the same options, and
 * a plain WebSocket. It is driven over that socket: text is an order, binary is measured.
 */

const socket = new WebSocket(`ws://${location.hostname}:SOCKET_PORT/`);
socket.binaryType = "arraybuffer";

/** Bytes that are still to come before they are acknowledged; 0 to echo. */
let awaited = 0;
/** What was sent last, to be sent again: that its memory is new must not cost it anything. */
let sent = new Uint8Array(0);
let session = null;
let feeds = null;

socket.onmessage = async ({ data }) => {
  if (data instanceof ArrayBuffer) {
    if (awaited === 0) return socket.send(data);
    awaited -= data.byteLength;
    if (awaited <= 0) {
      awaited = 0;
      socket.send(new Uint8Array(8));
    }
    return;
  }
  const order = JSON.parse(data);
  try {
    socket.send(JSON.stringify({ answer: await orders[order.type](order) }));
  } catch (error) {
    socket.send(JSON.stringify({ error: String(error?.message ?? error) }));
  }
};

const orders = {
  /** Takes bytes in, and says when all are there. */
  async receive({ bytes }) {
    awaited = bytes;
    return null;
  },

  /** Sends a message of a size. */
  async send({ bytes }) {
    sent = sent.length === bytes ? sent : new Uint8Array(bytes).map((_, at) => at);
    socket.send(sent);
    return null;
  },

  /** Makes a session of a graph and its weights. */
  async load({ graph, weights, threads, inputs }) {
    const ort = await import("/ort/ort.wasm.min.mjs");
    ort.env.logLevel = "error";
    ort.env.wasm.numThreads = threads;
    ort.env.wasm.wasmPaths = {
      mjs: new URL("/ort/ort-wasm-simd-threaded.mjs", location.href).href,
      wasm: new URL("/ort/ort-wasm-simd-threaded.wasm", location.href).href,
    };
    const fetched = async (name) =>
      new Uint8Array(await (await fetch(`/blobs/${name}`)).arrayBuffer());
    const externalData = await Promise.all(
      weights.map(async (name) => ({ path: name, data: await fetched(name) })),
    );
    session = await ort.InferenceSession.create(await fetched(graph), {
      executionProviders: ["wasm"],
      externalData,
      graphOptimizationLevel: "disabled",
      logSeverityLevel: 3,
    });
    feeds = () =>
      Object.fromEntries(
        inputs.map(({ name, dims, values }) => [
          name,
          new ort.Tensor("int64", BigInt64Array.from(values.map(BigInt)), dims),
        ]),
      );
    return null;
  },

  /** Runs it once; gives milliseconds and a checksum. */
  async run() {
    const given = feeds();
    const started = performance.now();
    const outputs = await session.run(given);
    const took = performance.now() - started;
    const [output] = Object.values(outputs);
    return { milliseconds: took, first: output.data[0] };
  },
};
