//! Shape inference: the type and shape of every value, once the caller has bound the sizes.
//!
//! With every symbolic dimension bound, shapes are plain numbers, and the small tensors that
//! exporters compute shapes with can be followed. A forward walk gives each value a [`Fact`].
//! Nothing is guessed: an operator without a rule, or a shape that depends on what the values
//! turn out to be, is reported as [`Unknown`], and so is everything after it.
//!
//! Each known operator is one row of a table in the file of its group (see `operator`): its
//! types, its shapes and its work.

mod arrange;
mod attention;
mod bindings;
mod blocked;
mod control;
mod convolve;
mod create;
mod elementwise;
mod fact;
mod node;
mod normalize;
pub(crate) mod operator;
mod pick;
mod product;
#[cfg(test)]
mod property;
mod quantize;
mod recur;
mod reduce;
mod resize;
mod signal;
mod types;

use std::collections::HashMap;

pub use bindings::{Bindings, InferError};
pub use fact::{Fact, Number};
pub use types::dtypes;

pub(crate) use control::Bodies;

use crate::model::Model;
use crate::proto::{GraphProto, NodeProto, SparseTensorProto};
use crate::tensor::{Tensor, checked_dims};
use crate::topology::{bodies, order};
use crate::validate::node_label;
use crate::{DataType, proto::TensorProto};
use node::{Input, Node, Shape};
use operator::Work;
use types::Types;

/// What is known of the values of a graph.
#[derive(Clone, Debug, Default)]
pub struct Inference {
    /// The values whose shape is known: inputs, weights and outputs of nodes.
    pub facts: HashMap<String, Fact>,
    /// What is not known and why, in the order of execution, that of bodies included.
    pub unknowns: Vec<Unknown>,
    /// Operations of each node by its index, where they are known.
    pub(crate) operations: HashMap<usize, u64>,
    /// What the bodies of each node hold, by its index.
    pub(crate) bodies: HashMap<usize, Bodies>,
    /// Whether a node in it cannot run at these sizes.
    impossible: bool,
}

/// A node of which something is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// What messages call the node.
    pub node: String,
    /// Why.
    pub reason: Reason,
}

/// Why something is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// There is no rule for the operator.
    #[error("there is no rule for operator `{0}`")]
    Operator(String),
    /// A shape depends on the contents of this input.
    #[error("the shape depends on the values of `{0}`, which only a run can tell")]
    Values(String),
    /// This output's shape depends on values.
    #[error("the shape of output `{0}` depends on values that only a run can tell")]
    Output(String),
    /// This input is itself not known.
    #[error("it follows from `{0}`, which is not known")]
    Follows(String),
    /// The inputs do not fit the operator or each other at these sizes.
    #[error("it cannot run at these sizes: {0}")]
    Invalid(String),
    /// The output would have an absurd number of elements.
    #[error("an output would have more elements than any memory can hold")]
    TooLarge,
    /// The condition of an `If` is not known: the branch that costs more is counted.
    #[error("only a run can tell which branch is taken; the one that costs more is counted")]
    Condition,
    /// How often a `Loop` runs its body is not known: it is counted once.
    #[error("only a run can tell how often the body is run; it is counted once")]
    Trips,
    /// A value has another shape in each run of a body: the body is counted once, as it first runs.
    #[error("a value changes its shape from one run of the body to the next; it is counted once")]
    Unsteady,
}

/// Finds the type and shape of every value, with symbolic dimensions as bound.
///
/// ```no_run
/// use holdfast_graph::{Model, infer};
/// let model = Model::open("model.onnx")?;
/// let sizes = infer::Bindings::new().size("batch_size", 1).size("sequence_length", 128);
/// let found = infer::infer(&model, &sizes)?;
/// println!("{:?}", found.facts["last_hidden_state"].dims);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn infer(model: &Model, bindings: &Bindings) -> Result<Inference, InferError> {
    let inputs = bindings.resolve(model)?;
    let mut walk = Walk { model, block: blocked::block_of(model), unknowns: Vec::new() };
    let types = Types::of_graph(model, model.graph(), &[], None);
    let mut found = walk.graph(model.graph(), inputs, &types, None, "");
    found.unknowns = walk.unknowns;
    Ok(found)
}

/// Whether a node calls a function that the model defines itself, whatever its name.
pub(crate) fn is_function(model: &Model, node: &NodeProto) -> bool {
    let functions = &model.proto().functions;
    functions.iter().any(|found| found.name == node.op_type && found.domain == node.domain)
}

/// The facts of a graph and of those around it.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) facts: &'a HashMap<String, Fact>,
    pub(crate) outer: Option<&'a Scope<'a>>,
}

impl<'a> Scope<'a> {
    pub(crate) fn get(&self, name: &str) -> Option<&'a Fact> {
        self.facts.get(name).or_else(|| self.outer.and_then(|outer| outer.get(name)))
    }
}

/// The walk over a graph and its bodies.
struct Walk<'a> {
    model: &'a Model,
    block: Option<usize>,
    unknowns: Vec<Unknown>,
}

/// What was found of one node.
struct Found {
    shapes: Vec<Option<Shape>>,
    operations: Option<u64>,
    bodies: Option<Bodies>,
    /// Why, where something is missing.
    reason: Option<Reason>,
    /// Whether it cannot run at these sizes.
    impossible: bool,
}

impl From<Reason> for Found {
    fn from(reason: Reason) -> Found {
        let impossible = matches!(reason, Reason::Invalid(_) | Reason::TooLarge);
        let reason = Some(reason);
        Found { shapes: Vec::new(), operations: None, bodies: None, reason, impossible }
    }
}

impl Walk<'_> {
    /// Walks a graph whose inputs are `facts`. `place` says where a body is, for messages.
    fn graph(
        &mut self,
        graph: &GraphProto,
        mut facts: HashMap<String, Fact>,
        types: &Types<'_>,
        outer: Option<&Scope<'_>>,
        place: &str,
    ) -> Inference {
        facts.extend(graph.initializer.iter().filter_map(initializer));
        facts.extend(graph.sparse_initializer.iter().filter_map(sparse_initializer));
        let mut found = Inference { facts, ..Inference::default() };
        for index in order(graph).unwrap_or_default() {
            let node = &graph.node[index];
            let label = format!("{}{place}", node_label(node));
            let scope = Scope { facts: &found.facts, outer };
            let result = if bodies(node).next().is_some() {
                self.control(node, types, &scope, &label)
            } else {
                self.node(node, &scope)
            };
            let reason = self.record(node, result, types, index, &mut found);
            self.unknowns.extend(reason.map(|reason| Unknown { node: label, reason }));
        }
        found
    }

    fn node(&self, node: &NodeProto, scope: &Scope<'_>) -> Found {
        let row =
            operator::find(&node.domain, &node.op_type).filter(|_| !is_function(self.model, node));
        let Some(row) = row else {
            let domain = if node.domain.is_empty() { "ai.onnx" } else { &node.domain };
            return Reason::Operator(format!("{domain}::{}", node.op_type)).into();
        };
        let version = self.model.opset(&node.domain).unwrap_or(1);
        let node = Node { proto: node, version, block: self.block, inputs: inputs(node, scope) };
        let shapes = match (row.shapes)(&node) {
            Ok(shapes) => shapes,
            Err(reason) => return reason.into(),
        };
        let (operations, reason) = match operations(row.work, &node, &shapes) {
            Ok(operations) => (Some(operations), None),
            Err(reason) => (None, Some(reason)),
        };
        let shapes = shapes.into_iter().map(Some).collect();
        Found { shapes, operations, bodies: None, reason, impossible: false }
    }

    /// Notes what was found of a node, and gives the reason if anything is missing.
    fn record(
        &self,
        node: &NodeProto,
        result: Found,
        types: &Types<'_>,
        index: usize,
        found: &mut Inference,
    ) -> Option<Reason> {
        let mut reason = result.reason;
        found.impossible |= result.impossible;
        found.operations.extend(result.operations.map(|operations| (index, operations)));
        found.bodies.extend(result.bodies.map(|bodies| (index, bodies)));
        let mut shapes = result.shapes.into_iter();
        for name in &node.output {
            let shape = shapes.next().flatten();
            if name.is_empty() {
                continue;
            }
            let fact = match (shape, types.get(name)) {
                (Some(shape), Some(dtype)) => fact(dtype, shape),
                (Some(_), None) => Err(Reason::Invalid(format!("`{name}` has no element type"))),
                (None, _) => Err(Reason::Output(name.clone())),
            };
            match fact {
                Ok(fact) => drop(found.facts.insert(name.clone(), fact)),
                Err(missing) => reason = reason.or(Some(missing)),
            }
        }
        reason
    }
}

fn inputs<'a>(node: &NodeProto, scope: &Scope<'a>) -> Vec<Input<'a>> {
    let input = |name: &String| match scope.get(name) {
        _ if name.is_empty() => Input::Absent,
        Some(fact) => Input::Known(fact),
        None => Input::Unknown,
    };
    node.input.iter().map(input).collect()
}

fn operations(work: Work, node: &Node<'_>, shapes: &[Shape]) -> Result<u64, Reason> {
    let first = shapes.first().map_or(&[][..], |shape| &shape.dims);
    Ok(match work {
        Work::View | Work::Free | Work::Moves | Work::Picks => 0,
        Work::PerOutput(each) => node::times(first).saturating_mul(each),
        Work::PerInput(each) => node.input(0)?.elements().saturating_mul(each),
        Work::Formula(formula) => formula(node, first)?,
    })
}

/// The fact of an output, its contents fitted to its type.
fn fact(dtype: DataType, shape: Shape) -> Result<Fact, Reason> {
    let elements = node::product(&shape.dims)?;
    let fits = |data: &Vec<Number>| data.len() == elements && elements <= fact::MAX_FOLLOWED;
    let data = shape.data.filter(fits).and_then(|data| {
        data.into_iter().map(|number| number.fit(dtype)).collect::<Option<Vec<_>>>()
    });
    Ok(Fact { dtype, dims: shape.dims, data })
}

fn initializer(proto: &TensorProto) -> Option<(String, Fact)> {
    let fact = match Tensor::from_proto(proto) {
        Ok(tensor) => Fact::of_tensor(&tensor),
        // Strings have no bytes, but a shape.
        Err(_) => {
            Fact::new(DataType::from_onnx(proto.data_type)?, &checked_dims(&proto.dims).ok()?)
        }
    };
    Some((proto.name.clone(), fact))
}

fn sparse_initializer(proto: &SparseTensorProto) -> Option<(String, Fact)> {
    let values = proto.values.as_ref()?;
    let dims = checked_dims(&proto.dims).ok()?;
    Some((values.name.clone(), Fact::new(DataType::from_onnx(values.data_type)?, &dims)))
}
