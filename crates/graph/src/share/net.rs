//! A model as sharing sees it: the nodes that its outputs need, each computation once.
//!
//! Exporters write `Identity` nodes, cast inputs, and compute the same value twice. Here every
//! name leads to its *origin*: an input (with the integer casts that belong to its binding), a
//! weight, or an output of a node that stands for all nodes which compute the same.

use std::collections::{HashMap, HashSet};

use crate::cost::{NodeTotal, by_node};
use crate::dtype::DataType;
use crate::infer::{InferError, dtypes, infer, is_function};
use crate::model::Model;
use crate::proto::{GraphProto, NodeProto};
use crate::structure::{Fingerprint, Leaf, Structure, leaf_structure};
use crate::topology::{initializer_names, needs, order};
use crate::validate::is_onnx;

use super::Member;

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Origin {
    /// An input, perhaps cast: a position in [`Net::leaves`].
    Leaf(usize),
    /// An initializer or `Constant`: a position in [`Net::weights`].
    Weight(usize),
    /// An output of a node: positions in [`Net::nodes`] and in its outputs.
    Node(usize, usize),
}

pub(super) struct Net<'a> {
    pub(super) member: &'a Member<'a>,
    pub(super) leaves: Vec<Leaf>,
    /// The names of the weights that are used.
    pub(super) weights: Vec<&'a str>,
    /// In an order in which each follows what it needs.
    pub(super) nodes: Vec<NetNode<'a>>,
    /// The model's outputs with their origins, in order.
    pub(super) outputs: Vec<(&'a str, Origin)>,
    pub(super) types: HashMap<String, DataType>,
    origins: HashMap<&'a str, Origin>,
}

pub(super) struct NetNode<'a> {
    pub(super) proto: &'a NodeProto,
    /// What it needs, each origin once, weights included.
    pub(super) operands: Vec<Origin>,
    pub(super) outputs: Vec<NetOutput<'a>>,
    /// What identifies it; `None` if it depends on chance.
    pub(super) structures: Option<Vec<(usize, Structure)>>,
    /// The inputs that it depends on, in canonical order, as positions in [`Net::leaves`].
    pub(super) depends_on: Vec<usize>,
    pub(super) total: NodeTotal,
}

pub(super) struct NetOutput<'a> {
    /// Empty if the node does not give it.
    pub(super) name: &'a str,
    pub(super) byte_len: u64,
    /// Whether it may be an input of another model: its type must be known.
    pub(super) may_cross: bool,
}

/// What two nodes must have in common to be one: structures, leaves in order, and what they need.
/// `x - y` and `y - x` have one structure, and differ in the order of their leaves.
type Key = (Vec<(usize, Structure)>, Vec<usize>, Vec<Origin>);

impl<'a> Net<'a> {
    pub(super) fn new(member: &'a Member<'a>) -> Result<Net<'a>, InferError> {
        let model = member.model;
        let graph = model.graph();
        let inference = infer(model, member.sizes)?;
        let totals = by_node(model, &inference);
        // A size that only a run can tell is taken for the largest there is.
        let weights: HashSet<&str> = initializer_names(graph).collect();
        let largest = inference.facts.iter().filter(|(name, _)| !weights.contains(name.as_str()));
        let largest = largest.map(|(_, fact)| fact.byte_len()).max().unwrap_or(0);
        let mut net = Net {
            member,
            leaves: Vec::new(),
            weights: Vec::new(),
            nodes: Vec::new(),
            outputs: Vec::new(),
            types: dtypes(model),
            origins: HashMap::new(),
        };
        net.add_inputs_and_weights(graph);

        let live = live_nodes(graph);
        let mut known: HashMap<Key, usize> = HashMap::new();
        let order = order(graph).expect("a checked model has no cycles");
        for index in order.into_iter().filter(|index| live[*index]) {
            let proto = &graph.node[index];
            if let Some(origin) = net.alias(model, proto) {
                net.origins.insert(&proto.output[0], origin);
                net.learn_type(origin, &proto.output[0]);
                continue;
            }
            let node = net.node(proto, totals[index], |name| {
                inference.facts.get(name).map_or(largest, |fact| fact.byte_len())
            });
            let number = match &node.structures {
                Some(structures) => {
                    let leaves = node.depends_on.clone();
                    let key = (structures.clone(), leaves, computed(&node.operands));
                    *known.entry(key).or_insert(net.nodes.len())
                }
                None => net.nodes.len(),
            };
            for (output, name) in proto.output.iter().enumerate().filter(|(_, n)| !n.is_empty()) {
                net.origins.insert(name, Origin::Node(number, output));
            }
            if number == net.nodes.len() {
                net.nodes.push(node);
            }
        }
        let origin = |name: &str| net.origins[name];
        net.outputs = graph.output.iter().map(|o| (o.name.as_str(), origin(&o.name))).collect();
        Ok(net)
    }

    pub(super) fn model(&self) -> &'a Model {
        self.member.model
    }

    pub(super) fn origin(&self, name: &str) -> Option<Origin> {
        self.origins.get(name).copied()
    }

    /// Who needs each output of each node: consumers, by position.
    pub(super) fn consumers(&self) -> HashMap<(usize, usize), Vec<usize>> {
        let mut consumers: HashMap<(usize, usize), Vec<usize>> = HashMap::new();
        for (number, node) in self.nodes.iter().enumerate() {
            for operand in &node.operands {
                if let Origin::Node(producer, output) = *operand {
                    consumers.entry((producer, output)).or_default().push(number);
                }
            }
        }
        consumers
    }

    fn add_inputs_and_weights(&mut self, graph: &'a GraphProto) {
        let initializers: HashSet<&str> = initializer_names(graph).collect();
        let constants = graph.node.iter().filter(|node| is_constant(self.member.model, node));
        let constants = constants.filter_map(|node| node.output.first()).map(String::as_str);
        for name in initializer_names(graph).chain(constants) {
            self.origins.insert(name, Origin::Weight(self.weights.len()));
            self.weights.push(name);
        }
        let inputs = graph.input.iter().map(|input| input.name.as_str());
        for (input, name) in inputs.filter(|name| !initializers.contains(name)).enumerate() {
            let leaf = self.leaf(&Leaf { input, casts: Vec::new() });
            self.origins.insert(name, Origin::Leaf(leaf));
        }
    }

    /// The position of a leaf, which is added if it is new.
    fn leaf(&mut self, leaf: &Leaf) -> usize {
        self.leaves.iter().position(|known| known == leaf).unwrap_or_else(|| {
            self.leaves.push(leaf.clone());
            self.leaves.len() - 1
        })
    }

    /// The origin of what a node passes on as it is, or as an input that was only cast.
    fn alias(&mut self, model: &Model, node: &NodeProto) -> Option<Origin> {
        let [output] = &node.output[..] else { return None };
        if !is_onnx(&node.domain) || is_function(model, node) {
            return None;
        }
        match (node.op_type.as_str(), &node.input[..]) {
            ("Constant", []) => self.origin(output),
            ("Identity", [input]) => self.origin(input),
            ("Cast", [input]) if matches!(self.origin(input), Some(Origin::Leaf(_))) => {
                let print = self.member.prints.get(output)?;
                let dtype = self.types.get(output.as_str()).copied()?;
                let (true, [leaf]) =
                    (print.structure == leaf_structure(Some(dtype)), &print.leaves[..])
                else {
                    return None;
                };
                Some(Origin::Leaf(self.leaf(&leaf.clone())))
            }
            _ => None,
        }
    }

    /// A value may be declared under one of its names only.
    fn learn_type(&mut self, origin: Origin, alias: &str) {
        if let (Origin::Node(node, output), Some(dtype)) = (origin, self.types.get(alias).copied())
        {
            let output = &mut self.nodes[node].outputs[output];
            output.may_cross = true;
            self.types.entry(output.name.to_owned()).or_insert(dtype);
        }
    }

    fn node(
        &mut self,
        proto: &'a NodeProto,
        total: NodeTotal,
        byte_len: impl Fn(&str) -> u64,
    ) -> NetNode<'a> {
        let mut operands: Vec<Origin> = Vec::new();
        for origin in needs(proto).into_iter().filter_map(|name| self.origin(name)) {
            if !operands.contains(&origin) {
                operands.push(origin);
            }
        }
        let named = || proto.output.iter().enumerate().filter(|(_, name)| !name.is_empty());
        let print = |name: &String| self.member.prints.get(name);
        let prints: Option<Vec<(usize, &Fingerprint)>> =
            named().map(|(output, name)| Some((output, print(name)?))).collect();
        let outputs = proto.output.iter().map(|name| NetOutput {
            name,
            byte_len: byte_len(name),
            may_cross: self.types.contains_key(name.as_str()),
        });
        let outputs = outputs.collect();
        let leaves = prints.as_ref().and_then(|prints| prints.first());
        let leaves = leaves.map(|(_, print)| print.leaves.clone());
        let depends_on =
            leaves.iter().flat_map(|leaves| leaves.iter()).map(|leaf| self.leaf(leaf)).collect();
        let structures =
            prints.map(|prints| prints.iter().map(|(output, p)| (*output, p.structure)).collect());
        NetNode { proto, operands, outputs, structures, depends_on, total }
    }
}

/// What a node needs beside weights, in one order whichever way a sum is written.
fn computed(operands: &[Origin]) -> Vec<Origin> {
    let mut operands = operands.to_vec();
    operands.retain(|operand| !matches!(operand, Origin::Weight(_)));
    operands.sort_unstable();
    operands
}

pub(super) fn is_constant(model: &Model, node: &NodeProto) -> bool {
    node.op_type == "Constant"
        && is_onnx(&node.domain)
        && node.input.is_empty()
        && node.output.len() == 1
        && !is_function(model, node)
}

/// Which nodes some output needs.
fn live_nodes(graph: &GraphProto) -> Vec<bool> {
    let mut producers: HashMap<&str, usize> = HashMap::new();
    for (index, node) in graph.node.iter().enumerate() {
        producers.extend(node.output.iter().map(|name| (name.as_str(), index)));
    }
    let mut live = vec![false; graph.node.len()];
    let mut waiting: Vec<&str> = graph.output.iter().map(|output| output.name.as_str()).collect();
    while let Some(name) = waiting.pop() {
        if let Some(&index) = producers.get(name)
            && !std::mem::replace(&mut live[index], true)
        {
            waiting.extend(needs(&graph.node[index]));
        }
    }
    live
}
