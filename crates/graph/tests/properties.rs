//! What holds for every model: round trips, what a structure ignores, and what it never does.
//!
//! Each case is a seed of the testkit's random graphs, so a failure is repeated by its number.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod samples;

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use holdfast_graph::proto::{TypeProto, ValueInfoProto};
use holdfast_graph::{
    Common, Digest, Fingerprints, Leaf, Message, Model, Structure, Tensor, WeightTable, blob_name,
    common, cut, encode, graph_only, hoist, hoist_constants, topology,
};
use holdfast_testkit::Numbers;
use holdfast_testkit::random::mutate::{self, Mutation};
use holdfast_testkit::random::transform::{self, Names};
use holdfast_testkit::random::{self, evaluate, sample_inputs};
use proptest::prelude::*;

fn prints(model: &Model) -> Fingerprints {
    Fingerprints::new(model, &WeightTable::new(model))
}

/// A value's structure and what its inputs are called, in canonical order.
fn described(model: &Model, prints: &Fingerprints, value: &str) -> (Structure, Vec<String>) {
    let print = prints.get(value).expect("nothing here depends on chance");
    let inputs = model.inputs();
    let names = print.leaves.iter().map(|leaf| inputs[leaf.input].name.clone());
    (print.structure, names.collect())
}

/// The outputs in order, each with the names of its inputs as the original has them.
fn outputs(model: &Model, names: Option<&Names>) -> Vec<(Structure, Vec<String>)> {
    let old_names: HashMap<&String, &String> =
        names.into_iter().flatten().map(|(old, new)| (new, old)).collect();
    let prints = prints(model);
    let outputs = model.outputs().into_iter().map(|output| {
        let (structure, leaves) = described(model, &prints, &output.name);
        let old = |name: String| old_names.get(&name).map_or(name.clone(), |old| (*old).clone());
        (structure, leaves.into_iter().map(old).collect())
    });
    outputs.collect()
}

/// Checks that another way of writing a model changes neither structures nor bindings.
fn same(model: &Model, other: &Model, names: Option<&Names>) {
    assert_eq!(outputs(model, None), outputs(other, names));
    assert_eq!(prints(model).model(), prints(other).model());
}

/// Checks that a change shows.
fn differs(model: &Model, mutation: Option<Mutation>) {
    let Some(Mutation { model: other, what }) = mutation else { return };
    assert_ne!(outputs(model, None), outputs(&other, None), "{what}");
}

/// The model with every value that a node computes as an output.
fn with_all_outputs(model: &Model) -> Model {
    let mut proto = model.proto().clone();
    let graph = proto.graph.as_mut().unwrap();
    let returned: Vec<String> = graph.output.iter().map(|output| output.name.clone()).collect();
    let values = graph.node.iter().flat_map(|node| &node.output);
    let values = values.filter(|name| !returned.contains(name)).cloned();
    let values: Vec<ValueInfoProto> = values
        .map(|name| ValueInfoProto {
            name,
            r#type: Some(TypeProto::default()),
            ..Default::default()
        })
        .collect();
    graph.output.extend(values);
    Model::from_proto(proto).unwrap()
}

/// Checks that the values which two models have in common are equal when the right one is fed
/// as the binding says.
fn common_values_are_equal(left: &Model, right: &Model, seed: u64) -> Common {
    let found = common((left, &prints(left)), (right, &prints(right)));
    let fed = sample_inputs(left, seed);
    let mut bound = sample_inputs(right, seed + 1);
    for (ours, theirs) in &found.binding {
        let name = |model: &Model, leaf: &Leaf| model.inputs()[leaf.input].name.clone();
        bound.insert(name(right, theirs), fed[&name(left, ours)].clone());
    }
    let ours = evaluate(&with_all_outputs(left), &fed).unwrap();
    let theirs = evaluate(&with_all_outputs(right), &bound).unwrap();
    for (left, right) in &found.values {
        assert_eq!(ours[left], theirs[right], "`{left}` and `{right}`");
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn what_is_written_reads_as_the_same_graph(seed in any::<u64>()) {
        let model = random::graph(seed);
        prop_assert_eq!(&Model::from_bytes(encode(&model).into()).unwrap(), &model);
    }

    #[test]
    fn a_graph_with_its_weights_elsewhere_reads_as_the_same_graph(seed in any::<u64>()) {
        reads_back_from_blobs(&random::graph(seed));
    }

    #[test]
    fn names_do_not_count(seed in any::<u64>()) {
        let model = random::graph(seed);
        let (other, names) = transform::rename(&model, seed);
        same(&model, &other, Some(&names));
    }

    #[test]
    fn orders_do_not_count(seed in any::<u64>()) {
        let model = random::graph(seed);
        same(&model, &transform::shuffle_nodes(&model, seed), None);
        same(&model, &transform::scramble_nodes(&model, seed), None);
        same(&model, &transform::reorder_inputs(&model, seed), None);
        same(&model, &transform::reorder_initializers(&model, seed), None);
        same(&model, &transform::shuffle_attributes(&model, seed), None);
    }

    #[test]
    fn spellings_do_not_count(seed in any::<u64>()) {
        let model = random::graph(seed);
        same(&model, &transform::initializers_to_constants(&model), None);
        same(&model, &transform::constants_to_initializers(&model), None);
        same(&model, &transform::add_default_attributes(&model), None);
        same(&model, &transform::insert_identities(&model, seed), None);
    }

    #[test]
    fn hoisting_does_not_count(seed in any::<u64>()) {
        let model = random::graph(seed);
        same(&model, &hoist(&model, 1), None);
        same(&model, &hoist_constants(&model, 1), None);
    }

    #[test]
    fn one_bit_of_a_weight_counts(seed in any::<u64>()) {
        let model = random::graph(seed);
        differs(&model, mutate::flip_weight_bit(&model, seed));
    }

    #[test]
    fn one_attribute_counts(seed in any::<u64>()) {
        let model = random::graph(seed);
        differs(&model, mutate::change_attribute(&model, seed));
    }

    #[test]
    fn one_edge_counts(seed in any::<u64>()) {
        let model = random::graph(seed);
        differs(&model, mutate::rewire_edge(&model, seed));
    }

    #[test]
    fn a_model_in_other_words_has_everything_in_common_and_the_binding_follows(seed in any::<u64>()) {
        let model = random::graph(seed);
        let reordered = transform::reorder_inputs(&model, seed);
        let (other, names) = transform::rename(&reordered, seed);
        let found = common_values_are_equal(&model, &other, seed);
        for (left, right) in &found.binding {
            let (ours, theirs) = (&model.inputs()[left.input], &other.inputs()[right.input]);
            prop_assert_eq!(&names[&ours.name], &theirs.name);
        }
        let prints = prints(&model);
        let computed = model.graph().node.iter().flat_map(|node| &node.output).filter(|name| {
            prints.get(name).is_some_and(|print| !print.leaves.is_empty())
        });
        prop_assert_eq!(found.values.len(), computed.count());
    }

    /// Also for commuted operands, where a match may be missed but must never be wrong.
    #[test]
    fn equal_structures_have_equal_values(seed in any::<u64>(), other in any::<u64>()) {
        let model = random::graph(seed);
        common_values_are_equal(&model, &transform::disguise(&model, other).0, seed);
        common_values_are_equal(&model, &transform::swap_commutative(&model, other), seed);
        let mutations = [mutate::flip_weight_bit, mutate::change_attribute, mutate::rewire_edge];
        for mutation in mutations.into_iter().filter_map(|mutate| mutate(&model, other)) {
            common_values_are_equal(&model, &mutation.model, seed);
        }
        common_values_are_equal(&model, &random::graph(other), seed);
    }

    #[test]
    fn pieces_in_a_row_give_the_values_of_the_whole(seed in any::<u64>()) {
        let model = random::graph(seed);
        let inputs = sample_inputs(&model, seed);
        let expected = evaluate(&model, &inputs).unwrap();
        let mut values = inputs;
        let mut numbers = Numbers::labelled(seed, "cuts");
        for piece in pieces(&model, &mut numbers) {
            let fed: BTreeMap<String, Tensor> = (piece.inputs().into_iter())
                .map(|input| (input.name.clone(), values[&input.name].clone()))
                .collect();
            values.extend(evaluate(&piece, &fed).unwrap());
            // Each piece is a model that can be written and read.
            prop_assert_eq!(&Model::from_bytes(encode(&piece).into()).unwrap(), &piece);
        }
        for (name, value) in expected {
            prop_assert_eq!(&values[&name], &value, "{}", name);
        }
    }
}

/// Cuts the nodes, in their order, into runs of a few; each piece computes all that later ones
/// or the outputs need.
fn pieces(model: &Model, numbers: &mut Numbers) -> Vec<Model> {
    let graph = model.graph();
    let order = topology::order(graph).unwrap();
    let mut before: Vec<String> = Vec::new();
    let mut pieces = Vec::new();
    let mut rest = &order[..];
    while !rest.is_empty() {
        let (run, later) = rest.split_at(1 + numbers.below(rest.len()));
        rest = later;
        let needed = |name: &&String| {
            later.iter().any(|&node| topology::needs(&graph.node[node]).contains(&name.as_str()))
                || graph.output.iter().any(|output| output.name == **name)
        };
        let computed: Vec<String> = (run.iter().flat_map(|&node| &graph.node[node].output))
            .filter(needed)
            .cloned()
            .collect();
        let inputs: Vec<&str> = before.iter().map(String::as_str).collect();
        let outputs: Vec<&str> = computed.iter().map(String::as_str).collect();
        pieces.push(cut(model, &inputs, &outputs).unwrap());
        before.extend(computed);
    }
    pieces
}

fn reads_back_from_blobs(model: &Model) {
    let graph = graph_only(model, &WeightTable::new(model), |_| true);
    let blobs: HashMap<String, Bytes> = (graph.taken.iter())
        .map(|weight| (blob_name(&weight.content), weight.tensor.bytes().clone()))
        .collect();
    assert!(blobs.iter().all(|(name, bytes)| *name == blob_name(&Digest::of(bytes))));
    let bytes: Bytes = graph.proto.encode_to_vec().into();
    let again = Model::from_bytes_with(bytes, |location| Ok(blobs[location].clone())).unwrap();
    assert_eq!(&again, model);
}

#[test]
fn larger_models_pass_the_same_round_trips_and_rewritings() {
    for model in samples::architectures() {
        assert_eq!(Model::from_bytes(encode(&model).into()).unwrap(), model);
        reads_back_from_blobs(&model);
        for seed in 0..3 {
            let (other, names) = transform::rename(&model, seed);
            same(&model, &other, Some(&names));
            let other = transform::scramble_nodes(&transform::reorder_inputs(&model, seed), seed);
            same(&model, &transform::insert_identities(&other, seed), None);
            same(&model, &transform::add_default_attributes(&model), None);
            same(&model, &transform::initializers_to_constants(&model), None);
            same(&model, &transform::constants_to_initializers(&model), None);
            differs(&model, mutate::flip_weight_bit(&model, seed));
            differs(&model, mutate::change_attribute(&model, seed));
        }
    }
}

#[test]
fn a_model_with_bodies_functions_and_strings_survives_the_round_trips() {
    let model = samples::with_everything();
    assert_eq!(Model::from_bytes(encode(&model).into()).unwrap(), model);
    let (other, names) = transform::rename(&model, 1);
    same(&model, &other, Some(&names));
    same(&model, &hoist(&model, 1), None);

    // Typed data fields come back as plain bytes: another spelling of the same graph.
    let graph = graph_only(&model, &WeightTable::new(&model), |_| true);
    assert!(graph.taken.iter().any(|weight| weight.place.bodies.len() == 2));
    let blobs: HashMap<String, Bytes> = (graph.taken.iter())
        .map(|weight| (blob_name(&weight.content), weight.tensor.bytes().clone()))
        .collect();
    let bytes: Bytes = graph.proto.encode_to_vec().into();
    let again = Model::from_bytes_with(bytes, |location| Ok(blobs[location].clone())).unwrap();
    same(&model, &again, None);
    assert_eq!(again.proto().functions, model.proto().functions);
    assert_eq!(again.proto().metadata_props, model.proto().metadata_props);
}
