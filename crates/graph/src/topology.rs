//! Which node depends on which, sub-graphs included.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use crate::proto::{AttributeProto, GraphProto, NodeProto};

/// The bodies of an `If`, `Loop` or `Scan`, with the attribute that holds each.
pub(crate) fn bodies(node: &NodeProto) -> impl Iterator<Item = (&AttributeProto, &GraphProto)> {
    node.attribute.iter().flat_map(|attribute| {
        attribute
            .g
            .as_deref()
            .into_iter()
            .chain(&attribute.graphs)
            .map(move |body| (attribute, body))
    })
}

/// The values a node needs: its inputs, then what its bodies capture from around it.
pub fn needs(node: &NodeProto) -> Vec<&str> {
    let mut names: Vec<&str> =
        node.input.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
    for (_, body) in bodies(node) {
        captures(body, &mut names);
    }
    names
}

/// Names that the initializers of a graph define.
pub(crate) fn initializer_names(graph: &GraphProto) -> impl Iterator<Item = &str> {
    let sparse = graph.sparse_initializer.iter().filter_map(|sparse| sparse.values.as_ref());
    graph.initializer.iter().chain(sparse).map(|tensor| tensor.name.as_str())
}

/// Appends what a body uses but does not define.
fn captures<'a>(body: &'a GraphProto, names: &mut Vec<&'a str>) {
    let mut defined: HashSet<&str> = initializer_names(body).collect();
    defined.extend(body.input.iter().map(|input| input.name.as_str()));
    defined.extend(body.node.iter().flat_map(|node| &node.output).map(String::as_str));
    let used = body.node.iter().flat_map(needs);
    let returned = body.output.iter().map(|output| output.name.as_str());
    names.extend(used.chain(returned).filter(|name| !name.is_empty() && !defined.contains(name)));
}

/// Node indices in an order in which every node follows what it needs; the order of the
/// file wherever that allows it. `Err` names a node on a cycle.
pub fn order(graph: &GraphProto) -> Result<Vec<usize>, usize> {
    let mut producers = HashMap::new();
    for (index, node) in graph.node.iter().enumerate() {
        for output in node.output.iter().filter(|name| !name.is_empty()) {
            producers.insert(output.as_str(), index);
        }
    }
    let mut waiting = vec![0usize; graph.node.len()];
    let mut consumers = vec![Vec::new(); graph.node.len()];
    for (index, node) in graph.node.iter().enumerate() {
        for producer in needs(node).iter().filter_map(|name| producers.get(name)) {
            waiting[index] += 1;
            consumers[*producer].push(index);
        }
    }
    let mut ready: BinaryHeap<_> =
        (0..graph.node.len()).filter(|&index| waiting[index] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(graph.node.len());
    while let Some(Reverse(index)) = ready.pop() {
        order.push(index);
        for &consumer in &consumers[index] {
            waiting[consumer] -= 1;
            if waiting[consumer] == 0 {
                ready.push(Reverse(consumer));
            }
        }
    }
    match waiting.iter().position(|&count| count > 0) {
        Some(stuck) if order.len() < graph.node.len() => Err(on_cycle(graph, &producers, stuck)),
        _ => Ok(order),
    }
}

/// Walks back from a node that never became ready until one repeats: that one is on the cycle.
fn on_cycle(graph: &GraphProto, producers: &HashMap<&str, usize>, stuck: usize) -> usize {
    // A node off every cycle may still be stuck behind one; only stuck nodes lead back to it.
    let mut state = vec![0u8; graph.node.len()];
    let mut path = vec![stuck];
    state[stuck] = 1;
    while let Some(&index) = path.last() {
        let next = needs(&graph.node[index])
            .into_iter()
            .filter_map(|name| producers.get(name).copied())
            .find(|&producer| state[producer] != 2);
        match next {
            Some(producer) if state[producer] == 1 => return producer,
            Some(producer) => {
                state[producer] = 1;
                path.push(producer);
            }
            None => {
                state[index] = 2;
                path.pop();
            }
        }
    }
    stuck
}
