//! Weights: every constant tensor of a model, wherever exporters put it.
//!
//! Most weights are initializers, but real files also keep them in `Constant` nodes (Paddle)
//! and inside the bodies of `If` nodes (Silero). All of them count.

use std::collections::HashMap;

use crate::digest::{Digest, Record};
use crate::dtype::DataType;
use crate::model::Model;
use crate::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto,
};
use crate::tensor::Tensor;

/// Identifies a weight by its type, shape and bytes: the digest of the first two and of the
/// digest of the bytes, so that bytes are hashed once, for this and for where they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub Digest);

impl WeightId {
    /// The id of a weight whose bytes have this digest.
    pub fn new(dtype: DataType, dims: &[usize], content: &Digest) -> WeightId {
        let mut record = Record::new("weight");
        record.number(dtype.to_onnx() as u64).number(dims.len() as u64);
        for &dim in dims {
            record.number(dim as u64);
        }
        record.digest(content);
        WeightId(record.finish())
    }
}

/// Where in a model a weight is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The way from the outermost graph into bodies: node, and which of its bodies.
    pub bodies: Vec<(usize, usize)>,
    /// Where in that graph.
    pub slot: Slot,
}

/// Where in one graph a weight is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Slot {
    /// The initializer of this index.
    Initializer(usize),
    /// The `Constant` node of this index.
    Constant(usize),
}

/// One weight of a model.
#[derive(Clone, Debug)]
pub struct Weight {
    /// Where it is.
    pub place: Place,
    /// The name of the value that it gives.
    pub name: String,
    /// Its type, shape and bytes.
    pub tensor: Tensor,
}

/// Every weight of a model, outer graph first, initializers before nodes. Strings are not weights.
pub fn weights(model: &Model) -> Vec<Weight> {
    let mut found = Vec::new();
    collect(model.graph(), &mut Vec::new(), &mut found);
    found
}

fn collect(graph: &GraphProto, bodies: &mut Vec<(usize, usize)>, found: &mut Vec<Weight>) {
    for (index, proto) in graph.initializer.iter().enumerate() {
        if let Ok(tensor) = Tensor::from_proto(proto) {
            let place = Place { bodies: bodies.clone(), slot: Slot::Initializer(index) };
            found.push(Weight { place, name: proto.name.clone(), tensor });
        }
    }
    for (index, node) in graph.node.iter().enumerate() {
        if let Some(tensor) = constant(node) {
            let place = Place { bodies: bodies.clone(), slot: Slot::Constant(index) };
            let name = node.output.first().cloned().unwrap_or_default();
            found.push(Weight { place, name, tensor });
        }
        for (number, (_, body)) in crate::topology::bodies(node).enumerate() {
            bodies.push((index, number));
            collect(body, bodies, found);
            bodies.pop();
        }
    }
}

/// The tensor that a `Constant` node gives, in whichever of its forms; `None` for other nodes
/// and for strings and sparse values.
pub fn constant(node: &NodeProto) -> Option<Tensor> {
    if node.op_type != "Constant" || !crate::validate::is_onnx(&node.domain) {
        return None;
    }
    // One value under one name: a file that says more is left as it is.
    match (&node.input[..], &node.attribute[..], &node.output[..]) {
        ([], [value], [name]) if !name.is_empty() => constant_value(value),
        _ => None,
    }
}

fn constant_value(attribute: &AttributeProto) -> Option<Tensor> {
    match attribute.name.as_str() {
        "value" => Tensor::from_proto(attribute.t.as_deref()?).ok(),
        "value_float" => Tensor::from_slice(&[], &[attribute.f?]).ok(),
        "value_int" => Tensor::from_slice(&[], &[attribute.i?]).ok(),
        "value_floats" => Tensor::from_slice(&[attribute.floats.len()], &attribute.floats).ok(),
        "value_ints" => Tensor::from_slice(&[attribute.ints.len()], &attribute.ints).ok(),
        _ => None,
    }
}

/// Visits every tensor in a model, those of bodies and functions included, to change it in place.
pub(crate) fn for_each_tensor_mut<E>(
    model: &mut ModelProto,
    visit: &mut impl FnMut(&mut TensorProto) -> Result<(), E>,
) -> Result<(), E> {
    if let Some(graph) = &mut model.graph {
        visit_graph(graph, visit)?;
    }
    model.functions.iter_mut().try_for_each(|function| visit_nodes(&mut function.node, visit))
}

fn visit_graph<E>(
    graph: &mut GraphProto,
    visit: &mut impl FnMut(&mut TensorProto) -> Result<(), E>,
) -> Result<(), E> {
    graph.initializer.iter_mut().try_for_each(&mut *visit)?;
    let sparse = graph.sparse_initializer.iter_mut();
    sparse.flat_map(sparse_parts).try_for_each(&mut *visit)?;
    visit_nodes(&mut graph.node, visit)
}

fn visit_nodes<E>(
    nodes: &mut [NodeProto],
    visit: &mut impl FnMut(&mut TensorProto) -> Result<(), E>,
) -> Result<(), E> {
    for attribute in nodes.iter_mut().flat_map(|node| &mut node.attribute) {
        let sparse = attribute.sparse_tensor.as_deref_mut().into_iter();
        let sparse = sparse.chain(&mut attribute.sparse_tensors).flat_map(sparse_parts);
        let dense = attribute.t.as_deref_mut().into_iter().chain(&mut attribute.tensors);
        dense.chain(sparse).try_for_each(&mut *visit)?;
        let mut bodies = attribute.g.as_deref_mut().into_iter().chain(&mut attribute.graphs);
        bodies.try_for_each(|body| visit_graph(body, visit))?;
    }
    Ok(())
}

fn sparse_parts(sparse: &mut SparseTensorProto) -> impl Iterator<Item = &mut TensorProto> {
    sparse.values.iter_mut().chain(&mut sparse.indices)
}

/// Every weight of a model with the digest of its bytes and its id.
#[derive(Clone, Debug)]
pub struct WeightTable {
    entries: Vec<HashedWeight>,
    by_place: HashMap<Place, usize>,
}

/// A weight, hashed.
#[derive(Clone, Debug)]
pub struct HashedWeight {
    /// Where it is.
    pub place: Place,
    /// The name of the value that it gives.
    pub name: String,
    /// Its type, shape and bytes.
    pub tensor: Tensor,
    /// The digest of its bytes.
    pub content: Digest,
    /// Its id.
    pub id: WeightId,
}

impl WeightTable {
    /// Hashes the weights of a model one after the other.
    pub fn new(model: &Model) -> WeightTable {
        WeightTable::hashed_by(model, |weights| {
            weights.iter().map(|weight| Digest::of(weight.tensor.bytes())).collect()
        })
    }

    /// Lets the caller compute the digests of the weights' bytes, in order: this crate has no
    /// threads, and hashing is worth some.
    pub fn hashed_by(model: &Model, hash: impl FnOnce(&[Weight]) -> Vec<Digest>) -> WeightTable {
        let weights = weights(model);
        let digests = hash(&weights);
        assert_eq!(weights.len(), digests.len(), "one digest for each weight");
        let entries: Vec<HashedWeight> = weights
            .into_iter()
            .zip(digests)
            .map(|(Weight { place, name, tensor }, content)| {
                let id = WeightId::new(tensor.dtype(), tensor.dims(), &content);
                HashedWeight { place, name, tensor, content, id }
            })
            .collect();
        let by_place = entries.iter().enumerate().map(|(i, e)| (e.place.clone(), i)).collect();
        WeightTable { entries, by_place }
    }

    /// The id of a tensor that is not in a model.
    pub fn id_of(tensor: &Tensor) -> WeightId {
        WeightId::new(tensor.dtype(), tensor.dims(), &Digest::of(tensor.bytes()))
    }

    /// The weights, in the order of [`weights`].
    pub fn entries(&self) -> &[HashedWeight] {
        &self.entries
    }

    /// The weight at a place.
    pub fn at(&self, place: &Place) -> Option<&HashedWeight> {
        self.by_place.get(place).map(|&index| &self.entries[index])
    }
}

/// The body of a node with this number, in the order of [`crate::topology::bodies`].
pub(crate) fn body_mut(node: &mut NodeProto, number: usize) -> Option<&mut GraphProto> {
    let bodies = node
        .attribute
        .iter_mut()
        .flat_map(|attribute| attribute.g.as_deref_mut().into_iter().chain(&mut attribute.graphs));
    bodies.into_iter().nth(number)
}
