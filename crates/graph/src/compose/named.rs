//! A model under names of its own, so that it can stand beside others in one graph.

use std::collections::{BTreeMap, HashMap};

use super::piece::value;
use super::{ComposeError, ComposedInput, ComposedPart, Part};
use crate::dtype::DataType;
use crate::infer::dtypes;
use crate::model::Dim;
use crate::proto::{GraphProto, ValueInfoProto};
use crate::topology::{needs, order};
use crate::weights::{HashedWeight, Slot};

/// A model whose names all begin with its number.
pub(super) struct Named<'a> {
    /// Its place among the parts.
    pub(super) number: usize,
    /// What messages call it.
    pub(super) name: &'a str,
    /// Its nodes and weights under their new names.
    pub(super) graph: GraphProto,
    /// The initializers that can be shared.
    pub(super) weights: HashMap<String, &'a HashedWeight>,
    /// The nodes, each after those that it needs.
    pub(super) order: Vec<usize>,
    /// Which node gives a value.
    pub(super) producers: HashMap<String, usize>,
    /// The element types of its values, as far as they are known.
    pub(super) types: HashMap<String, DataType>,
    /// What the composite has to be fed for it.
    pub(super) inputs: Vec<ValueInfoProto>,
    /// What it returns, without repetitions.
    pub(super) outputs: Vec<Returned>,
    /// Where the caller finds it.
    pub(super) composed: ComposedPart,
}

/// An output of a model.
pub(super) struct Returned {
    /// The value in the model.
    pub(super) value: String,
    /// What it is called in the composite.
    pub(super) given_as: String,
    pub(super) dtype: DataType,
}

impl<'a> Named<'a> {
    pub(super) fn new(number: usize, part: &Part<'a>) -> Result<Named<'a>, ComposeError> {
        let inside = |name: &str| format!("{number}/{name}");
        let chosen_by = format!("{number}:chosen");
        let mut fed = vec![value(&chosen_by, DataType::Bool, Some(&[]))];
        let mut inputs = BTreeMap::new();
        for input in part.model.inputs() {
            let (model, own) = (part.name.to_owned(), input.name.clone());
            let dtype = input.dtype.ok_or(ComposeError::InputType { model, input: own })?;
            let name = inside(&input.name);
            let dims = input.dims.as_ref().map(|dims| free(dims, number));
            fed.push(value(&name, dtype, dims.as_deref()));
            // What declares no shape takes any.
            let idle_shape = vec![0; dims.map_or(1, |dims| dims.len())];
            inputs.insert(input.name, ComposedInput { name, idle_shape });
        }

        let types: HashMap<String, DataType> =
            dtypes(part.model).into_iter().map(|(name, dtype)| (inside(&name), dtype)).collect();
        let mut outputs = BTreeMap::new();
        let mut returned = Vec::new();
        for output in &part.model.graph().output {
            let (model, own) = (part.name.to_owned(), output.name.clone());
            let value = inside(&output.name);
            let dtype = types.get(&value).copied();
            let dtype = dtype.ok_or(ComposeError::OutputType { model, output: own })?;
            let given_as = format!("{number}:output/{}", output.name);
            if outputs.insert(output.name.clone(), given_as.clone()).is_none() {
                returned.push(Returned { value, given_as, dtype });
            }
        }

        let mut graph = part.model.graph().clone();
        prefix(&mut graph, &inside);
        let outermost = part.weights.entries().iter().filter(|w| w.place.bodies.is_empty());
        let is_initializer = |w: &&HashedWeight| matches!(w.place.slot, Slot::Initializer(_));
        let weights = outermost.filter(is_initializer).map(|w| (inside(&w.name), w)).collect();
        let named = graph.node.iter().enumerate().flat_map(|(index, node)| {
            let outputs = node.output.iter().filter(|name| !name.is_empty());
            outputs.map(move |name| (name.clone(), index))
        });
        Ok(Named {
            number,
            name: part.name,
            producers: named.collect(),
            order: order(&graph).expect("a checked model has no cycles"),
            graph,
            weights,
            types,
            inputs: fed,
            outputs: returned,
            composed: ComposedPart { chosen_by, inputs, outputs },
        })
    }

    /// The nodes that a node takes something from.
    pub(super) fn producers_for(&self, node: usize) -> impl Iterator<Item = usize> {
        let needs = needs(&self.graph.node[node]).into_iter();
        needs.filter_map(|name| self.producers.get(name).copied())
    }
}

/// Gives every name in a graph and its bodies a prefix.
fn prefix(graph: &mut GraphProto, inside: &dyn Fn(&str) -> String) {
    let add = |name: &mut String| {
        if !name.is_empty() {
            *name = inside(name);
        }
    };
    add(&mut graph.name);
    let values = graph.input.iter_mut().chain(&mut graph.output).chain(&mut graph.value_info);
    values.for_each(|value| add(&mut value.name));
    graph.initializer.iter_mut().for_each(|tensor| add(&mut tensor.name));
    let sparse = graph.sparse_initializer.iter_mut().filter_map(|sparse| sparse.values.as_mut());
    sparse.for_each(|tensor| add(&mut tensor.name));
    for node in &mut graph.node {
        add(&mut node.name);
        node.input.iter_mut().chain(&mut node.output).for_each(add);
        for attribute in &mut node.attribute {
            let bodies = attribute.g.as_deref_mut().into_iter().chain(&mut attribute.graphs);
            bodies.for_each(|body| prefix(body, inside));
        }
    }
}

/// Dimensions of any size, so that a model that is not chosen can be fed nothing.
fn free(dims: &[Dim], number: usize) -> Vec<Dim> {
    let free = |dim: &Dim| match dim {
        Dim::Named(name) => Dim::Named(format!("{number}/{name}")),
        _ => Dim::Unknown,
    };
    dims.iter().map(free).collect()
}
