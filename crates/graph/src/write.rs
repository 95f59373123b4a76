//! Writing models: whole, or as a graph that names its weights by their digest.

use prost::Message;

use crate::digest::Digest;
use crate::model::Model;
use crate::proto::{DataLocation, ModelProto, StringStringEntryProto, TensorProto};
use crate::tensor::Tensor;
use crate::weights::{self, HashedWeight, Place, Slot, WeightTable};

/// The file name of a blob: external data in a graph names its weights this way.
pub fn blob_name(content: &Digest) -> String {
    format!("sha256-{content}")
}

/// The digest in a blob's file name.
pub fn blob_digest(name: &str) -> Option<Digest> {
    name.strip_prefix("sha256-")?.parse().ok()
}

/// The model as one file, weights inside. Above 2 GB other programs refuse such a file:
/// use [`graph_only`].
pub fn encode(model: &Model) -> Vec<u8> {
    model.proto().encode_to_vec()
}

/// A model whose large weights are elsewhere.
#[derive(Clone, Debug)]
pub struct GraphOnly {
    /// The graph, with external data at `sha256-…` in place of each large weight.
    pub proto: ModelProto,
    /// The weights that were taken out, as places in the table; several may share one content.
    pub taken: Vec<HashedWeight>,
}

/// Takes weights out of a model, wherever they are: those that `take` is true for.
pub fn graph_only(
    model: &Model,
    weights: &WeightTable,
    take: impl Fn(&HashedWeight) -> bool,
) -> GraphOnly {
    let mut proto = model.proto().clone();
    let mut taken = Vec::new();
    for weight in weights.entries() {
        if !take(weight) {
            continue;
        }
        if let Some(tensor) = tensor_at(&mut proto, &weight.place) {
            refer(tensor, &weight.tensor, &weight.content);
            taken.push(weight.clone());
        }
    }
    GraphOnly { proto, taken }
}

/// Makes a tensor refer to a blob.
fn refer(proto: &mut TensorProto, tensor: &Tensor, content: &Digest) {
    let entry = |key: &str, value: String| StringStringEntryProto { key: key.to_owned(), value };
    *proto = TensorProto {
        name: std::mem::take(&mut proto.name),
        doc_string: std::mem::take(&mut proto.doc_string),
        metadata_props: std::mem::take(&mut proto.metadata_props),
        dims: tensor.dims().iter().map(|&dim| dim as i64).collect(),
        data_type: tensor.dtype().to_onnx(),
        data_location: DataLocation::External as i32,
        external_data: vec![
            entry("location", blob_name(content)),
            entry("length", tensor.bytes().len().to_string()),
        ],
        ..TensorProto::default()
    };
}

/// The tensor at a place; `None` for constants that are not written as a tensor.
fn tensor_at<'a>(model: &'a mut ModelProto, place: &Place) -> Option<&'a mut TensorProto> {
    let mut graph = model.graph.as_mut()?;
    for &(node, body) in &place.bodies {
        graph = weights::body_mut(graph.node.get_mut(node)?, body)?;
    }
    match place.slot {
        Slot::Initializer(index) => graph.initializer.get_mut(index),
        Slot::Constant(index) => {
            let attributes = &mut graph.node.get_mut(index)?.attribute;
            let value = attributes.iter_mut().find(|attribute| attribute.name == "value");
            value?.t.as_deref_mut()
        }
    }
}
