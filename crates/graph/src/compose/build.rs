//! Writes the graph of a composite: stages, and the common products between them.

use std::collections::{HashMap, HashSet};

use super::LEAST_COMMON_BYTES;
use super::choose::{Given, if_chosen, merge};
use super::flow::{Flow, Slot};
use super::levels::Levels;
use super::named::Named;
use super::piece::{node, value};
use crate::hoist::rename;
use crate::proto::{GraphProto, TensorProto};
use crate::topology::needs;
use crate::weights::{HashedWeight, WeightId};

/// What the result of a common product is called in the outer graph.
pub(super) fn common_name(first: &Named<'_>, node: usize) -> String {
    format!("common:{}", first.graph.node[node].output[0])
}

/// Writes the graph of a composite.
pub(super) fn build(parts: &[Named<'_>], levels: &Levels, flow: &Flow) -> GraphProto {
    let mut outer = Outer {
        parts,
        levels,
        graph: GraphProto::default(),
        names: HashMap::new(),
        common: HashMap::new(),
    };
    outer.graph.name = "composite".to_owned();
    outer.take_large_weights();
    for (stage, (operands, slots)) in flow.operands.iter().zip(&flow.slots).enumerate() {
        outer.add_products(stage, operands);
        outer.add_stage(stage, slots);
    }
    for part in parts {
        outer.graph.input.extend(part.inputs.iter().cloned());
        let outputs = part.outputs.iter();
        outer.graph.output.extend(outputs.map(|given| value(&given.given_as, given.dtype, None)));
    }
    outer.graph
}

/// The outer graph, as far as it is written.
struct Outer<'a> {
    parts: &'a [Named<'a>],
    levels: &'a Levels,
    graph: GraphProto,
    /// What a weight is called in it.
    common: HashMap<WeightId, String>,
    /// What values of the parts, and their weights, are called in it.
    names: HashMap<String, String>,
}

impl Outer<'_> {
    /// Moves large initializers out of the parts, each once.
    fn take_large_weights(&mut self) {
        for part in self.parts {
            for tensor in &part.graph.initializer {
                let Some(weight) = part.weights.get(&tensor.name) else { continue };
                if weight.tensor.bytes().len() >= LEAST_COMMON_BYTES {
                    let name = self.take(part, tensor, weight);
                    self.names.insert(tensor.name.clone(), name);
                }
            }
        }
    }

    /// What an initializer is called in the outer graph.
    fn take(&mut self, part: &Named<'_>, tensor: &TensorProto, weight: &HashedWeight) -> String {
        let name = self.common.entry(weight.id).or_insert_with(|| {
            let name = format!("{}:weight/{}", part.number, weight.name);
            self.graph.initializer.push(TensorProto { name: name.clone(), ..tensor.clone() });
            name
        });
        name.clone()
    }

    /// Adds the common products of a level.
    fn add_products(&mut self, level: usize, operands: &[String]) {
        let first = &self.parts[0];
        for (anchor, operand) in self.levels.anchors(level).iter().zip(operands) {
            let mut product = first.graph.node[anchor[0]].clone();
            product.name = common_name(first, anchor[0]);
            product.output = vec![product.name.clone()];
            product.input[0].clone_from(operand);
            for input in &mut product.input[1..] {
                let tensor = first.graph.initializer.iter().find(|tensor| tensor.name == *input);
                if let (Some(tensor), Some(weight)) = (tensor, first.weights.get(input)) {
                    *input = self.take(first, tensor, weight);
                }
            }
            for (part, &node) in self.parts.iter().zip(anchor) {
                let result = part.graph.node[node].output[0].clone();
                self.names.insert(result, product.name.clone());
            }
            self.graph.node.push(product);
        }
    }

    /// Adds what the models do between common products, of which only one does.
    fn add_stage(&mut self, stage: usize, slots: &[Slot]) {
        for part in self.parts {
            let computed: HashSet<&str> = self
                .levels
                .nodes(part, stage)
                .flat_map(|node| &part.graph.node[node].output)
                .map(String::as_str)
                .collect();
            let given = slots.iter().filter_map(|slot| {
                let value = slot.values.get(&part.number)?.as_str();
                // Which of several is taken can also be one that was there before.
                let gives = !slot.is_merged() || computed.contains(value);
                gives.then(|| Given { value, name: slot.name_of(part), dtype: slot.dtype })
            });
            let given: Vec<Given<'_>> = given.collect();
            if given.is_empty() {
                continue;
            }
            let body = self.body(part, stage, &given, &computed);
            self.graph.node.push(if_chosen(part, stage, body, &given));
            for Given { value, name, .. } in given {
                // Inputs are seen by later stages as they are.
                if part.producers.contains_key(value) {
                    self.names.entry(value.to_owned()).or_insert(name);
                }
            }
        }
        let merged: Vec<&Slot> = slots.iter().filter(|slot| slot.is_merged()).collect();
        if merged.is_empty() {
            return;
        }
        let of = |part: &Named<'_>| {
            let values = merged.iter().filter_map(|slot| slot.values.get(&part.number));
            values.map(|value| self.names.get(value).unwrap_or(value).clone()).collect()
        };
        let values: Vec<Vec<String>> = self.parts.iter().map(of).collect();
        self.graph.node.extend(merge(self.parts, stage, &merged, &values));
    }

    /// What one model does in a stage.
    fn body(
        &self,
        part: &Named<'_>,
        stage: usize,
        given: &[Given<'_>],
        computed: &HashSet<&str>,
    ) -> GraphProto {
        let nodes = self.levels.nodes(part, stage);
        let mut body = GraphProto {
            name: format!("{}:{}, stage {stage}", part.number, part.name),
            node: nodes.map(|index| part.graph.node[index].clone()).collect(),
            ..GraphProto::default()
        };
        rename(&mut body, &self.names);
        let mut returned = HashSet::new();
        for (place, given) in given.iter().enumerate() {
            let mut name = given.value.to_owned();
            // A body computes what it returns, and returns it once.
            if !computed.contains(given.value) || !returned.insert(given.value) {
                let from = self.names.get(given.value).unwrap_or(&name).clone();
                name = format!("{}:given {stage}/{place}", part.number);
                body.node.push(node("Identity", vec![from], vec![name.clone()]));
            }
            body.output.push(value(&name, given.dtype, None));
        }
        bring_along(part, &mut body);
        body.value_info = part.graph.value_info.clone();
        let returned: HashSet<&str> =
            body.output.iter().map(|output| output.name.as_str()).collect();
        body.value_info.retain(|value| {
            computed.contains(value.name.as_str()) && !returned.contains(value.name.as_str())
        });
        body
    }
}

/// Adds the part's own initializers that a body needs.
fn bring_along(part: &Named<'_>, body: &mut GraphProto) {
    let needed: HashSet<&str> = body.node.iter().flat_map(needs).collect();
    let dense =
        part.graph.initializer.iter().filter(|tensor| needed.contains(tensor.name.as_str()));
    body.initializer = dense.cloned().collect();
    let sparse = part.graph.sparse_initializer.iter().filter(|sparse| {
        sparse.values.as_ref().is_some_and(|values| needed.contains(values.name.as_str()))
    });
    body.sparse_initializer = sparse.cloned().collect();
}
