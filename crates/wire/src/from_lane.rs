//! What a lane says to Holdfast.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

use crate::body::TensorSlice;
use crate::hello::{Hello, PowerInfo};

/// A message from a lane. Times are in milliseconds of the browser's monotonic clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum FromLane {
    /// The first message: who the lane is and what it can do.
    Hello(Box<Hello>),
    /// A load goes on.
    Progress {
        /// The request.
        request: u64,
        /// What is being done.
        phase: LoadPhase,
        /// Bytes of the segment that are there.
        done_bytes: u64,
        /// Bytes of the segment.
        total_bytes: u64,
    },
    /// A segment is ready.
    Loaded {
        /// The request.
        request: u64,
        /// Where its bytes came from; all zero if it was ready already.
        traffic: WeightTraffic,
        /// Time to get the blobs.
        fetch_ms: f64,
        /// Time to make the session.
        create_ms: f64,
        /// Time of the first run, on zeros; null if there was none.
        warm_up_ms: Option<f64>,
        /// Why there was no first run although one was asked for.
        warm_up_error: Option<String>,
        /// What of it runs on the processor instead of the backend; null for nothing.
        placement: Option<String>,
    },
    /// It is done: `unload`, `put`, `drop`.
    Done {
        /// The request.
        request: u64,
    },
    /// A kept tensor.
    Tensor {
        /// The request.
        request: u64,
        /// Its bytes.
        value: TensorSlice,
    },
    /// What an early step returns.
    Part {
        /// The request.
        request: u64,
        /// The outputs.
        outputs: Vec<OutputTensor>,
    },
    /// A program is done.
    Outcome {
        /// The request.
        request: u64,
        /// What it returns, except for what came in parts.
        outputs: Vec<OutputTensor>,
        /// How long it waited for its turn.
        queued_ms: f64,
        /// How long each step took.
        steps: Vec<StepTiming>,
        /// What the lane keeps of it, each name once.
        kept: Vec<KeptTensor>,
    },
    /// What the lane holds.
    Stats {
        /// The request.
        request: u64,
        /// What it holds.
        stats: LaneStats,
    },
    /// The answer to a ping.
    Pong {
        /// From the ping.
        nonce: u64,
    },
    /// A request failed, or, without one, something that no request was the cause of.
    Error {
        /// The request.
        request: Option<u64>,
        /// Whose fault it was.
        kind: ErrorKind,
        /// What happened, and where.
        message: String,
    },
    /// What the machine can spare has changed.
    Power {
        /// From now on.
        power: PowerInfo,
    },
    /// The engine was replaced: everything that was loaded and kept is gone.
    Lost {
        /// Why.
        reason: String,
    },
    /// The lane ends: the person in front of the browser stopped it, or Holdfast said so.
    Bye {
        /// Why.
        reason: String,
    },
}

/// Where a load stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum LoadPhase {
    /// Blobs come from the cache or the network.
    Fetch,
    /// The engine makes a session.
    Create,
    /// The first run.
    WarmUp,
}

/// Where the bytes of a segment came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "camelCase")]
pub struct WeightTraffic {
    /// Bytes that were downloaded.
    pub downloaded_bytes: u64,
    /// Bytes that the browser had from an earlier time.
    pub cached_bytes: u64,
}

/// An output that comes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "camelCase")]
pub struct OutputTensor {
    /// The step that gave it.
    pub step: u32,
    /// The output.
    pub name: String,
    /// Its bytes.
    pub value: TensorSlice,
}

/// A tensor that a program left on the lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "camelCase")]
pub struct KeptTensor {
    /// The name that it is kept under.
    pub tensor: String,
    /// The element type, such as `f32`.
    pub dtype: String,
    /// The dimensions.
    pub dims: Vec<u64>,
}

/// How long a step took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(rename_all = "camelCase")]
pub struct StepTiming {
    /// The engine's own time, up to the fence where outputs stay on the device.
    pub run_ms: f64,
    /// The time to copy what is returned off the device.
    pub readback_ms: f64,
}

/// What a lane holds and has done since it joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
#[serde(rename_all = "camelCase")]
pub struct LaneStats {
    /// Segments that are loaded.
    pub segments: u32,
    /// Tensors that are kept.
    pub tensors: u32,
    /// Their bytes.
    pub tensor_bytes: u64,
    /// Those of them that lie in GPU buffers or ML tensors.
    pub device_tensor_bytes: u64,
    /// Bytes of lifted weights that the engine holds, one copy of each.
    pub lifted_bytes: u64,
    /// Results that wait to be acknowledged.
    pub unacknowledged: u32,
    /// Bytes of blobs in the browser's cache.
    pub cache_bytes: u64,
    /// Bytes downloaded.
    pub downloaded_bytes: u64,
    /// How often the engine was replaced.
    pub engine_restarts: u32,
    /// Bytes of the engine's own memory, where it can be told.
    pub engine_heap_bytes: Option<u64>,
}

/// Whose fault it was, which decides whether asking again or elsewhere can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request is wrong; it would be wrong everywhere.
    Caller,
    /// This device cannot do it or failed at it; another one may do better.
    Device,
    /// The deadline passed.
    Timeout,
    /// There is not enough memory on this device.
    Memory,
    /// It was cancelled.
    Cancelled,
    /// Too much is waiting already.
    Busy,
    /// The engine was replaced, and what the request needs is gone.
    StateLost,
    /// The other side said what it must not say.
    Protocol,
}
