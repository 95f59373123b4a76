//! What Holdfast says to a lane.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use ts_rs::TS;

use crate::body::TensorSlice;
use crate::segment::{BlobRef, LiftedWeight, TensorShape};

/// A message to a lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ToLane {
    /// The lane is taken in.
    Welcome(Welcome),
    /// The lane is not taken in, and should not try again by itself.
    Refused {
        /// Why, and what to do, for the person in front of the browser.
        reason: String,
    },
    /// Make a segment ready to run. Answered by `loaded`, with `progress` before.
    Load {
        /// Names the request.
        request: u64,
        /// Names the segment from now on.
        segment: String,
        /// The graph.
        graph: BlobRef,
        /// The weights that the graph refers to.
        weights: Vec<BlobRef>,
        /// The inputs that are weights; programs do not name them.
        lifted: Vec<LiftedWeight>,
        /// Sizes for named dimensions.
        dims: BTreeMap<String, u64>,
        /// What else it takes, for a first run on zeros that compiles shaders; empty for none.
        warm_up: Vec<TensorShape>,
        /// What it gives.
        outputs: Vec<String>,
    },
    /// Let a segment go. Answered by `done`.
    Unload {
        /// Names the request.
        request: u64,
        /// The segment.
        segment: String,
    },
    /// Keep a tensor, replacing one of the same name. Answered by `done`.
    Put {
        /// Names the request.
        request: u64,
        /// Its name.
        tensor: String,
        /// Its bytes.
        value: TensorSlice,
    },
    /// Read a kept tensor back. Answered by `tensor`.
    Get {
        /// Names the request.
        request: u64,
        /// Its name.
        tensor: String,
        /// The part of it that is wanted; none for all of it.
        window: Option<TensorWindow>,
    },
    /// Keep a copy of a kept tensor, replacing one of the same name. Answered by `done`.
    Copy {
        /// Names the request.
        request: u64,
        /// The name of what is copied.
        tensor: String,
        /// The part of it that is wanted; none for all of it.
        window: Option<TensorWindow>,
        /// The copy's name.
        to: String,
    },
    /// Let a kept tensor go. Answered by `done`.
    Drop {
        /// Names the request.
        request: u64,
        /// Its name.
        tensor: String,
    },
    /// Run a program. Answered by `outcome`, with a `part` before for each step that wants one.
    Run {
        /// Names the request.
        request: u64,
        /// How long the lane may take, waiting included.
        deadline_ms: u64,
        /// The steps.
        steps: Vec<Step>,
    },
    /// End a request. It is answered by `error` of the kind `cancelled`, unless it was done.
    Cancel {
        /// The request.
        request: u64,
    },
    /// These requests were answered; their results need not be kept any longer.
    Ack {
        /// The requests.
        requests: Vec<u64>,
    },
    /// What do you hold? Answered by `stats`.
    Stats {
        /// Names the request.
        request: u64,
    },
    /// Are you there? Answered by `pong`.
    Ping {
        /// Comes back with the answer.
        nonce: u64,
    },
    /// Holdfast ends. The lane lets go of everything.
    Leave {
        /// Why, for the person in front of the browser.
        reason: String,
        /// Whether to look for Holdfast again after a while.
        come_back: bool,
    },
}

/// The answer to a lane that was taken in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "camelCase")]
pub struct Welcome {
    /// What the lane says to be taken for the same one after its connection was cut.
    pub session: String,
    /// Whether the lane goes on where it was. If not, it starts empty.
    pub resumed: bool,
    /// What Holdfast calls the lane.
    pub name: String,
    /// Opens the blobs that the lane's segments need, and no others.
    pub blob_key: String,
    /// Bytes of blobs that the browser may keep for the next time.
    pub cache_limit_bytes: u64,
    /// Bytes of tensors that the lane may keep.
    pub tensor_limit_bytes: u64,
    /// Bytes of a body that one frame of the lane may carry.
    pub frame_bytes: u64,
    /// How often Holdfast pings. After three times as long without one, the line is dead.
    pub heartbeat_ms: u64,
}

/// A part of a tensor, counted in elements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "camelCase")]
pub struct TensorWindow {
    /// The first element.
    pub offset: u64,
    /// How many elements on each axis.
    pub dims: Vec<u64>,
    /// How far apart neighbours on each axis are.
    pub strides: Vec<u64>,
}

/// One segment to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The segment.
    pub segment: String,
    /// Where each of its inputs comes from.
    pub inputs: Vec<NamedInput>,
    /// What becomes of its outputs; those not named are dropped.
    pub outputs: Vec<NamedOutput>,
    /// Send what is returned as soon as the step is done, as a `part`.
    pub early: bool,
}

/// An input and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(rename_all = "camelCase")]
pub struct NamedInput {
    /// The input.
    pub name: String,
    /// Where it comes from.
    pub from: Input,
}

/// Where an input comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Input {
    /// The body of this message.
    Inline {
        /// Which bytes of it.
        value: TensorSlice,
    },
    /// A kept tensor.
    Kept {
        /// Its name.
        tensor: String,
    },
    /// An output of an earlier step.
    Step {
        /// The step's position.
        step: u32,
        /// The output.
        output: String,
    },
}

/// An output and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "camelCase")]
pub struct NamedOutput {
    /// The output.
    pub name: String,
    /// What becomes of it.
    pub to: Output,
}

/// What becomes of an output. Neither means that it is there for later steps only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    /// Whether it comes back.
    pub returned: bool,
    /// The name to keep it under, replacing what is there once the whole program is done.
    pub keep: Option<String>,
}
