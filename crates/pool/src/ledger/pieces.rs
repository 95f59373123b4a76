//! What running the steps of a route takes at given sizes, read off the graphs of its segments.
//!
//! A graph is looked through once for each size that is asked for; after that it is a look-up,
//! because estimates are asked for far more often than sizes change.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use holdfast_devices::{Segment, SegmentId};
use holdfast_graph::infer::{Bindings, Inference, infer};
use holdfast_graph::{Digest, Model, Tensor, cost};
use holdfast_models::Store;
use holdfast_predict::{Features, RunSize, Weight};

use crate::batch::Inputs;
use crate::pool::{explain, lock};
use crate::route::{Prepared, Source, lifted_bytes};

/// Sizes of segments that are remembered. Past this all are forgotten.
const REMEMBERED: usize = 4096;

/// The sizes of a request's inputs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shapes(Vec<(String, Vec<usize>)>);

impl Shapes {
    pub(crate) fn of(inputs: &Inputs) -> Shapes {
        Shapes(inputs.iter().map(|(name, t)| (name.clone(), t.dims().to_vec())).collect())
    }

    /// The same with so many rows, where every input has rows first.
    pub(crate) fn with_rows(mut self, rows: usize) -> Shapes {
        self.0.iter_mut().filter_map(|(_, dims)| dims.first_mut()).for_each(|first| *first = rows);
        self
    }

    fn get(&self, name: &str) -> Option<&[usize]> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, dims)| dims.as_slice())
    }

    /// Rows of the input.
    pub(crate) fn batch(&self) -> usize {
        self.0.first().and_then(|(_, dims)| dims.first()).copied().unwrap_or(1).max(1)
    }

    /// The length of a row: tokens of a text, samples of a sound, all numbers of a picture or of what
    /// is kept of the past. Of several inputs, the longest.
    fn sequence(&self) -> usize {
        let lengths = self.0.iter().map(|(_, dims)| dims.iter().skip(1).product());
        lengths.max().unwrap_or(1).max(1)
    }
}

/// A segment at one size.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) segment: SegmentId,
    pub(crate) features: Arc<Features>,
    /// Its large weights.
    pub(crate) weights: Arc<[Weight]>,
    /// The sizes of what it gives, as far as they can be told without running it.
    outputs: HashMap<String, Vec<usize>>,
}

/// The pieces of a route, step by step.
pub(crate) type Steps = Arc<[Arc<Piece>]>;

/// All that a piece depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    segment: SegmentId,
    /// The sizes of what feeds it, and what is always the same.
    fed: Vec<(String, Fed)>,
    /// Outputs that come back from the device; others stay there for later steps.
    returned: Vec<String>,
    batch: usize,
    sequence: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Fed {
    /// By the caller.
    Given(Vec<usize>),
    /// By an earlier step, on the device.
    There(Vec<usize>),
    /// A constant, by its content: which branch of a graph runs may depend on it.
    Constant(Digest),
}

/// Everything that was looked through.
pub(crate) struct Pieces {
    store: Arc<Store>,
    known: Mutex<HashMap<Key, Arc<Piece>>>,
    /// Routes at sizes, so that one look is enough for what is asked often.
    routes: Mutex<HashMap<(SegmentId, Shapes), Steps>>,
}

impl Pieces {
    pub(crate) fn new(store: Arc<Store>) -> Pieces {
        let (known, routes) = Default::default();
        Pieces { store, known, routes }
    }

    /// What each step of a route takes. The error says why that cannot be told.
    pub(crate) fn of(&self, route: &Prepared, shapes: &Shapes) -> Result<Steps, String> {
        let key = (route.id, shapes.clone());
        if let Some(known) = lock(&self.routes).get(&key) {
            return Ok(known.clone());
        }
        let mut pieces: Vec<Arc<Piece>> = Vec::new();
        for (number, step) in route.steps.iter().enumerate() {
            let mut fed = Vec::new();
            let mut constants = Vec::new();
            for (input, source) in &step.inputs {
                let missing =
                    |name: &str| format!("the size of `{name}` is not known before a run");
                fed.push((
                    input.clone(),
                    match source {
                        Source::Input { name, .. } => {
                            Fed::Given(shapes.get(name).ok_or_else(|| missing(name))?.to_vec())
                        }
                        Source::Step(from) => {
                            let dims =
                                pieces.get(from.step).and_then(|p| p.outputs.get(&from.output));
                            Fed::There(dims.ok_or_else(|| missing(&from.output))?.clone())
                        }
                        Source::Constant(tensor) => {
                            constants.push((input.clone(), tensor.clone()));
                            Fed::Constant(Digest::of(tensor.bytes()))
                        }
                    },
                ));
            }
            let (segment, graph) = &route.segments[step.segment];
            let returned = route.outputs.iter().filter(|(_, from)| from.step == number);
            let returned = returned.map(|(_, from)| from.output.clone()).collect();
            let (batch, sequence) = (shapes.batch(), shapes.sequence());
            let key = Key { segment: *segment, fed, returned, batch, sequence };
            pieces.push(self.piece(key, graph, &constants)?);
        }
        let pieces: Steps = pieces.into();
        let mut routes = lock(&self.routes);
        if routes.len() >= REMEMBERED {
            routes.clear();
        }
        routes.insert(key, pieces.clone());
        Ok(pieces)
    }

    fn piece(
        &self,
        key: Key,
        segment: &Segment,
        constants: &[(String, Tensor)],
    ) -> Result<Arc<Piece>, String> {
        if let Some(known) = lock(&self.known).get(&key) {
            return Ok(known.clone());
        }
        let model = self.store.open_graph(&segment.graph).map_err(|error| explain(&error))?;
        let bindings =
            segment.dims.iter().fold(Bindings::new(), |b, (dim, size)| b.size(dim, *size));
        let bindings = key.fed.iter().fold(bindings, |bindings, (input, fed)| match fed {
            Fed::Given(dims) | Fed::There(dims) => bindings.shape(input, dims),
            Fed::Constant(_) => bindings,
        });
        let bindings = constants.iter().fold(bindings, |b, (name, t)| b.value(name, t.clone()));
        let lifted = segment.lifted.iter();
        let bindings = lifted.fold(bindings, |b, lifted| b.shape(&lifted.input, &lifted.dims));
        let inference = infer(&model, &bindings).map_err(|error| explain(&error))?;
        let cost = cost::of(&model, &inference);
        let bytes = |name: &str| inference.facts.get(name).map_or(0, |fact| fact.byte_len());
        let mut weights: HashMap<Digest, u64> = lifted_bytes(segment).collect();
        let lifted_bytes: u64 = weights.values().sum();
        weights.extend(segment.graph.weights.iter().map(|weight| (weight.content, weight.bytes)));
        let tables = tables(&model, &inference, segment);
        let weight =
            |(content, bytes)| Weight { content, bytes, is_table: tables.contains(&content) };
        let outputs = model.outputs();
        let goes_there = key.fed.iter().filter(|(_, fed)| !matches!(fed, Fed::There(_)));
        let size = RunSize {
            batch: key.batch,
            sequence: key.sequence,
            input_bytes: goes_there.map(|(name, _)| bytes(name)).sum(),
            output_bytes: key.returned.iter().map(|name| bytes(name)).sum(),
            weight_bytes: cost.weight_bytes + lifted_bytes,
            ..RunSize::default()
        };
        let outputs = outputs.into_iter().filter_map(|output| {
            let dims = inference.facts.get(&output.name)?.dims.clone();
            Some((output.name, dims))
        });
        let piece = Arc::new(Piece {
            segment: key.segment,
            features: Arc::new(Features::of(&cost, size)),
            weights: weights.into_iter().map(weight).collect(),
            outputs: outputs.collect(),
        });
        let mut known = lock(&self.known);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(key, piece.clone());
        Ok(piece)
    }
}

/// The weights of a segment that rows are picked from. A stored weight has no name, so it is known
/// by its type and shape.
fn tables(model: &Model, inference: &Inference, segment: &Segment) -> HashSet<Digest> {
    let gathers = model.graph().node.iter().filter(|node| node.op_type == "Gather");
    let picked: HashSet<&str> =
        gathers.filter_map(|node| node.input.first()).map(String::as_str).collect();
    let facts: Vec<_> = picked.iter().filter_map(|name| inference.facts.get(*name)).collect();
    let stored = segment.graph.weights.iter().filter(|weight| {
        facts.iter().any(|fact| fact.dtype == weight.dtype && fact.dims == weight.dims)
    });
    let lifted = segment.lifted.iter().filter(|lifted| picked.contains(lifted.input.as_str()));
    stored.map(|weight| weight.content).chain(lifted.map(|lifted| lifted.content)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes(dims: &[&[usize]]) -> Shapes {
        Shapes(dims.iter().map(|dims| (String::new(), dims.to_vec())).collect())
    }

    #[test]
    fn rows_of_other_lengths_are_told_apart_whatever_they_are() {
        let text = shapes(&[&[4, 32], &[4, 32]]);
        assert_eq!((text.batch(), text.sequence()), (4, 32));
        let (small, large) = (shapes(&[&[1, 3, 32, 32]]), shapes(&[&[1, 3, 64, 64]]));
        assert_ne!(small.sequence(), large.sequence());
        let with_past = |past| shapes(&[&[1, 1], &[1, 2, past, 8]]).sequence();
        assert_ne!(with_past(4), with_past(5));
        assert_eq!(shapes(&[&[7]]).sequence(), 1);
    }
}
