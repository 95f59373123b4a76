//! Other ways to write the same function. Structures must not notice any of them.
//!
//! Outputs keep their order, inputs their names except in [`rename`] and [`disguise`], which
//! say what became of them. All of it works on any model, not only on random ones.

use std::collections::{BTreeMap, HashSet};

use holdfast_graph::proto::{AttributeProto, GraphProto, NodeProto};
use holdfast_graph::{Model, topology, weights};

use crate::attribute::{float, int, tensor_proto};
use crate::numbers::Numbers;

/// New names by old ones.
pub type Names = BTreeMap<String, String>;

/// Renames the graph, every node, value, input and output; bodies included.
pub fn rename(model: &Model, seed: u64) -> (Model, Names) {
    let mut numbers = Numbers::labelled(seed, "rename");
    let mut names = Names::new();
    let model = rebuild(model, |graph| {
        rename_graph(graph, &mut |name: &mut String| {
            let count = names.len();
            let fresh = || format!("v{count}_{:08x}", numbers.next_u64() as u32);
            names.entry(name.clone()).or_insert_with(fresh).clone_into(name);
        });
    });
    (model, names)
}

/// Another order of nodes in which each still follows what it needs.
pub fn shuffle_nodes(model: &Model, seed: u64) -> Model {
    let mut numbers = Numbers::labelled(seed, "shuffle nodes");
    rebuild(model, |graph| {
        let mut waiting = std::mem::take(&mut graph.node);
        numbers.shuffle(&mut waiting);
        let mut missing: HashSet<String> =
            waiting.iter().flat_map(|node| &node.output).cloned().collect();
        while !waiting.is_empty() {
            let ready = |node: &NodeProto| {
                topology::needs(node).iter().all(|&name| !missing.contains(name))
            };
            let next = waiting.iter().position(ready).expect("a checked model has no cycle");
            let node = waiting.swap_remove(next);
            node.output.iter().for_each(|output| {
                missing.remove(output);
            });
            graph.node.push(node);
        }
    })
}

/// Any order of nodes, most likely one that an engine would refuse.
pub fn scramble_nodes(model: &Model, seed: u64) -> Model {
    let mut numbers = Numbers::labelled(seed, "scramble nodes");
    rebuild(model, |graph| numbers.shuffle(&mut graph.node))
}

/// Another order of inputs.
pub fn reorder_inputs(model: &Model, seed: u64) -> Model {
    let mut numbers = Numbers::labelled(seed, "reorder inputs");
    rebuild(model, |graph| numbers.shuffle(&mut graph.input))
}

/// Another order of initializers.
pub fn reorder_initializers(model: &Model, seed: u64) -> Model {
    let mut numbers = Numbers::labelled(seed, "reorder initializers");
    rebuild(model, |graph| numbers.shuffle(&mut graph.initializer))
}

/// Puts each initializer into a `Constant` node, except those that are also inputs or outputs.
pub fn initializers_to_constants(model: &Model) -> Model {
    rebuild(model, |graph| {
        let fixed = boundary(graph);
        let (kept, moved): (Vec<_>, Vec<_>) = std::mem::take(&mut graph.initializer)
            .into_iter()
            .partition(|initializer| fixed.contains(&initializer.name));
        graph.initializer = kept;
        let constants = moved.into_iter().map(|mut proto| NodeProto {
            output: vec![std::mem::take(&mut proto.name)],
            op_type: "Constant".to_owned(),
            attribute: vec![tensor_proto("value", proto)],
            ..NodeProto::default()
        });
        graph.node.splice(0..0, constants.collect::<Vec<_>>());
    })
}

/// Turns each `Constant` node into an initializer, except those that are outputs.
pub fn constants_to_initializers(model: &Model) -> Model {
    rebuild(model, |graph| {
        let fixed = boundary(graph);
        let mut initializers = std::mem::take(&mut graph.initializer);
        graph.node.retain(|node| {
            let Some(value) = weights::constant(node) else { return true };
            if fixed.contains(&node.output[0]) {
                return true;
            }
            initializers.push(value.to_proto(&node.output[0]));
            false
        });
        graph.initializer = initializers;
    })
}

/// Puts `Identity` nodes on some edges, at times two in a row, and in front of some outputs.
pub fn insert_identities(model: &Model, seed: u64) -> Model {
    let mut numbers = Numbers::labelled(seed, "insert identities");
    rebuild(model, |graph| {
        let mut fresh = fresh_names(graph);
        let returned: HashSet<&str> =
            graph.output.iter().map(|output| output.name.as_str()).collect();
        let mut nodes = Vec::new();
        for mut node in std::mem::take(&mut graph.node) {
            for input in node.input.iter_mut().filter(|input| !input.is_empty()) {
                while numbers.once_in(4) {
                    let alias = fresh();
                    nodes.push(identity(std::mem::replace(input, alias.clone()), alias));
                }
            }
            let mut after = Vec::new();
            for output in &mut node.output {
                if returned.contains(output.as_str()) && numbers.once_in(2) {
                    let alias = fresh();
                    after.push(identity(alias.clone(), std::mem::replace(output, alias)));
                }
            }
            nodes.push(node);
            nodes.append(&mut after);
        }
        graph.node = nodes;
    })
}

/// Swaps the operands of some `Add` and `Mul` nodes.
pub fn swap_commutative(model: &Model, seed: u64) -> Model {
    let mut numbers = Numbers::labelled(seed, "swap commutative");
    rebuild(model, |graph| {
        let commutative = |node: &&mut NodeProto| matches!(node.op_type.as_str(), "Add" | "Mul");
        for node in graph.node.iter_mut().filter(commutative) {
            if numbers.once_in(2) {
                node.input.reverse();
            }
        }
    })
}

/// Spells out the attributes that nodes left at their defaults.
pub fn add_default_attributes(model: &Model) -> Model {
    let opset = model.opset("").unwrap_or_default();
    rebuild(model, |graph| {
        for node in graph.node.iter_mut().filter(|node| node.domain.is_empty()) {
            for default in default_attributes(&node.op_type, opset) {
                if node.attribute.iter().all(|attribute| attribute.name != default.name) {
                    node.attribute.push(default);
                }
            }
        }
    })
}

/// Another order of the attributes of each node.
pub fn shuffle_attributes(model: &Model, seed: u64) -> Model {
    let mut numbers = Numbers::labelled(seed, "shuffle attributes");
    rebuild(model, |graph| {
        graph.node.iter_mut().for_each(|node| numbers.shuffle(&mut node.attribute));
    })
}

/// A choice of all the above, one after the other, names last; the order of nodes stays valid.
pub fn disguise(model: &Model, seed: u64) -> (Model, Names) {
    let mut numbers = Numbers::labelled(seed, "disguise");
    let mut model = model.clone();
    let steps: [fn(&Model, u64) -> Model; 9] = [
        |model, _| initializers_to_constants(model),
        |model, _| constants_to_initializers(model),
        |model, _| add_default_attributes(model),
        insert_identities,
        swap_commutative,
        shuffle_attributes,
        reorder_inputs,
        reorder_initializers,
        shuffle_nodes,
    ];
    for step in steps {
        if numbers.once_in(2) {
            model = step(&model, numbers.next_u64());
        }
    }
    rename(&model, numbers.next_u64())
}

/// What the standard says of attributes that are left out, for operators of which every
/// version from this opset on agrees.
pub(super) fn default_attributes(operator: &str, opset: i64) -> Vec<AttributeProto> {
    match operator {
        "Softmax" | "LogSoftmax" => vec![int("axis", if opset < 13 { 1 } else { -1 })],
        "LeakyRelu" => vec![float("alpha", 0.01)],
        "Elu" => vec![float("alpha", 1.0)],
        "HardSigmoid" => vec![float("alpha", 0.2), float("beta", 0.5)],
        "Gemm" => {
            vec![float("alpha", 1.0), float("beta", 1.0), int("transA", 0), int("transB", 0)]
        }
        "Split" | "Gather" => vec![int("axis", 0)],
        "GatherND" if opset >= 12 => vec![int("batch_dims", 0)],
        "LayerNormalization" => {
            vec![int("axis", -1), float("epsilon", 1e-5), int("stash_type", 1)]
        }
        "ReduceMean" | "ReduceSum" | "ReduceL2" => vec![int("keepdims", 1)],
        "ArgMax" if opset >= 12 => {
            vec![int("axis", 0), int("keepdims", 1), int("select_last_index", 0)]
        }
        "Reshape" if opset >= 14 => vec![int("allowzero", 0)],
        "Shape" if opset >= 15 => vec![int("start", 0)],
        _ => vec![],
    }
}

fn rebuild(model: &Model, change: impl FnOnce(&mut GraphProto)) -> Model {
    let mut proto = model.proto().clone();
    change(proto.graph.as_mut().expect("a checked model has a graph"));
    Model::from_proto(proto).expect("the same function, written in another way, is valid")
}

fn rename_graph(graph: &mut GraphProto, rename: &mut impl FnMut(&mut String)) {
    let mut one = |name: &mut String| {
        if !name.is_empty() {
            rename(name);
        }
    };
    one(&mut graph.name);
    let values = graph.input.iter_mut().chain(&mut graph.output).chain(&mut graph.value_info);
    values.for_each(|value| one(&mut value.name));
    graph.initializer.iter_mut().for_each(|tensor| one(&mut tensor.name));
    let sparse = graph.sparse_initializer.iter_mut().filter_map(|sparse| sparse.values.as_mut());
    sparse.for_each(|tensor| one(&mut tensor.name));
    for node in &mut graph.node {
        one(&mut node.name);
        node.input.iter_mut().chain(&mut node.output).for_each(&mut one);
    }
    for attribute in graph.node.iter_mut().flat_map(|node| &mut node.attribute) {
        let bodies = attribute.g.as_deref_mut().into_iter().chain(&mut attribute.graphs);
        bodies.for_each(|body| rename_graph(body, rename));
    }
}

/// Names that must stay what they are.
fn boundary(graph: &GraphProto) -> HashSet<String> {
    graph.input.iter().chain(&graph.output).map(|value| value.name.clone()).collect()
}

/// Names that no value has, bodies included.
fn fresh_names(graph: &GraphProto) -> impl FnMut() -> String + use<> {
    let mut taken = HashSet::new();
    rename_graph(&mut graph.clone(), &mut |name: &mut String| {
        taken.insert(name.clone());
    });
    let mut candidates = (0..).map(|index: usize| format!("alias_{index}"));
    move || candidates.find(|name| !taken.contains(name)).expect("names do not run out")
}

fn identity(from: String, to: String) -> NodeProto {
    NodeProto {
        input: vec![from],
        output: vec![to],
        op_type: "Identity".to_owned(),
        ..NodeProto::default()
    }
}

#[cfg(test)]
mod tests {
    use holdfast_graph::Tensor;

    use super::*;
    use crate::random::{evaluate, graph, sample_inputs};
    use crate::{Recipe, bert};

    /// The outputs in order, for inputs that are the same whatever they are called now.
    fn outputs(model: &Model, original: &Model, names: Option<&Names>, seed: u64) -> Vec<Tensor> {
        let inputs = sample_inputs(original, seed).into_iter();
        let inputs = inputs.map(|(name, tensor)| match names {
            Some(names) => (names[&name].clone(), tensor),
            None => (name, tensor),
        });
        let mut results = evaluate(model, &inputs.collect()).unwrap();
        let order = model.outputs().into_iter();
        order.map(|output| results.remove(&output.name).unwrap()).collect()
    }

    /// Checks that a transformation keeps the function, and that it does something at all.
    fn check(transform: impl Fn(&Model, u64) -> Model) {
        let mut changed = 0;
        for seed in 0..100 {
            let model = graph(seed);
            let other = transform(&model, seed);
            assert_eq!(transform(&model, seed), other, "seeded");
            let expected = outputs(&model, &model, None, seed);
            assert_eq!(outputs(&other, &model, None, seed), expected, "{seed}");
            changed += usize::from(other != model);
        }
        assert!(changed > 30, "only {changed} of 100 graphs changed");
    }

    #[test]
    fn reorderings_keep_the_function() {
        check(shuffle_nodes);
        check(scramble_nodes);
        check(reorder_inputs);
        check(reorder_initializers);
        check(shuffle_attributes);
        check(swap_commutative);
    }

    #[test]
    fn rewritings_keep_the_function() {
        check(|model, _| initializers_to_constants(model));
        check(|model, _| constants_to_initializers(model));
        check(insert_identities);
        check(|model, _| add_default_attributes(model));
    }

    #[test]
    fn other_names_keep_the_function() {
        for seed in 0..100 {
            let model = graph(seed);
            for (other, names) in [rename(&model, seed), disguise(&model, seed)] {
                let expected = outputs(&model, &model, None, seed);
                assert_eq!(outputs(&other, &model, Some(&names), seed), expected, "{seed}");
            }
        }
    }

    #[test]
    fn renaming_leaves_no_old_name() {
        let model = graph(3);
        let (other, names) = rename(&model, 1);
        let text = format!("{:?}", other.graph());
        assert!(names.keys().all(|name| !text.contains(&format!("\"{name}\""))), "{text}");
        let new: HashSet<&String> = names.values().collect();
        assert_eq!(new.len(), names.len());
    }

    #[test]
    fn shuffled_nodes_follow_what_they_need_and_scrambled_ones_need_not() {
        let sorted = |model: &Model| topology::order(model.graph()).unwrap().is_sorted();
        let models: Vec<Model> = (0..100).map(graph).collect();
        assert!(models.iter().all(|model| sorted(&shuffle_nodes(model, 1))));
        assert!(models.iter().any(|model| !sorted(&scramble_nodes(model, 1))));
    }

    #[test]
    fn weights_move_to_constants_and_back() {
        let model = bert(&Recipe::tiny(1)).unwrap();
        let constants = initializers_to_constants(&model);
        assert!(constants.graph().initializer.is_empty());
        let initializers = constants_to_initializers(&constants);
        assert!(initializers.graph().node.iter().all(|node| node.op_type != "Constant"));
        let contents = |model: &Model| -> BTreeMap<String, Tensor> {
            weights::weights(model).into_iter().map(|weight| (weight.name, weight.tensor)).collect()
        };
        assert_eq!(contents(&initializers), contents(&model));
    }

    #[test]
    fn real_looking_models_can_be_disguised() {
        let model = bert(&Recipe::tiny(1)).unwrap();
        for seed in 0..10 {
            let (other, names) = disguise(&model, seed);
            let mut inputs: Vec<&String> =
                model.graph().input.iter().map(|input| &names[&input.name]).collect();
            let mut found: Vec<&String> =
                other.graph().input.iter().map(|input| &input.name).collect();
            inputs.sort();
            found.sort();
            assert_eq!(inputs, found);
        }
    }
}
