//! Segments: graphs that a device can load.

use std::collections::BTreeMap;
use std::fmt;

use holdfast_graph::Digest;
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
    /// What kind of model it is from. Only patience depends on it, so it is not in the id.
    pub kind: ModelKind,
}

impl Segment {
    /// A segment whose dimensions stay free.
    pub fn new(graph: StoredGraph) -> Segment {
        Segment { graph, dims: BTreeMap::new(), kind: ModelKind::Other }
    }

    /// Identifies the segment: the same graph under the same bindings is the same segment.
    pub fn id(&self) -> SegmentId {
        let mut text = self.graph.graph.to_string();
        for (name, size) in &self.dims {
            text.push_str(&format!("\n{name:?}={size}"));
        }
        SegmentId(Digest::of(text.as_bytes()))
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
