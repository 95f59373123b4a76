//! How a model runs on a device: which segments, in which order, and what flows between them.
//!
//! A model on its own is one segment. One that shares with others is a trunk or several, and what
//! is left of it. The scheduler, batches and programs see only routes, so nothing else asks which
//! of the two it is.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, RwLock};

use holdfast_devices::{ModelKind, Segment, SegmentId};
use holdfast_graph::{DataType, Digest, Tensor, Value};

use crate::batch::Rows;

/// A model that is ready to be loaded.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Identifies the route; of a model on its own it is the segment's.
    pub(crate) id: SegmentId,
    /// The model's graph, as it was imported.
    pub(crate) original: Digest,
    pub(crate) kind: ModelKind,
    /// What has to be loaded, each with its id.
    pub(crate) segments: Vec<(SegmentId, Segment)>,
    pub(crate) steps: Vec<Step>,
    /// Where each output of the model is found.
    pub(crate) outputs: Vec<(String, StepOutput)>,
    /// Bytes of its large weights, each once.
    pub(crate) bytes: u64,
    /// Where its requests can be put together.
    pub(crate) rows: Option<Rows>,
    /// What it has to do with other models; `None` on its own.
    pub(crate) shared: Option<Shared>,
}

/// A route that shares something with others.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The model on its own.
    pub(crate) whole: Arc<Prepared>,
    /// Where it was proven that the two give the same bits.
    pub(crate) proven: Arc<Proven>,
}

/// One run of a segment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    /// The segment, by position.
    pub(crate) segment: usize,
    pub(crate) inputs: Vec<(String, Source)>,
    /// What later steps, or the model's outputs, take of it; all that it gives, where others run
    /// it as well.
    pub(crate) outputs: Vec<String>,
    /// Whether other models run it as well, so that what it gives is worth keeping.
    pub(crate) trunk: bool,
}

/// Where an input of a step comes from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    /// An input of the model, as other integers if need be.
    Input { name: String, casts: Vec<DataType> },
    /// An earlier step.
    Step(StepOutput),
    /// Always the same.
    Constant(Tensor),
}

/// An output of a step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StepOutput {
    pub(crate) step: usize,
    pub(crate) output: String,
}

impl Prepared {
    /// A model on its own, which takes and gives these.
    pub(crate) fn whole(
        original: Digest,
        segment: Segment,
        inputs: &[Value],
        outputs: &[Value],
    ) -> Prepared {
        let input = |value: &Value| {
            let name = value.name.clone();
            (name.clone(), Source::Input { name, casts: Vec::new() })
        };
        let names: Vec<String> = outputs.iter().map(|output| output.name.clone()).collect();
        let found = |output: &String| StepOutput { step: 0, output: output.clone() };
        // What is fixed by the segment is not free.
        let rows = if segment.dims.is_empty() { Rows::of(inputs, outputs) } else { None };
        let step = Step {
            segment: 0,
            inputs: inputs.iter().map(input).collect(),
            outputs: names.clone(),
            trunk: false,
        };
        Prepared {
            id: segment.id(),
            original,
            kind: segment.kind,
            bytes: weight_bytes([&segment]),
            segments: vec![(segment.id(), segment)],
            steps: vec![step],
            outputs: names.iter().map(|name| (name.clone(), found(name))).collect(),
            rows,
            shared: None,
        }
    }

    /// A model by way of what it shares with others.
    pub(crate) fn shared(
        whole: Arc<Prepared>,
        proven: Arc<Proven>,
        segments: Vec<Segment>,
        steps: Vec<Step>,
        outputs: Vec<(String, StepOutput)>,
    ) -> Prepared {
        let bytes = weight_bytes(&segments);
        let segments: Vec<(SegmentId, Segment)> =
            segments.into_iter().map(|segment| (segment.id(), segment)).collect();
        let mut text = String::from("route");
        for step in &steps {
            text.push_str(&format!("\n{} {:?}", segments[step.segment].0.0, step));
        }
        text.push_str(&format!("\n{outputs:?}"));
        Prepared {
            id: SegmentId(Digest::of(text.as_bytes())),
            original: whole.original,
            kind: whole.kind,
            segments,
            steps,
            outputs,
            bytes,
            rows: whole.rows.clone(),
            shared: Some(Shared { whole, proven }),
        }
    }

    /// The model on its own, if this is not it.
    pub(crate) fn alone(&self) -> Option<&Arc<Prepared>> {
        self.shared.as_ref().map(|shared| &shared.whole)
    }

    /// Whether it gives the right bits on devices of this kind.
    pub(crate) fn may_run_on(&self, kind: &str) -> bool {
        self.shared.as_ref().is_none_or(|shared| shared.proven.on(kind))
    }

    /// The id of the segment of a step.
    pub(crate) fn segment_of(&self, step: &Step) -> SegmentId {
        self.segments[step.segment].0
    }
}

/// Bytes of the large weights of some segments, each once.
fn weight_bytes<'a>(segments: impl IntoIterator<Item = &'a Segment>) -> u64 {
    let mut weights: BTreeMap<Digest, u64> = BTreeMap::new();
    for segment in segments {
        weights.extend(segment.graph.weights.iter().map(|weight| (weight.content, weight.bytes)));
        weights.extend(lifted_bytes(segment));
    }
    weights.values().sum()
}

/// The weights that a segment takes from the device, with their bytes.
pub(crate) fn lifted_bytes(segment: &Segment) -> impl Iterator<Item = (Digest, u64)> {
    segment.lifted.iter().map(|lifted| {
        let elements = lifted.dims.iter().product::<usize>() as u64;
        (lifted.content, lifted.dtype.byte_len(elements).unwrap_or(0))
    })
}

/// The kinds of devices on which a plan was proven.
#[derive(Debug, Default)]
pub(crate) struct Proven(RwLock<HashSet<Arc<str>>>);

impl Proven {
    pub(crate) fn on(&self, kind: &str) -> bool {
        self.0.read().expect("no code panics while holding this lock").contains(kind)
    }

    /// Whether it was on any.
    pub(crate) fn anywhere(&self) -> bool {
        !self.0.read().expect("no code panics while holding this lock").is_empty()
    }

    pub(crate) fn add(&self, kind: Arc<str>) {
        self.0.write().expect("no code panics while holding this lock").insert(kind);
    }
}
