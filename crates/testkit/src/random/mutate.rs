//! Small changes to what a model computes. Structures must notice each of them.
//!
//! A change only touches what contributes to an output, and `None` means that there is nothing
//! to change. Compare structures *with* their bindings: an edge that is moved from one input
//! to another may show in the binding alone.

use std::collections::{HashMap, HashSet};

use holdfast_graph::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};
use holdfast_graph::{DataType, Model, Tensor, node_label, topology, weights};

use super::evaluate::{Matrix, all_values};
use super::sample_inputs;
use super::transform::default_attributes;
use crate::attribute::{int, tensor};
use crate::numbers::Numbers;

/// A model that computes something else, and in what it differs.
#[derive(Clone, Debug)]
pub struct Mutation {
    /// The changed model.
    pub model: Model,
    /// What was changed, for messages of failing tests.
    pub what: String,
}

/// Flips one bit of one weight, an initializer or a `Constant` of the outer graph.
pub fn flip_weight_bit(model: &Model, seed: u64) -> Option<Mutation> {
    let mut numbers = Numbers::labelled(seed, "flip weight bit");
    let live = live_values(model.graph());
    let candidates: Vec<weights::Weight> = weights::weights(model)
        .into_iter()
        .filter(|weight| weight.place.bodies.is_empty() && live.contains(weight.name.as_str()))
        .filter(|weight| weight.tensor.elements() > 0)
        .collect();
    let weight = numbers.pick(&candidates)?;
    let (flipped, bit) = flip_bit(&weight.tensor, &mut numbers)?;
    let mut proto = model.proto().clone();
    let graph = proto.graph.as_mut()?;
    match weight.place.slot {
        weights::Slot::Initializer(index) => {
            graph.initializer[index] =
                TensorProto { name: weight.name.clone(), ..flipped.to_proto("") };
        }
        weights::Slot::Constant(index) => {
            graph.node[index].attribute = vec![tensor("value", &flipped)];
        }
    }
    mutation(proto, format!("bit {bit} of weight `{}`", weight.name))
}

/// Changes one attribute, written down or left at its default, so that the result differs:
/// factors, the axis of a softmax, transpositions.
pub fn change_attribute(model: &Model, seed: u64) -> Option<Mutation> {
    let mut numbers = Numbers::labelled(seed, "change attribute");
    let opset = model.opset("").unwrap_or_default();
    let live = live_values(model.graph());
    let mut candidates = Vec::new();
    for (index, node) in model.graph().node.iter().enumerate() {
        if node.output.iter().any(|output| live.contains(output.as_str())) {
            let changes = changed_attributes(node, opset).into_iter();
            candidates.extend(changes.map(|attribute| (index, attribute)));
        }
    }
    let (index, attribute) = numbers.pick(&candidates)?.clone();
    let mut proto = model.proto().clone();
    let node = &mut proto.graph.as_mut()?.node[index];
    let what = format!("attribute `{}` of {}", attribute.name, node_label(node));
    match node.attribute.iter_mut().find(|old| old.name == attribute.name) {
        Some(old) => *old = attribute,
        None => node.attribute.push(attribute),
    }
    mutation(proto, what)
}

/// Feeds one operand of one node from another value. The two values differ for sample inputs,
/// so they are different functions. Random graphs only: others give `None`.
pub fn rewire_edge(model: &Model, seed: u64) -> Option<Mutation> {
    let mut numbers = Numbers::labelled(seed, "rewire edge");
    let graph = model.graph();
    let values = all_values(model, &sample_inputs(model, seed)).ok()?;
    let live = live_values(graph);
    let mut names: Vec<&String> = values.keys().collect();
    names.sort();
    let mut edges: Vec<(usize, usize)> = (graph.node.iter().enumerate())
        .filter(|(_, node)| node.output.iter().any(|output| live.contains(output.as_str())))
        .flat_map(|(index, node)| (0..node.input.len()).map(move |slot| (index, slot)))
        .collect();
    numbers.shuffle(&mut edges);
    for (index, slot) in edges {
        let later = downstream(graph, index);
        let old = &graph.node[index].input[slot];
        let differs = |name: &&&String| {
            let (one, other): (&Matrix, &Matrix) = (&values[old], &values[name.as_str()]);
            one.has_shape_of(other) && !one.same_bits(other) && !later.contains(name.as_str())
        };
        let replacements: Vec<&&String> = names.iter().filter(differs).collect();
        let Some(new) = numbers.pick(&replacements) else { continue };
        let mut proto = model.proto().clone();
        let changed = proto.graph.as_mut()?;
        let node = &mut changed.node[index];
        let what = format!("operand {slot} of {} from `{old}` to `{new}`", node_label(node));
        new.as_str().clone_into(&mut node.input[slot]);
        // The new value may come from a node further down the file.
        let order = topology::order(changed).expect("only values from upstream are taken");
        changed.node = order.into_iter().map(|index| changed.node[index].clone()).collect();
        return mutation(proto, what);
    }
    None
}

fn mutation(proto: holdfast_graph::proto::ModelProto, what: String) -> Option<Mutation> {
    let model = Model::from_proto(proto).expect("a small change leaves a valid model");
    Some(Mutation { model, what })
}

/// Names of the values that some output depends on, outputs included.
pub(super) fn live_values(graph: &GraphProto) -> HashSet<&str> {
    let mut producers = HashMap::new();
    for node in &graph.node {
        producers.extend(node.output.iter().map(|output| (output.as_str(), node)));
    }
    let mut live = HashSet::new();
    let mut waiting: Vec<&str> = graph.output.iter().map(|output| output.name.as_str()).collect();
    while let Some(name) = waiting.pop() {
        if live.insert(name)
            && let Some(node) = producers.get(name)
        {
            waiting.extend(topology::needs(node));
        }
    }
    live
}

/// Names of the values that depend on a node, its own outputs included.
fn downstream(graph: &GraphProto, start: usize) -> HashSet<&str> {
    let mut later: HashSet<&str> = graph.node[start].output.iter().map(String::as_str).collect();
    let order = topology::order(graph).expect("a checked model has no cycle");
    for node in order.into_iter().map(|index| &graph.node[index]) {
        if topology::needs(node).iter().any(|name| later.contains(name)) {
            later.extend(node.output.iter().map(String::as_str));
        }
    }
    later
}

fn flip_bit(weight: &Tensor, numbers: &mut Numbers) -> Option<(Tensor, usize)> {
    let mut bytes = weight.bytes().to_vec();
    let bit = match weight.dtype() {
        // Every other bit that is set means the same.
        DataType::Bool => 8 * numbers.below(bytes.len()),
        dtype => numbers.below(weight.elements() * dtype.bits()? as usize),
    };
    bytes[bit / 8] ^= 1 << (bit % 8);
    let flipped = Tensor::new(weight.dtype(), weight.dims().to_vec(), bytes.into()).ok()?;
    Some((flipped, bit))
}

/// What each attribute of a node could be changed to.
fn changed_attributes(node: &NodeProto, opset: i64) -> Vec<AttributeProto> {
    let written = |name: &str| node.attribute.iter().find(|attribute| attribute.name == name);
    let mut changes = Vec::new();
    for default in default_attributes(&node.op_type, opset) {
        let current = written(&default.name).unwrap_or(&default);
        match (node.op_type.as_str(), current.name.as_str(), current.f, current.i) {
            (_, _, Some(number), _) => {
                changes.push(AttributeProto { f: Some(number + 0.5), ..current.clone() });
            }
            ("Gemm", name, _, Some(turned)) => changes.push(int(name, 1 - turned)),
            // The first and the last axis differ for whatever has more than one.
            ("Softmax", name, _, Some(axis)) => {
                changes.push(int(name, if axis == 0 { -1 } else { 0 }));
            }
            _ => {}
        }
    }
    if let ("Transpose", Some(permutation)) = (node.op_type.as_str(), written("perm"))
        && permutation.ints.len() > 1
    {
        let mut changed = permutation.clone();
        changed.ints.swap(0, 1);
        changes.push(changed);
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{evaluate, graph};
    use crate::{Builder, Recipe, bert, fixed};

    /// How many of many random graphs could be mutated, and how many of those gave other
    /// outputs for sample inputs. Each mutant must differ and be seeded.
    fn check(mutate: fn(&Model, u64) -> Option<Mutation>) -> (usize, usize) {
        let (mut mutated, mut noticed) = (0, 0);
        for seed in 0..200 {
            let model = graph(seed);
            let Some(mutation) = mutate(&model, seed) else { continue };
            assert_ne!(mutation.model, model, "{}", mutation.what);
            assert_eq!(mutate(&model, seed).unwrap().model, mutation.model);
            assert_eq!(mutation.model.outputs(), model.outputs());
            let inputs = sample_inputs(&model, seed);
            let (old, new) = (evaluate(&model, &inputs), evaluate(&mutation.model, &inputs));
            mutated += 1;
            noticed += usize::from(old.unwrap() != new.unwrap());
        }
        (mutated, noticed)
    }

    #[test]
    fn flipped_bits_mostly_show_in_the_outputs() {
        let (mutated, noticed) = check(flip_weight_bit);
        assert!(mutated > 150 && noticed * 10 > mutated * 7, "{mutated} {noticed}");
    }

    #[test]
    fn changed_attributes_mostly_show_in_the_outputs() {
        let (mutated, noticed) = check(change_attribute);
        assert!(mutated > 120 && noticed * 10 > mutated * 7, "{mutated} {noticed}");
    }

    #[test]
    fn rewired_edges_mostly_show_in_the_outputs() {
        let (mutated, noticed) = check(rewire_edge);
        assert!(mutated > 150 && noticed * 10 > mutated * 8, "{mutated} {noticed}");
    }

    #[test]
    fn a_rewired_graph_keeps_its_nodes_in_a_valid_order() {
        for mutation in (0..100).filter_map(|seed| rewire_edge(&graph(seed), seed)) {
            assert!(topology::order(mutation.model.graph()).unwrap().is_sorted());
        }
    }

    #[test]
    fn one_bit_and_nothing_else_is_flipped() {
        for seed in 0..50 {
            let model = graph(seed);
            let Some(mutation) = flip_weight_bit(&model, seed) else { continue };
            let bits: u32 = weights::weights(&model)
                .iter()
                .zip(weights::weights(&mutation.model))
                .flat_map(|(old, new)| {
                    let pairs = old.tensor.bytes().to_vec().into_iter();
                    pairs.zip(new.tensor.bytes().to_vec()).collect::<Vec<_>>()
                })
                .map(|(old, new)| (old ^ new).count_ones())
                .sum();
            assert_eq!(bits, 1, "{}", mutation.what);
            assert_eq!(mutation.model.graph().node.len(), model.graph().node.len());
        }
    }

    #[test]
    fn a_graph_with_nothing_to_change_gives_none() {
        let mut builder = Builder::new("plain", 1);
        let x = builder.input("x", DataType::F32, &[fixed(3), fixed(3)]);
        let y = builder.node("Relu", &[&x], &[]);
        builder.output("y", &y, DataType::F32, &[fixed(3), fixed(3)]);
        let model = builder.finish().unwrap();
        assert!(flip_weight_bit(&model, 1).is_none());
        assert!(change_attribute(&model, 1).is_none());
        assert!(rewire_edge(&model, 1).is_none());
    }

    #[test]
    fn a_dead_weight_is_not_touched() {
        let mut builder = Builder::new("dead", 1);
        let x = builder.input("x", DataType::F32, &[fixed(3), fixed(3)]);
        builder.weight("unused", &[3, 3], crate::Init::bias());
        let y = builder.node("Relu", &[&x], &[]);
        builder.output("y", &y, DataType::F32, &[fixed(3), fixed(3)]);
        assert!(flip_weight_bit(&builder.finish().unwrap(), 1).is_none());
    }

    #[test]
    fn real_looking_models_can_be_mutated_except_for_edges() {
        let model = bert(&Recipe::tiny(1)).unwrap();
        for seed in 0..10 {
            assert!(flip_weight_bit(&model, seed).is_some());
            assert!(change_attribute(&model, seed).is_some());
            assert!(rewire_edge(&model, seed).is_none());
        }
    }
}
