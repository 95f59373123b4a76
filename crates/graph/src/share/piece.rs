//! A part of a net as a model of its own.
//!
//! Unlike [`cut`](crate::cut()), which goes by the names of one file, this goes by origins: a
//! value that the file has under three names has one in the piece.

use std::collections::{BTreeMap, HashMap, HashSet};

use prost::Message;

use super::net::{Net, Origin, is_constant};
use crate::cut::{describe, without_graph};
use crate::digest::{Digest, Record};
use crate::dtype::DataType;
use crate::hoist::all_names;
use crate::model::Model;
use crate::proto::{
    AttributeProto, AttributeType, GraphProto, ModelProto, NodeProto, TypeValue, ValueInfoProto,
};
use crate::tensor::Tensor;
use crate::topology::needs;

/// A part of a net, not yet checked.
pub(super) struct Piece {
    pub(super) proto: ModelProto,
    /// What to feed to each input, in order.
    pub(super) feeds: Vec<Feed>,
    /// What it takes to run it.
    pub(super) flops: u64,
    pub(super) weight_bytes: u64,
    /// The names and structures of its weights.
    weights: Vec<(String, Option<Digest>)>,
}

/// What an input of a piece is in its net.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Feed {
    /// A leaf, by its position.
    Leaf(usize),
    /// An output of a node.
    Value(usize, usize),
}

/// How a piece takes a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeafInput {
    /// The input's name in the piece; leaves of one name are one input.
    pub(super) name: String,
    /// Whether the piece does the casts itself.
    pub(super) casts_inside: bool,
}

/// Which part to take out.
pub(super) struct Wanted<'a> {
    /// Outputs of nodes to return.
    pub(super) values: Vec<(usize, usize)>,
    /// Inputs and weights that the model returns as they are: name and origin.
    pub(super) echoes: Vec<(&'a str, Origin)>,
    /// What others compute.
    pub(super) given: &'a dyn Fn(usize, usize) -> bool,
    pub(super) leaves: &'a BTreeMap<usize, LeafInput>,
}

impl Piece {
    pub(super) fn new(net: &Net<'_>, wanted: &Wanted<'_>) -> Piece {
        let mut names = HashSet::new();
        all_names(net.model().graph(), &mut names);
        let mut cutter = Cutter {
            net,
            wanted,
            inside: nodes_inside(net, wanted),
            names,
            graph: GraphProto { name: net.model().graph().name.clone(), ..GraphProto::default() },
            feeds: Vec::new(),
            renamed: HashMap::new(),
            flops: 0,
        };
        for number in 0..net.nodes.len() {
            if cutter.inside[number] {
                cutter.node(number);
            }
        }
        cutter.outputs();
        cutter.finish()
    }

    pub(super) fn graph(&mut self) -> &mut GraphProto {
        self.proto.graph.get_or_insert_default()
    }

    /// Identifies the piece: all of it, with weights by their ids.
    pub(super) fn id(&self) -> Digest {
        let mut record = Record::new("segment");
        record.number(self.proto.opset_import.len() as u64);
        for opset in &self.proto.opset_import {
            record.bytes(&opset.encode_to_vec());
        }
        record.number(self.proto.functions.len() as u64);
        for function in &self.proto.functions {
            record.bytes(&function.encode_to_vec());
        }
        if let Some(graph) = &self.proto.graph {
            record.number(graph.input.len() as u64).number(graph.output.len() as u64);
            record.number(graph.node.len() as u64);
            for value in graph.input.iter().chain(&graph.output) {
                record.bytes(&value.encode_to_vec());
            }
            for node in &graph.node {
                record.bytes(&node.encode_to_vec());
            }
        }
        for (name, structure) in &self.weights {
            record.text(name).digest(&structure.unwrap_or(Digest([0; 32])));
        }
        record.finish()
    }

    pub(super) fn into_model(self) -> Model {
        Model::from_proto(self.proto).expect("a part of a valid model is valid")
    }
}

/// What a file says of a value, under whichever name of it says most.
pub(super) fn describe_value(net: &Net<'_>, node: usize, output: usize) -> ValueInfoProto {
    let name = net.nodes[node].outputs[output].name;
    let alias = net.outputs.iter().find(|(_, origin)| *origin == Origin::Node(node, output));
    let names = alias.map(|(alias, _)| *alias).into_iter().chain([name]);
    let found = names.filter_map(|name| describe(net.model().graph(), name, &net.types).ok());
    let described = found.into_iter().next().unwrap_or_default();
    ValueInfoProto { name: name.to_owned(), ..described }
}

/// What a file says of an input, or of what it is after casts that others do.
pub(super) fn describe_leaf(net: &Net<'_>, leaf: usize, casts_inside: bool) -> ValueInfoProto {
    let leaf = &net.leaves[leaf];
    let name = &net.member.model.inputs()[leaf.input].name;
    let graph = net.model().graph();
    let mut described =
        graph.input.iter().find(|input| input.name == *name).cloned().unwrap_or_default();
    if let (Some(cast), false) = (leaf.casts.last(), casts_inside)
        && let Some(TypeValue::Tensor(tensor)) =
            described.r#type.as_mut().and_then(|r#type| r#type.value.as_mut())
    {
        tensor.elem_type = cast.to_onnx();
    }
    described
}

/// The nodes between what is given and what is wanted.
fn nodes_inside(net: &Net<'_>, wanted: &Wanted<'_>) -> Vec<bool> {
    let mut inside = vec![false; net.nodes.len()];
    let mut waiting: Vec<usize> = wanted.values.iter().map(|(node, _)| *node).collect();
    while let Some(node) = waiting.pop() {
        if std::mem::replace(&mut inside[node], true) {
            continue;
        }
        waiting.extend(net.nodes[node].operands.iter().filter_map(|operand| match *operand {
            Origin::Node(node, output) if !(wanted.given)(node, output) => Some(node),
            _ => None,
        }));
    }
    inside
}

/// Builds the graph of a piece.
struct Cutter<'a> {
    net: &'a Net<'a>,
    wanted: &'a Wanted<'a>,
    inside: Vec<bool>,
    /// Names that are taken.
    names: HashSet<String>,
    graph: GraphProto,
    feeds: Vec<Feed>,
    /// What the piece calls origins that it has met.
    renamed: HashMap<Origin, String>,
    flops: u64,
}

impl Cutter<'_> {
    fn node(&mut self, number: usize) {
        let node = &self.net.nodes[number];
        let mut proto = node.proto.clone();
        for input in proto.input.iter_mut().filter(|input| !input.is_empty()) {
            *input = self.name(input);
        }
        // Bodies see the names around them. Those keep theirs, so that no body is rewritten.
        let captured = needs(node.proto)
            .into_iter()
            .skip(proto.input.iter().filter(|i| !i.is_empty()).count());
        for captured in captured.collect::<Vec<_>>() {
            let name = self.name(captured);
            let there =
                self.graph.node.iter().any(|node| node.output.iter().any(|o| o == captured));
            if name != captured && !there {
                self.graph.node.push(unary("Identity", name, captured.to_owned()));
            }
        }
        self.graph.node.push(proto);
        self.flops = self.flops.saturating_add(node.total.flops);
    }

    /// What the piece calls the value that the file calls `name`; brings it along if it is new.
    fn name(&mut self, name: &str) -> String {
        self.net.origin(name).map_or_else(|| name.to_owned(), |origin| self.name_of(origin))
    }

    fn name_of(&mut self, origin: Origin) -> String {
        if let Some(name) = self.renamed.get(&origin) {
            return name.clone();
        }
        let name = match origin {
            Origin::Leaf(leaf) => self.leaf(leaf),
            Origin::Weight(weight) => {
                self.weight(self.net.weights[weight]);
                self.net.weights[weight].to_owned()
            }
            Origin::Node(node, output) => {
                if !self.inside[node] {
                    self.graph.input.push(describe_value(self.net, node, output));
                    self.feeds.push(Feed::Value(node, output));
                }
                self.net.nodes[node].outputs[output].name.to_owned()
            }
        };
        self.renamed.insert(origin, name.clone());
        name
    }

    fn leaf(&mut self, leaf: usize) -> String {
        let LeafInput { name, casts_inside } = self.wanted.leaves[&leaf].clone();
        if self.graph.input.iter().all(|input| input.name != name) {
            let described = describe_leaf(self.net, leaf, casts_inside);
            self.graph.input.push(ValueInfoProto { name: name.clone(), ..described });
            self.feeds.push(Feed::Leaf(leaf));
            self.names.insert(name.clone());
        }
        let casts: &[DataType] = if casts_inside { &self.net.leaves[leaf].casts } else { &[] };
        casts.iter().fold(name, |from, to| {
            let cast = self.fresh(&format!("{from}_as_{}", to.name()));
            let mut node = unary("Cast", from, cast.clone());
            node.attribute.push(AttributeProto {
                name: "to".to_owned(),
                r#type: AttributeType::Int as i32,
                i: Some(i64::from(to.to_onnx())),
                ..AttributeProto::default()
            });
            self.graph.node.push(node);
            cast
        })
    }

    /// Brings an initializer or `Constant` along.
    fn weight(&mut self, name: &str) {
        let graph = self.net.model().graph();
        let sparse = graph.sparse_initializer.iter();
        let mut sparse = sparse.filter(|s| s.values.as_ref().is_some_and(|v| v.name == name));
        let constant = |node: &&NodeProto| {
            is_constant(self.net.model(), node) && node.output.iter().any(|output| output == name)
        };
        if let Some(tensor) = graph.initializer.iter().find(|tensor| tensor.name == name) {
            self.graph.initializer.push(tensor.clone());
        } else if let Some(sparse) = sparse.next() {
            self.graph.sparse_initializer.push(sparse.clone());
        } else if let Some(node) = graph.node.iter().find(constant) {
            self.graph.node.push(node.clone());
        }
    }

    fn outputs(&mut self) {
        for &(node, output) in &self.wanted.values {
            self.graph.output.push(describe_value(self.net, node, output));
        }
        for &(name, origin) in &self.wanted.echoes {
            let from = self.name_of(origin);
            let taken = self.graph.input.iter().any(|input| input.name == name)
                || self.graph.node.iter().any(|node| node.output.iter().any(|o| o == name))
                || from == name;
            let to = if taken { self.fresh(&format!("{name}_returned")) } else { name.to_owned() };
            let described = describe(self.net.model().graph(), name, &self.net.types);
            self.graph.node.push(unary("Identity", from, to.clone()));
            self.graph.output.push(ValueInfoProto { name: to, ..described.unwrap_or_default() });
        }
    }

    fn fresh(&mut self, wish: &str) -> String {
        let mut name = wish.to_owned();
        while !self.names.insert(name.clone()) {
            name.push('_');
        }
        name
    }

    fn finish(mut self) -> Piece {
        let graph = self.net.model().graph();
        let outputs = self.graph.node.iter().flat_map(|node| &node.output);
        let returned: HashSet<&String> = self.graph.output.iter().map(|o| &o.name).collect();
        let inside: HashSet<&String> =
            outputs.filter(|name| !name.is_empty() && !returned.contains(name)).collect();
        self.graph.value_info =
            graph.value_info.iter().filter(|value| inside.contains(&value.name)).cloned().collect();
        let tensors = self.graph.initializer.iter().filter_map(|t| Tensor::from_proto(t).ok());
        let constants = self.graph.node.iter().filter_map(crate::weights::constant);
        let bytes = tensors.chain(constants).map(|tensor| tensor.bytes().len() as u64).sum();
        let structure = |name: &String| self.net.member.prints.get(name).map(|p| p.structure.0);
        let sparse = self.graph.sparse_initializer.iter().filter_map(|s| s.values.as_ref());
        let weights = self.graph.initializer.iter().chain(sparse);
        let weights = weights.map(|tensor| (tensor.name.clone(), structure(&tensor.name)));
        Piece {
            weights: weights.collect(),
            proto: ModelProto {
                graph: Some(self.graph),
                ..without_graph(self.net.model().proto())
            },
            feeds: self.feeds,
            flops: self.flops,
            weight_bytes: bytes,
        }
    }
}

fn unary(operator: &str, from: String, to: String) -> NodeProto {
    NodeProto {
        input: vec![from],
        output: vec![to],
        op_type: operator.to_owned(),
        ..NodeProto::default()
    }
}
