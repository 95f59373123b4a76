//! What the pool is asked, and what it answers.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use holdfast_devices::{DeviceError, ErrorKind, Loaded, ModelKind, Outcome};
use holdfast_graph::Tensor;
use holdfast_models::StoredGraph;
use serde::{Deserialize, Serialize};

use crate::choice::{Choice, Choices};

/// A model to run once.
#[derive(Clone, Debug)]
pub struct Request {
    /// What people call the model, for records and messages.
    pub model: String,
    /// The model's graph, as it was imported.
    pub graph: StoredGraph,
    /// What the model is for.
    pub kind: ModelKind,
    /// Its inputs.
    pub inputs: Vec<(String, Tensor)>,
    /// What to run it on.
    pub choices: Choices,
    /// Who goes first.
    pub priority: Priority,
    /// Whether it may be run by way of what it has in common with other models.
    pub share: bool,
    /// Whose request it is: what was computed for one namespace is not used for another.
    pub namespace: String,
    /// How long the request may wait and run. Starting a browser and loading its own model are not
    /// counted: whoever asks first would always be too late.
    pub deadline: Option<Duration>,
}

/// Who goes first. Within one priority, whoever came first does.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Before all others.
    High,
    /// As most are.
    #[default]
    Normal,
    /// When nobody else wants anything.
    Low,
}

impl Priority {
    /// All of them, the first to go first.
    pub const ALL: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Priority::High => "high",
            Priority::Normal => "normal",
            Priority::Low => "low",
        })
    }
}

impl FromStr for Priority {
    type Err = String;

    fn from_str(text: &str) -> Result<Priority, String> {
        let known = Priority::ALL.into_iter().find(|priority| priority.to_string() == text);
        known.ok_or_else(|| format!("`{text}` is not a priority: use high, normal or low"))
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The outputs, the times, and the device that computed them.
    pub outcome: Outcome,
    /// What loading took, if the request had to wait for it.
    pub loaded: Loaded,
    /// How long the run took, as seen from here.
    pub took: Duration,
    /// What of that went by on the way to the device and back.
    pub transfer: Duration,
    /// How long the request waited for its turn, loading included.
    pub queued: Duration,
    /// What did not have to be computed for it.
    pub reused: Reused,
    /// How many rows ran in one go with it, its own included; one where the model has no rows.
    pub batch_rows: usize,
    /// What would have been preferred.
    pub passed_over: Vec<PassedOver>,
    /// The devices that failed under it before this one.
    pub failed_on: Vec<Failure>,
}

/// What did not have to be computed for an answer, because it was there or was computed for
/// another model at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reused {
    /// Tensors that were reused.
    #[serde(rename = "shared_tensors_used")]
    pub tensors: usize,
    /// Their bytes.
    pub bytes: u64,
    /// How long it takes to compute them on this device, as measured.
    pub saved: Duration,
}

/// A choice that could not be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedOver {
    /// The choice.
    pub choice: Choice,
    /// Why.
    pub reason: String,
}

/// A device that failed under a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The device's name.
    pub device: String,
    /// What happened.
    pub reason: String,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The request itself failed; no other device would do better.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No choice could be had.
    #[error("no device could run it: {}", reasons(.0))]
    NoDevice(Vec<PassedOver>),
    /// As many devices as a request may take down failed while it ran on them.
    #[error("it was running on {} devices that failed, and is not tried again: {}", .0.len(), failures(.0))]
    Failed(Vec<Failure>),
    /// The deadline passed before it was the request's turn.
    #[error("the deadline passed after the request had waited {:.1} s for its turn; allow more time, or ask for less at once", .0.as_secs_f64())]
    Expired(Duration),
    /// The queue is full.
    #[error("{limit} requests are waiting or running, which is the limit; ask again later")]
    Full {
        /// How many may be there.
        limit: usize,
    },
}

impl RunError {
    /// The class under which errors are counted.
    pub fn class(&self) -> &'static str {
        match self {
            RunError::Device(error) => error.kind().name(),
            RunError::NoDevice(_) => "no_device",
            RunError::Failed(_) => "failed",
            RunError::Expired(_) => ErrorKind::Timeout.name(),
            RunError::Full { .. } => "full",
        }
    }
}

fn reasons(passed_over: &[PassedOver]) -> String {
    let listed =
        passed_over.iter().map(|PassedOver { choice, reason }| format!("{choice}: {reason}"));
    listed.collect::<Vec<_>>().join("; ")
}

fn failures(failures: &[Failure]) -> String {
    let listed = failures.iter().map(|Failure { device, reason }| format!("{device}: {reason}"));
    listed.collect::<Vec<_>>().join("; ")
}
