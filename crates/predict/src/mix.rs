//! What is to run together.

use std::sync::Arc;

use holdfast_graph::Digest;
use serde::{Deserialize, Serialize};

use crate::device::DeviceProfile;
use crate::features::Features;
use crate::strategy::Strategy;

/// What is to run together on one device, arranged: whoever arranges a workload decides what runs
/// at once and what runs in one go, and this says only what came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mix {
    /// Where.
    pub device: Arc<DeviceProfile>,
    /// The strategy that arranged it so.
    pub strategy: Strategy,
    /// Stages run one after the other; the jobs of a stage run at once, as far as the device has
    /// slots, in this order.
    pub stages: Vec<Vec<Job>>,
    /// Answers that come of it.
    pub answers: usize,
    /// Bytes of memory that the device took before it began, as measured.
    pub memory_now: Option<f64>,
    /// Whether it runs once before its time counts: what has to be loaded then takes memory, and no
    /// time.
    #[serde(default)]
    pub warmed_up: bool,
}

impl Mix {
    /// The strategy that the stages amount to, whatever arranged them: groups of which there is
    /// one only run in parallel, and jobs that have a stage each run one after the other.
    pub(crate) fn arrangement(&self) -> Strategy {
        match self.stages.as_slice() {
            stages if stages.iter().all(|stage| stage.len() <= 1) => Strategy::Sequential,
            [_] => Strategy::Parallel,
            _ => Strategy::Batched,
        }
    }
}

/// What a device is asked in one go: a model on an input, or several that share something.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The models' names, for people.
    pub model: String,
    /// What runs, in this order: one piece if the model runs on its own, a trunk and heads if it
    /// shares something with others. Each value once.
    pub pieces: Vec<Piece>,
}

/// A segment on one input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Piece {
    /// What it is, for people: the model's name, or what of it.
    pub label: Arc<str>,
    /// The segment: measurements are kept under it.
    pub segment: Digest,
    /// What that takes.
    pub features: Arc<Features>,
    /// Its large weights: a device holds each once.
    pub weights: Arc<[Weight]>,
    /// Whether the device has it loaded.
    pub resident: bool,
}

/// A large weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weight {
    /// What it is.
    pub content: Digest,
    /// How large.
    pub bytes: u64,
    /// Whether rows are picked from it, as from the embeddings of words. A device that maps its
    /// file has only those in memory.
    pub is_table: bool,
}
