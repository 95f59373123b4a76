//! Weights that models have in common without a common trunk.
//!
//! Adapters on one base part at their first layer, and a decoder and its twin with a past compute
//! differently from the start: no trunk, but nearly all weights are the same.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_graph::share::SharePlan;
use holdfast_models::{MIN_BLOB_BYTES, hashed_weights};

/// What is in several segments of a plan.
pub(crate) struct InCommon {
    /// The weights that a set of models has in common, by position.
    pub(crate) groups: BTreeMap<BTreeSet<usize>, Group>,
    /// Bytes of all weights, each once.
    pub(crate) bytes_once: u64,
}

/// Some weights.
#[derive(Default)]
pub(crate) struct Group {
    pub(crate) weights: usize,
    pub(crate) bytes: u64,
}

/// One weight, wherever it is.
#[derive(Default)]
struct Seen {
    bytes: u64,
    segments: usize,
    models: BTreeSet<usize>,
}

impl InCommon {
    pub(crate) fn of(plan: &SharePlan) -> InCommon {
        let mut seen = BTreeMap::new();
        for segment in &plan.segments {
            let table = hashed_weights(&segment.model);
            // Two copies in one segment are no reason to say anything.
            let own: BTreeMap<_, u64> =
                table.entries().iter().map(|w| (w.id, w.tensor.bytes().len() as u64)).collect();
            for (id, bytes) in own {
                let weight: &mut Seen = seen.entry(id).or_default();
                weight.bytes = bytes;
                weight.segments += 1;
                weight.models.extend(&segment.users);
            }
        }
        let bytes_once = seen.values().map(|weight| weight.bytes).sum();
        let mut groups: BTreeMap<BTreeSet<usize>, Group> = BTreeMap::new();
        for weight in seen.into_values() {
            // Smaller ones stay in the graph, and every model has its own.
            if weight.segments > 1 && weight.bytes >= MIN_BLOB_BYTES as u64 {
                let group = groups.entry(weight.models).or_default();
                group.weights += 1;
                group.bytes += weight.bytes;
            }
        }
        InCommon { groups, bytes_once }
    }
}
