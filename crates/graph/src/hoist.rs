//! Moves large weights to the outermost graph.
//!
//! Engines accept weights from outside only for initializers of the outermost graph, but real
//! files also keep them in `Constant` nodes and inside bodies. A body sees the values around
//! it, so a weight does not have to live there.

use std::collections::{HashMap, HashSet};

use crate::model::Model;
use crate::proto::{GraphProto, ModelProto, TensorProto};
use crate::tensor::Tensor;
use crate::topology::{bodies, initializer_names};
use crate::weights::constant;

/// Makes every weight of at least `min_bytes` an initializer of the outermost graph.
pub fn hoist(model: &Model, min_bytes: usize) -> Model {
    let mut proto: ModelProto = model.proto().clone();
    let mut taken = HashSet::new();
    all_names(model.graph(), &mut taken);
    let mut namer = Namer { taken, next: 0 };
    let mut hoisted = Vec::new();
    if let Some(graph) = &mut proto.graph {
        take_constants(graph, min_bytes, &mut hoisted);
        for node in &mut graph.node {
            for_bodies(node, &mut |body| hoist_body(body, min_bytes, &mut namer, &mut hoisted));
        }
        graph.initializer.extend(hoisted);
    }
    Model::from_proto(proto).expect("moving a weight outwards keeps a model valid")
}

/// Makes the large `Constant` nodes of the outermost graph initializers, which is what engines
/// do first of all, and leaves the rest as it is.
pub fn hoist_constants(model: &Model, min_bytes: usize) -> Model {
    let mut proto = model.proto().clone();
    if let Some(graph) = &mut proto.graph {
        let mut hoisted = Vec::new();
        take_constants(graph, min_bytes, &mut hoisted);
        graph.initializer.extend(hoisted);
    }
    Model::from_proto(proto).expect("a constant may be an initializer")
}

/// Turns the graph's large constants into tensors that keep their names. One that the graph
/// returns stays: a body must compute what it returns.
fn take_constants(graph: &mut GraphProto, min_bytes: usize, hoisted: &mut Vec<TensorProto>) {
    let returned = returned(graph);
    graph.node.retain(|node| match (constant(node), node.output.first()) {
        (Some(tensor), Some(name))
            if tensor.bytes().len() >= min_bytes && !returned.contains(name) =>
        {
            hoisted.push(tensor.to_proto(name));
            false
        }
        _ => true,
    });
}

fn returned(graph: &GraphProto) -> HashSet<String> {
    graph.output.iter().map(|output| output.name.clone()).collect()
}

fn hoist_body(
    body: &mut GraphProto,
    min_bytes: usize,
    namer: &mut Namer,
    hoisted: &mut Vec<TensorProto>,
) {
    let mut own = Vec::new();
    take_constants(body, min_bytes, &mut own);
    let returned = returned(body);
    body.initializer.retain(|proto| match Tensor::from_proto(proto) {
        Ok(tensor) if tensor.bytes().len() >= min_bytes && !returned.contains(&proto.name) => {
            own.push(proto.clone());
            false
        }
        _ => true,
    });

    // Two branches may use one name for different weights, so each gets a new one outside.
    let mut renamed = HashMap::new();
    for mut tensor in own {
        let name = namer.fresh();
        renamed.insert(std::mem::replace(&mut tensor.name, name.clone()), name);
        hoisted.push(tensor);
    }
    rename(body, &renamed);
    for node in &mut body.node {
        for_bodies(node, &mut |inner| hoist_body(inner, min_bytes, namer, hoisted));
    }
}

/// Renames what a body and those inside it read.
pub(crate) fn rename(body: &mut GraphProto, names: &HashMap<String, String>) {
    if names.is_empty() {
        return;
    }
    let replace = |name: &mut String| {
        if let Some(new) = names.get(name) {
            name.clone_from(new);
        }
    };
    body.output.iter_mut().for_each(|output| replace(&mut output.name));
    for node in &mut body.node {
        node.input.iter_mut().for_each(replace);
        for_bodies(node, &mut |inner| {
            let mut visible = names.clone();
            visible.retain(|name, _| !defines(inner, name));
            rename(inner, &visible);
        });
    }
}

fn defines(graph: &GraphProto, name: &str) -> bool {
    names(graph).any(|defined| defined == name)
}

/// The names that a graph itself defines.
fn names(graph: &GraphProto) -> impl Iterator<Item = &str> {
    let inputs = graph.input.iter().map(|input| input.name.as_str());
    let outputs = graph.node.iter().flat_map(|node| &node.output).map(String::as_str);
    inputs.chain(initializer_names(graph)).chain(outputs)
}

fn for_bodies(node: &mut crate::proto::NodeProto, visit: &mut dyn FnMut(&mut GraphProto)) {
    for attribute in &mut node.attribute {
        attribute.g.as_deref_mut().into_iter().chain(&mut attribute.graphs).for_each(&mut *visit);
    }
}

/// Every name in a graph and its bodies.
pub(crate) fn all_names(graph: &GraphProto, found: &mut HashSet<String>) {
    found.extend(names(graph).map(str::to_owned));
    for (_, body) in graph.node.iter().flat_map(bodies) {
        all_names(body, found);
    }
}

struct Namer {
    taken: HashSet<String>,
    next: usize,
}

impl Namer {
    fn fresh(&mut self) -> String {
        loop {
            let name = format!("hoisted_{}", self.next);
            self.next += 1;
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }
}
