//! Programs: what a device is asked to do in one go.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdfast_graph::{DataType, Tensor};
use serde::{Deserialize, Serialize};

use crate::check::byte_len;
use crate::device::DeviceInfo;
use crate::segment::SegmentId;

/// Names a request, so that it can be cancelled, and recognised when it is asked again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub String);

/// Names a tensor that is kept on a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(pub String);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for TensorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Steps that run one after the other.
#[derive(Clone, Debug)]
pub struct Program {
    /// Which request this is.
    pub request: RequestId,
    /// How long the caller waits, queueing included; `None` for as long as it takes.
    pub deadline: Option<Duration>,
    /// The steps.
    pub steps: Vec<Step>,
}

impl Program {
    /// A program of one step that returns all of `outputs`.
    pub fn single(
        request: impl Into<String>,
        segment: SegmentId,
        inputs: impl IntoIterator<Item = (String, Tensor)>,
        outputs: impl IntoIterator<Item = String>,
    ) -> Program {
        let inputs = inputs.into_iter().map(|(name, tensor)| (name, Input::Inline(tensor)));
        let outputs = outputs.into_iter().map(|name| (name, Output::Return));
        let step = Step { segment, inputs: inputs.collect(), outputs: outputs.collect() };
        Program { request: RequestId(request.into()), deadline: None, steps: vec![step] }
    }
}

/// One segment to run.
#[derive(Clone, Debug)]
pub struct Step {
    /// The segment; it has to be loaded.
    pub segment: SegmentId,
    /// Where each of its inputs comes from.
    pub inputs: Vec<(String, Input)>,
    /// What becomes of its outputs. Those that are not named are dropped.
    pub outputs: Vec<(String, Output)>,
}

/// Where an input comes from.
#[derive(Clone, Debug)]
pub enum Input {
    /// From the request.
    Inline(Tensor),
    /// A tensor that the device has kept.
    Kept(TensorId),
    /// The output of an earlier step of this program, which has to name it.
    Step {
        /// The step's position.
        step: usize,
        /// Its output.
        output: String,
    },
}

/// What becomes of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// It goes back to the caller.
    Return,
    /// It stays on the device under this name, replacing what was there: that is how a
    /// key-value cache grows step by step without leaving the device.
    Keep(TensorId),
    /// Both.
    ReturnAndKeep(TensorId),
    /// It is there for later steps of this program only.
    Pass,
}

impl Output {
    /// The name to keep it under.
    pub fn kept_as(&self) -> Option<&TensorId> {
        match self {
            Output::Keep(id) | Output::ReturnAndKeep(id) => Some(id),
            Output::Return | Output::Pass => None,
        }
    }

    /// Whether the caller gets it.
    pub fn is_returned(&self) -> bool {
        matches!(self, Output::Return | Output::ReturnAndKeep(_))
    }
}

/// What a program gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The outputs that were to be returned, in the order of the steps.
    pub outputs: Vec<Returned>,
    /// What the device keeps of it, each name once.
    pub kept: Vec<KeptTensor>,
    /// How long each step took.
    pub steps: Vec<StepTiming>,
    /// How long the program waited for its turn.
    pub queued: Duration,
    /// What computed it.
    pub device: Arc<DeviceInfo>,
}

impl Outcome {
    /// The output of this name in the last step that returned one.
    pub fn output(&self, name: &str) -> Option<&Tensor> {
        self.outputs.iter().rev().find(|output| output.name == name).map(|output| &output.tensor)
    }
}

/// An output that came back.
#[derive(Clone, Debug)]
pub struct Returned {
    /// The step that gave it.
    pub step: usize,
    /// Its name.
    pub name: String,
    /// Its value.
    pub tensor: Tensor,
}

/// A tensor that a program left on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptTensor {
    /// The name that it is kept under.
    pub id: TensorId,
    /// Its element type.
    pub dtype: DataType,
    /// Its dimensions.
    pub dims: Vec<usize>,
}

impl KeptTensor {
    /// The bytes that it takes. What no memory could hold counts as more than any has.
    pub fn byte_len(&self) -> u64 {
        byte_len(self.dtype, &self.dims).unwrap_or(u64::MAX)
    }
}

/// How long a step took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct StepTiming {
    /// The engine's own time.
    pub run: Duration,
    /// The time to copy what is returned off the device.
    pub readback: Duration,
}
