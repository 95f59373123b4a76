//! Segments: graphs that a device can load.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use holdfast_graph::{DataType, Digest, Lifted, LiftedWeight, Tensor, WeightId, WeightTable};
use holdfast_models::StoredGraph;
use serde::{Deserialize, Serialize};

/// A lowered graph, or a piece of one, as the store keeps it: graph bytes and weights by digest.
/// A device in this process maps them; a lane fetches them by digest.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// The graph and its weights.
    pub graph: StoredGraph,
    /// Sizes for named dimensions, fixed for as long as the segment is loaded. Engines plan
    /// memory better when they know them; what is not named stays free.
    pub dims: BTreeMap<String, usize>,
    /// Inputs of the graph that are weights. The device feeds them itself, so programs do not name
    /// them.
    pub lifted: Vec<LiftedInput>,
    /// What kind of model it is from. Only patience depends on it, so it is not in the id.
    pub kind: ModelKind,
}

impl Segment {
    /// A segment whose dimensions stay free, and which has all its weights in its graph.
    pub fn new(graph: StoredGraph) -> Segment {
        Segment { graph, dims: BTreeMap::new(), lifted: Vec::new(), kind: ModelKind::Other }
    }

    /// Identifies the segment: the same graph under the same bindings, with the same weights for
    /// its lifted inputs, is the same segment.
    pub fn id(&self) -> SegmentId {
        let mut text = self.graph.graph.to_string();
        for (name, size) in &self.dims {
            text.push_str(&format!("\n{name:?}={size}"));
        }
        let weight = |LiftedInput { input, content, dtype, dims }: &LiftedInput| {
            format!("\n{input:?} is {content} as {dtype}{dims:?}")
        };
        let mut weights: Vec<String> = self.lifted.iter().map(weight).collect();
        weights.sort();
        text.extend(weights);
        SegmentId(Digest::of(text.as_bytes()))
    }
}

/// An input of a segment that is a weight, as [`lift`](holdfast_graph::lift) makes them. A device
/// holds one copy of it, however many of its segments use it: from the first that is loaded until
/// the last is unloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiftedInput {
    /// The name of the input.
    pub input: String,
    /// The blob that holds the weight.
    pub content: Digest,
    /// Its element type.
    pub dtype: DataType,
    /// Its dimensions.
    pub dims: Vec<usize>,
}

impl LiftedInput {
    /// What became inputs when weights of this table were lifted.
    pub fn of(lifted: &Lifted, weights: &WeightTable) -> Vec<LiftedInput> {
        let tensors: HashMap<WeightId, &Tensor> =
            weights.entries().iter().map(|weight| (weight.id, &weight.tensor)).collect();
        let input = |LiftedWeight { input, id, content }: &LiftedWeight| {
            let tensor = tensors.get(id)?;
            let (dtype, dims) = (tensor.dtype(), tensor.dims().to_vec());
            Some(LiftedInput { input: input.clone(), content: *content, dtype, dims })
        };
        lifted.weights.iter().filter_map(input).collect()
    }
}

/// What a model is for, as far as it matters for how long it may take.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum ModelKind {
    Text,
    Vision,
    Audio,
    Generation,
    Multimodal,
    #[default]
    Other,
}

/// Identifies a segment on every device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SegmentId(pub Digest);

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.short())
    }
}

impl fmt::Debug for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SegmentId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifted(input: &str, content: &str, dims: &[usize]) -> LiftedInput {
        let content = Digest::of(content.as_bytes());
        LiftedInput { input: input.to_owned(), content, dtype: DataType::F32, dims: dims.to_vec() }
    }

    fn segment(lifted: Vec<LiftedInput>) -> Segment {
        let graph = StoredGraph { graph: Digest::of(b"graph"), weights: Vec::new() };
        Segment { lifted, ..Segment::new(graph) }
    }

    #[test]
    fn lifted_inputs_are_part_of_the_id() {
        let ids = [
            vec![],
            vec![lifted("w", "one", &[2, 3])],
            vec![lifted("w", "other", &[2, 3])],
            vec![lifted("w", "one", &[3, 2])],
            vec![lifted("v", "one", &[2, 3])],
            vec![LiftedInput { dtype: DataType::I32, ..lifted("w", "one", &[2, 3]) }],
        ]
        .map(|lifted| segment(lifted).id());
        for (at, id) in ids.iter().enumerate() {
            assert!(!ids[..at].contains(id), "{at}");
        }
    }

    #[test]
    fn their_order_is_not() {
        let (one, two) = (lifted("v", "one", &[4]), lifted("w", "two", &[4]));
        let id = |lifted| segment(lifted).id();
        assert_eq!(id(vec![one.clone(), two.clone()]), id(vec![two, one]));
    }
}
