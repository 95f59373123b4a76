/*
 * The messages between Holdfast and a browser. Generated from crates/wire by
 * `cargo xtask codegen`: do not edit.
 */

export const PROTOCOL_VERSION = 1;
export const SUBPROTOCOL = "holdfast.v1";
export const TOKEN_SUBPROTOCOL_PREFIX = "holdfast.token.";
export const FRAME_BODY_LIMIT = 16777216;
export const HEADER_LIMIT = 1048576;
export const FRAME_LIMIT = 17825804;
export const BODY_LIMIT = 2147483648;
export const OPEN_MESSAGES_LIMIT = 64;

/**
 * A message to a lane.
 */
export type ToLane = { "type": "welcome" } & Welcome | { "type": "refused", 
/**
 * Why, and what to do, for the person in front of the browser.
 */
reason: string, } | { "type": "load", 
/**
 * Names the request.
 */
request: number, 
/**
 * Names the segment from now on.
 */
segment: string, 
/**
 * The graph.
 */
graph: BlobRef, 
/**
 * The weights that the graph refers to.
 */
weights: Array<BlobRef>, 
/**
 * The inputs that are weights; programs do not name them.
 */
lifted: Array<LiftedWeight>, 
/**
 * Sizes for named dimensions.
 */
dims: { [key in string]: number }, 
/**
 * What else it takes, for a first run on zeros that compiles shaders; empty for none.
 */
warmUp: Array<TensorShape>, 
/**
 * What it gives.
 */
outputs: Array<string>, } | { "type": "unload", 
/**
 * Names the request.
 */
request: number, 
/**
 * The segment.
 */
segment: string, } | { "type": "put", 
/**
 * Names the request.
 */
request: number, 
/**
 * Its name.
 */
tensor: string, 
/**
 * Its bytes.
 */
value: TensorSlice, } | { "type": "get", 
/**
 * Names the request.
 */
request: number, 
/**
 * Its name.
 */
tensor: string, 
/**
 * The part of it that is wanted; none for all of it.
 */
window: TensorWindow | null, } | { "type": "copy", 
/**
 * Names the request.
 */
request: number, 
/**
 * The name of what is copied.
 */
tensor: string, 
/**
 * The part of it that is wanted; none for all of it.
 */
window: TensorWindow | null, 
/**
 * The copy's name.
 */
to: string, } | { "type": "drop", 
/**
 * Names the request.
 */
request: number, 
/**
 * Its name.
 */
tensor: string, } | { "type": "run", 
/**
 * Names the request.
 */
request: number, 
/**
 * How long the lane may take, waiting included.
 */
deadlineMs: number, 
/**
 * The steps.
 */
steps: Array<Step>, } | { "type": "cancel", 
/**
 * The request.
 */
request: number, } | { "type": "ack", 
/**
 * The requests.
 */
requests: Array<number>, } | { "type": "stats", 
/**
 * Names the request.
 */
request: number, } | { "type": "ping", 
/**
 * Comes back with the answer.
 */
nonce: number, } | { "type": "leave", 
/**
 * Why, for the person in front of the browser.
 */
reason: string, 
/**
 * Whether to look for Holdfast again after a while.
 */
comeBack: boolean, };

/**
 * The answer to a lane that was taken in.
 */
export type Welcome = { 
/**
 * What the lane says to be taken for the same one after its connection was cut.
 */
session: string, 
/**
 * Whether the lane goes on where it was. If not, it starts empty.
 */
resumed: boolean, 
/**
 * What Holdfast calls the lane.
 */
name: string, 
/**
 * Opens the blobs that the lane's segments need, and no others.
 */
blobKey: string, 
/**
 * Bytes of blobs that the browser may keep for the next time.
 */
cacheLimitBytes: number, 
/**
 * Bytes of tensors that the lane may keep.
 */
tensorLimitBytes: number, 
/**
 * Bytes of a body that one frame of the lane may carry.
 */
frameBytes: number, 
/**
 * How often Holdfast pings. After three times as long without one, the line is dead.
 */
heartbeatMs: number, };

/**
 * One segment to run.
 */
export type Step = { 
/**
 * The segment.
 */
segment: string, 
/**
 * Where each of its inputs comes from.
 */
inputs: Array<NamedInput>, 
/**
 * What becomes of its outputs; those not named are dropped.
 */
outputs: Array<NamedOutput>, 
/**
 * Send what is returned as soon as the step is done, as a `part`.
 */
early: boolean, };

/**
 * A part of a tensor, counted in elements.
 */
export type TensorWindow = { 
/**
 * The first element.
 */
offset: number, 
/**
 * How many elements on each axis.
 */
dims: Array<number>, 
/**
 * How far apart neighbours on each axis are.
 */
strides: Array<number>, };

/**
 * An input and where it comes from.
 */
export type NamedInput = { 
/**
 * The input.
 */
name: string, 
/**
 * Where it comes from.
 */
from: Input, };

/**
 * Where an input comes from.
 */
export type Input = { "type": "inline", 
/**
 * Which bytes of it.
 */
value: TensorSlice, } | { "type": "kept", 
/**
 * Its name.
 */
tensor: string, } | { "type": "step", 
/**
 * The step's position.
 */
step: number, 
/**
 * The output.
 */
output: string, };

/**
 * An output and what becomes of it.
 */
export type NamedOutput = { 
/**
 * The output.
 */
name: string, 
/**
 * What becomes of it.
 */
to: Output, };

/**
 * What becomes of an output. Neither means that it is there for later steps only.
 */
export type Output = { 
/**
 * Whether it comes back.
 */
returned: boolean, 
/**
 * The name to keep it under, replacing what is there once the whole program is done.
 */
keep: string | null, };

/**
 * A message from a lane. Times are in milliseconds of the browser's monotonic clock.
 */
export type FromLane = { "type": "hello" } & Hello | { "type": "progress", 
/**
 * The request.
 */
request: number, 
/**
 * What is being done.
 */
phase: LoadPhase, 
/**
 * Bytes of the segment that are there.
 */
doneBytes: number, 
/**
 * Bytes of the segment.
 */
totalBytes: number, } | { "type": "loaded", 
/**
 * The request.
 */
request: number, 
/**
 * Where its bytes came from; all zero if it was ready already.
 */
traffic: WeightTraffic, 
/**
 * Time to get the blobs.
 */
fetchMs: number, 
/**
 * Time to make the session.
 */
createMs: number, 
/**
 * Time of the first run, on zeros; null if there was none.
 */
warmUpMs: number | null, 
/**
 * Why there was no first run although one was asked for.
 */
warmUpError: string | null, 
/**
 * What of it runs on the processor instead of the backend; null for nothing.
 */
placement: string | null, } | { "type": "done", 
/**
 * The request.
 */
request: number, } | { "type": "tensor", 
/**
 * The request.
 */
request: number, 
/**
 * Its bytes.
 */
value: TensorSlice, } | { "type": "part", 
/**
 * The request.
 */
request: number, 
/**
 * The outputs.
 */
outputs: Array<OutputTensor>, } | { "type": "outcome", 
/**
 * The request.
 */
request: number, 
/**
 * What it returns, except for what came in parts.
 */
outputs: Array<OutputTensor>, 
/**
 * How long it waited for its turn.
 */
queuedMs: number, 
/**
 * How long each step took.
 */
steps: Array<StepTiming>, 
/**
 * What the lane keeps of it, each name once.
 */
kept: Array<KeptTensor>, } | { "type": "stats", 
/**
 * The request.
 */
request: number, 
/**
 * What it holds.
 */
stats: LaneStats, } | { "type": "pong", 
/**
 * From the ping.
 */
nonce: number, } | { "type": "error", 
/**
 * The request.
 */
request: number | null, 
/**
 * Whose fault it was.
 */
kind: ErrorKind, 
/**
 * What happened, and where.
 */
message: string, } | { "type": "power", 
/**
 * From now on.
 */
power: PowerInfo, } | { "type": "lost", 
/**
 * Why.
 */
reason: string, } | { "type": "bye", 
/**
 * Why.
 */
reason: string, };

/**
 * Where a load stands.
 */
export type LoadPhase = "fetch" | "create" | "warm_up";

/**
 * Where the bytes of a segment came from.
 */
export type WeightTraffic = { 
/**
 * Bytes that were downloaded.
 */
downloadedBytes: number, 
/**
 * Bytes that the browser had from an earlier time.
 */
cachedBytes: number, };

/**
 * An output that comes back.
 */
export type OutputTensor = { 
/**
 * The step that gave it.
 */
step: number, 
/**
 * The output.
 */
name: string, 
/**
 * Its bytes.
 */
value: TensorSlice, };

/**
 * A tensor that a program left on the lane.
 */
export type KeptTensor = { 
/**
 * The name that it is kept under.
 */
tensor: string, 
/**
 * The element type, such as `f32`.
 */
dtype: string, 
/**
 * The dimensions.
 */
dims: Array<number>, };

/**
 * How long a step took.
 */
export type StepTiming = { 
/**
 * The engine's own time, up to the fence where outputs stay on the device.
 */
runMs: number, 
/**
 * The time to copy what is returned off the device.
 */
readbackMs: number, };

/**
 * What a lane holds and has done since it joined.
 */
export type LaneStats = { 
/**
 * Segments that are loaded.
 */
segments: number, 
/**
 * Tensors that are kept.
 */
tensors: number, 
/**
 * Their bytes.
 */
tensorBytes: number, 
/**
 * Those of them that lie in GPU buffers or ML tensors.
 */
deviceTensorBytes: number, 
/**
 * Bytes of lifted weights that the engine holds, one copy of each.
 */
liftedBytes: number, 
/**
 * Results that wait to be acknowledged.
 */
unacknowledged: number, 
/**
 * Bytes of blobs in the browser's cache.
 */
cacheBytes: number, 
/**
 * Bytes downloaded.
 */
downloadedBytes: number, 
/**
 * How often the engine was replaced.
 */
engineRestarts: number, 
/**
 * Bytes of the engine's own memory, where it can be told.
 */
engineHeapBytes: number | null, };

/**
 * Whose fault it was, which decides whether asking again or elsewhere can help.
 */
export type ErrorKind = "caller" | "device" | "timeout" | "memory" | "cancelled" | "busy" | "state_lost" | "protocol";

/**
 * The first message of a lane.
 */
export type Hello = { 
/**
 * The protocol that the page speaks.
 */
protocol: number, 
/**
 * The version of Holdfast that the page came from.
 */
version: string, 
/**
 * Chosen by the page at random, the same for all its lanes and across its reconnections.
 */
page: string, 
/**
 * The lane's number within the page.
 */
lane: number, 
/**
 * What the lane computes on.
 */
backend: Backend, 
/**
 * The browser.
 */
browser: BrowserInfo, 
/**
 * The machine, as far as the browser tells.
 */
machine: MachineInfo, 
/**
 * The GPU.
 */
webgpu: WebGpuInfo, 
/**
 * The neural network API.
 */
webnn: WebNnInfo, 
/**
 * WebAssembly.
 */
wasm: WasmInfo, 
/**
 * Where blobs are kept.
 */
storage: StorageInfo, 
/**
 * What its machine can spare.
 */
power: PowerInfo, 
/**
 * Set after a cut: what the lane still has.
 */
resume: Resume | null, };

/**
 * What a lane computes on.
 */
export type Backend = "webgpu" | "webnn" | "wasm";

/**
 * A browser.
 */
export type BrowserInfo = { 
/**
 * Such as `Chromium`.
 */
name: string, 
/**
 * Such as `147.0.7727.0`.
 */
version: string, 
/**
 * Such as `Linux`.
 */
platform: string, 
/**
 * Whether it runs on a phone or tablet.
 */
mobile: boolean, };

/**
 * A machine, as far as a browser tells.
 */
export type MachineInfo = { 
/**
 * Logical cores.
 */
cores: number, 
/**
 * Memory in GiB, rounded and capped by browsers; null where they do not tell.
 */
memoryGib: number | null, 
/**
 * Whether the page may use shared memory, and so threads.
 */
crossOriginIsolated: boolean, };

/**
 * The GPU, as far as a browser tells.
 */
export type WebGpuInfo = { "type": "available", 
/**
 * Such as `nvidia`, or `google` for the software adapter.
 */
vendor: string, 
/**
 * Such as `ampere`, or `swiftshader`.
 */
architecture: string, 
/**
 * The device, where the browser tells.
 */
device: string, 
/**
 * A description, where the browser gives one.
 */
description: string, 
/**
 * Whether the browser itself says that this is a fallback in software.
 */
fallback: boolean, 
/**
 * The optional features.
 */
features: Array<string>, 
/**
 * The limits.
 */
limits: { [key in string]: number }, } | { "type": "missing", 
/**
 * Why, and where it can be known, what to do.
 */
reason: string, };

/**
 * The neural network API, as far as a browser tells.
 */
export type WebNnInfo = { "type": "available", 
/**
 * The kinds of device for which a context opens: `cpu`, `gpu`, `npu`. A browser may
 * give all three and compute on the processor.
 */
deviceTypes: Array<string>, 
/**
 * The kind in use.
 */
chosen: string, } | { "type": "missing", 
/**
 * Why, and where it can be known, what to do.
 */
reason: string, };

/**
 * WebAssembly, as far as a browser has it.
 */
export type WasmInfo = { 
/**
 * Whether it computes on vectors.
 */
simd: boolean, 
/**
 * Threads that the engine uses.
 */
threads: number, 
/**
 * Whether it can suspend for promises (JSPI).
 */
jspi: boolean, };

/**
 * Where blobs are kept for the next time.
 */
export type StorageInfo = { 
/**
 * The kind.
 */
kind: StorageKind, 
/**
 * Bytes that the browser grants, where it tells.
 */
quotaBytes: number | null, 
/**
 * Bytes of blobs that are there.
 */
usedBytes: number, };

/**
 * Kinds of storage.
 */
export type StorageKind = "opfs" | "indexed_db" | "none";

/**
 * What a lane's machine can spare, as far as the browser tells. It changes: see
 * [`FromLane::Power`](crate::FromLane::Power).
 */
export type PowerInfo = { 
/**
 * Whether it runs on its battery; null if the browser does not tell.
 */
onBattery: boolean | null, 
/**
 * How full the battery is, from 0 to 1; null if the browser does not tell.
 */
batteryLevel: number | null, 
/**
 * Whether its owner wants to save data.
 */
savesData: boolean, 
/**
 * Whether the page is in the background.
 */
hidden: boolean, 
/**
 * How much of what it could do the lane offers, from 0 (nothing, for now) to 1.
 */
share: number, };

/**
 * What a lane still has after a cut.
 */
export type Resume = { 
/**
 * From the last welcome.
 */
session: string, 
/**
 * Requests that the lane knows: it works on them, or has their results and sends them once
 * it is welcome. All others have to be asked again.
 */
requests: Array<number>, };

/**
 * A file that is fetched over HTTP by its hash.
 */
export type BlobRef = { 
/**
 * `sha256-` and the hash in hexadecimal; also the name by which a graph refers to a weight.
 */
name: string, 
/**
 * Its size.
 */
byteLen: number, };

/**
 * An input of a segment that is a weight. The lane feeds it itself at every run, from one copy for
 * all segments that use it.
 */
export type LiftedWeight = { 
/**
 * The name of the input.
 */
input: string, 
/**
 * The bytes of the weight.
 */
blob: BlobRef, 
/**
 * The element type, such as `f32`.
 */
dtype: string, 
/**
 * The dimensions.
 */
dims: Array<number>, };

/**
 * A tensor without its bytes.
 */
export type TensorShape = { 
/**
 * The name of the input or output.
 */
name: string, 
/**
 * The element type, such as `f32`.
 */
dtype: string, 
/**
 * The dimensions.
 */
dims: Array<number>, };

/**
 * A tensor whose bytes lie in the body of the message.
 */
export type TensorSlice = { 
/**
 * The element type, such as `f32`.
 */
dtype: string, 
/**
 * The dimensions.
 */
dims: Array<number>, 
/**
 * Where its bytes start in the body.
 */
offset: number, 
/**
 * How many they are.
 */
byteLen: number, };
