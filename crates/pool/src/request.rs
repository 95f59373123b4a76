//! What the pool is asked, and what it answers.

use std::time::Duration;

use holdfast_devices::{DeviceError, Loaded, ModelKind, Outcome};
use holdfast_graph::Tensor;
use holdfast_models::StoredGraph;
use serde::{Deserialize, Serialize};

use crate::choice::{Choice, Choices};

/// A model to run once.
#[derive(Clone, Debug)]
pub struct Request {
    /// The model's graph, as it was imported.
    pub graph: StoredGraph,
    /// What the model is for.
    pub kind: ModelKind,
    /// Its inputs.
    pub inputs: Vec<(String, Tensor)>,
    /// What to run it on.
    pub choices: Choices,
    /// How long the run may take; loading is not counted.
    pub deadline: Option<Duration>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The outputs, the times, and the device that computed them.
    pub outcome: Outcome,
    /// What loading took, if the model was not there already.
    pub loaded: Loaded,
    /// How long the run took, as seen from here.
    pub took: Duration,
    /// What would have been preferred.
    pub passed_over: Vec<PassedOver>,
}

/// A choice that could not be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedOver {
    /// The choice.
    pub choice: Choice,
    /// Why.
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
}

fn reasons(passed_over: &[PassedOver]) -> String {
    let listed =
        passed_over.iter().map(|PassedOver { choice, reason }| format!("{choice}: {reason}"));
    listed.collect::<Vec<_>>().join("; ")
}
