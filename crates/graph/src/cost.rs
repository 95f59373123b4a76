//! What running a model takes: operations, bytes moved, weights, and memory at the worst moment.
//!
//! The rules of counting, which are those of the graph as written and not of any runtime:
//!
//! - **Operations** (`flops`). A multiplication and an addition are one operation each, so a
//!   product over an inner dimension K takes 2 K for each output element. An element-wise
//!   function takes one for each element, however hard it is (`Erf`, `Exp`); a reduction one for
//!   each element that it reads. Fused operators count what their usual decomposition takes
//!   (softmax 5, layer normalisation 7, gelu 5 for each element), so that fusing a graph leaves
//!   the count nearly as it was. Whole numbers count like any other. Moving, choosing and
//!   converting elements takes none.
//! - **Bytes moved**. Each node reads its inputs and writes its outputs once, as if nothing
//!   stayed in a cache. Views (`Reshape`, `Squeeze`, `Unsqueeze`, `Flatten`, `Identity`) move
//!   nothing, nor do `Shape` and `Constant`. Operators that choose (`Gather`, `Slice`, `Split`)
//!   read only as much of their first input as they give. Strings count as nothing.
//! - **Weight bytes**. Every initializer and constant once, however often it is used, those of
//!   bodies included, whether or not they run. Shown for a node, those that it reads.
//! - **Peak activation bytes**. Nodes run in topological order. A value is there from its
//!   producer to its last consumer, an input from the start, an output to the end; a view is its
//!   input. Nothing is computed in place and there is no scratch memory. Weights are not counted.
//! - **Bodies**. Of an `If`, the branch that is known to be taken (by its condition, or because
//!   the other cannot run at these sizes), else the one that takes more.
//!   The body of a `Loop` or `Scan` as often as it is known to run, else once. Both doubts are
//!   reported.
//!
//! What is not known is listed in [`Cost::unknowns`] and counted as nothing: with anything
//! there, the totals are lower bounds.

mod memory;

use std::collections::HashSet;

use crate::infer::operator::{self, Work};
use crate::infer::{self, Bindings, InferError, Inference, Scope, Unknown};
use crate::model::Model;
use crate::proto::{GraphProto, NodeProto};
use crate::topology::{bodies, initializer_names, order};
use crate::validate::node_label;
use crate::weights::{constant, weights};
use memory::Memory;

/// What running a model once takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// One row for each node that runs, in the order of execution; a node with bodies is
    /// represented by the nodes in them.
    pub nodes: Vec<NodeCost>,
    /// Operations in all.
    pub flops: u64,
    /// Bytes read and written in all.
    pub bytes_moved: u64,
    /// Bytes of all weights.
    pub weight_bytes: u64,
    /// Bytes of the values that are there at the worst moment, weights apart.
    pub peak_activation_bytes: u64,
    /// What is not known and why.
    pub unknowns: Vec<Unknown>,
}

/// What one node takes, over all its runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCost {
    /// What messages call it.
    pub node: String,
    /// Its operator.
    pub operator: String,
    /// How often it runs: more than once in the body of a loop.
    pub runs: u64,
    /// Its operations; `None` where they are not known.
    pub flops: Option<u64>,
    /// Bytes that it reads.
    pub bytes_read: u64,
    /// Bytes that it writes.
    pub bytes_written: u64,
    /// Bytes of the weights among its inputs.
    pub weight_bytes: u64,
}

/// Counts what running the model once takes, with symbolic dimensions as bound.
///
/// ```no_run
/// use holdfast_graph::{Model, cost::cost, infer::Bindings};
/// let model = Model::open("model.onnx")?;
/// let cost = cost(&model, &Bindings::new().size("batch_size", 1).size("sequence_length", 128))?;
/// println!("{} GFLOP, {} MB at most", cost.flops / 1_000_000_000, cost.peak_activation_bytes >> 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn cost(model: &Model, bindings: &Bindings) -> Result<Cost, InferError> {
    Ok(of(model, &infer::infer(model, bindings)?))
}

/// Counts what running the model once takes, at the sizes that were inferred.
pub fn of(model: &Model, inference: &Inference) -> Cost {
    let tally = Count { model, graph: model.graph(), inference, outer: None }.run("", 1);
    let held = weights(model);
    Cost {
        flops: tally.flops(),
        bytes_moved: tally.bytes_moved(),
        weight_bytes: held.iter().map(|weight| weight.tensor.bytes().len() as u64).sum(),
        peak_activation_bytes: tally.peak,
        nodes: tally.nodes,
        unknowns: inference.unknowns.clone(),
    }
}

/// What one node of the outermost graph takes, its bodies included.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeTotal {
    pub(crate) flops: u64,
    pub(crate) bytes_moved: u64,
    pub(crate) weight_bytes: u64,
}

/// What each node of the outermost graph takes, by its index.
pub(crate) fn by_node(model: &Model, inference: &Inference) -> Vec<NodeTotal> {
    let graph = model.graph();
    let facts = Scope { facts: &inference.facts, outer: None };
    let around = Around { facts, weights: weight_names(graph), outer: None };
    let count = Count { model, graph, inference, outer: None };
    let total = |index| {
        let tally = count.one(index, &around, String::new(), 1);
        NodeTotal {
            flops: tally.flops(),
            bytes_moved: tally.bytes_moved(),
            weight_bytes: tally.sum(|node| node.weight_bytes),
        }
    };
    (0..graph.node.len()).map(total).collect()
}

/// What a graph takes.
#[derive(Default)]
struct Tally {
    nodes: Vec<NodeCost>,
    peak: u64,
}

impl Tally {
    fn flops(&self) -> u64 {
        self.sum(|node| node.flops.unwrap_or(0))
    }

    fn bytes_moved(&self) -> u64 {
        self.sum(|node| node.bytes_read.saturating_add(node.bytes_written))
    }

    fn sum(&self, of: impl Fn(&NodeCost) -> u64) -> u64 {
        self.nodes.iter().fold(0, |sum, node| sum.saturating_add(of(node)))
    }
}

/// One graph to count, and what is around it.
struct Count<'a> {
    model: &'a Model,
    graph: &'a GraphProto,
    inference: &'a Inference,
    outer: Option<&'a Around<'a>>,
}

/// The graphs around a body.
struct Around<'a> {
    facts: Scope<'a>,
    weights: HashSet<&'a str>,
    outer: Option<&'a Around<'a>>,
}

impl Around<'_> {
    fn is_weight(&self, name: &str) -> bool {
        self.weights.contains(name) || self.outer.is_some_and(|outer| outer.is_weight(name))
    }
}

impl Count<'_> {
    /// Counts `runs` runs. `place` says where a body is.
    fn run(&self, place: &str, runs: u64) -> Tally {
        let facts =
            Scope { facts: &self.inference.facts, outer: self.outer.map(|outer| &outer.facts) };
        let around = Around { facts, weights: weight_names(self.graph), outer: self.outer };
        let mut memory = Memory::new(self.graph, &facts, &around.weights);
        let mut tally = Tally::default();
        for (step, index) in order(self.graph).unwrap_or_default().into_iter().enumerate() {
            let node = &self.graph.node[index];
            let label = format!("{}{place}", node_label(node));
            let inner = self.one(index, &around, label, runs);
            memory.step(step, node, inner.peak);
            tally.nodes.extend(inner.nodes);
        }
        tally.peak = memory.peak();
        tally
    }

    /// Counts one node, or the nodes in its bodies.
    fn one(&self, index: usize, around: &Around<'_>, label: String, runs: u64) -> Tally {
        match self.inference.bodies.contains_key(&index) {
            true => self.bodies(index, around, &label, runs),
            false => Tally { nodes: vec![self.node(index, around, label, runs)], peak: 0 },
        }
    }

    /// The body of a node that takes most.
    fn bodies(&self, index: usize, around: &Around<'_>, label: &str, runs: u64) -> Tally {
        let node = &self.graph.node[index];
        let held = &self.inference.bodies[&index];
        let runs = runs.saturating_mul(held.trips.unwrap_or(1));
        let alternatives = held.alternatives.iter().filter_map(|(number, inference)| {
            let (attribute, graph) = bodies(node).nth(*number)?;
            let place = format!(" in {} of {label}", attribute.name);
            let count = Count { model: self.model, graph, inference, outer: Some(around) };
            Some(count.run(&place, runs))
        });
        let heavier = |tally: &Tally| (tally.flops(), tally.bytes_moved());
        alternatives.max_by_key(heavier).unwrap_or_default()
    }

    fn node(&self, index: usize, around: &Around<'_>, label: String, runs: u64) -> NodeCost {
        let node = &self.graph.node[index];
        let work = match infer::is_function(self.model, node) {
            true => None,
            false => operator::find(&node.domain, &node.op_type).map(|row| row.work),
        };
        let byte_len = |name: &str| around.facts.get(name).map_or(0, infer::Fact::byte_len);
        let sum = |names: &[&str]| {
            names.iter().fold(0u64, |sum, name| sum.saturating_add(byte_len(name)))
        };
        let outputs: Vec<&str> = node.output.iter().map(String::as_str).collect();
        let inputs = distinct_inputs(node);
        let written = sum(&outputs);
        let (read, written) = match (work, inputs.as_slice()) {
            (Some(Work::View | Work::Free), _) => (0, 0),
            (Some(Work::Picks), [first, others @ ..]) => {
                (byte_len(first).min(written).saturating_add(sum(others)), written)
            }
            _ => (sum(&inputs), written),
        };
        let weights = inputs.iter().copied().filter(|name| around.is_weight(name));
        NodeCost {
            node: label,
            operator: node.op_type.clone(),
            runs,
            flops: self.inference.operations.get(&index).map(|flops| flops.saturating_mul(runs)),
            bytes_read: read.saturating_mul(runs),
            bytes_written: written.saturating_mul(runs),
            weight_bytes: sum(&weights.collect::<Vec<_>>()),
        }
    }
}

fn distinct_inputs(node: &NodeProto) -> Vec<&str> {
    let mut inputs: Vec<&str> = Vec::new();
    let mut seen = HashSet::new();
    for name in node.input.iter().filter(|name| !name.is_empty()) {
        if seen.insert(name.as_str()) {
            inputs.push(name);
        }
    }
    inputs
}

/// The weights that a graph itself holds.
fn weight_names(graph: &GraphProto) -> HashSet<&str> {
    let constants = graph.node.iter().filter(|node| constant(node).is_some());
    let constants = constants.flat_map(|node| &node.output).map(String::as_str);
    initializer_names(graph).chain(constants).collect()
}
