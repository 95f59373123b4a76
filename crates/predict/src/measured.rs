//! What was measured.

use std::sync::Arc;

use holdfast_graph::Digest;
use serde::{Deserialize, Serialize};

use crate::features::Features;

/// What running a mix took. Never anything but a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Seconds from the first request to the last answer.
    pub latency_seconds: f64,
    /// Answers a second.
    pub throughput_per_second: f64,
    /// Bytes of memory at the worst moment; `None` where the device cannot be looked into.
    pub memory_bytes: Option<f64>,
}

/// How long one run of a segment took.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunTime {
    /// The device: [`DeviceProfile::key`](crate::DeviceProfile::key).
    pub device: String,
    /// The segment.
    pub segment: Digest,
    /// What it took.
    pub features: Arc<Features>,
    /// Seconds that it waited for its turn. That, and the way there and back, are told of a whole
    /// program and stand with its first segment.
    #[serde(default)]
    pub queue_seconds: f64,
    /// Seconds on the way to the device and back.
    pub transfer_seconds: f64,
    /// Seconds that the engine took.
    pub compute_seconds: f64,
    /// Seconds to get its outputs off the device.
    #[serde(default)]
    pub readback_seconds: f64,
    /// Whether it was the first one after loading: compiling and warming up are in it.
    pub first: bool,
    /// Whether nothing else ran on the machine's pool while it did: only such a run says what the
    /// segment takes by itself.
    pub alone: bool,
}

/// What loading a segment took.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadTime {
    /// The device: [`DeviceProfile::key`](crate::DeviceProfile::key).
    pub device: String,
    /// The segment.
    pub segment: Digest,
    /// Bytes of its weights that the device did not hold before.
    pub new_weight_bytes: u64,
    /// Seconds until it was loaded.
    pub load_seconds: f64,
    /// Seconds of the first run, where loading made one.
    pub first_run_seconds: Option<f64>,
    /// Bytes of memory that it added, where they were measured.
    pub memory_added_bytes: Option<f64>,
}
