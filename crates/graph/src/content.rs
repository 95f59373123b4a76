//! What attributes and tensors hold, hashed without the names and notes that come with them.

use prost::Message;

use crate::digest::{Digest, Record};
use crate::proto::{AttributeProto, AttributeType, SparseTensorProto, TensorProto};
use crate::tensor::Tensor;
use crate::weights::WeightTable;

/// Adds an attribute's name and value to a record.
pub(crate) fn hash_attribute(record: &mut Record, attribute: &AttributeProto) {
    record.text("attribute").text(&attribute.name).text(&attribute.ref_attr_name);
    if let Some(tensor) = &attribute.t {
        record.text("tensor").digest(&tensor_digest(tensor));
        return;
    }
    let kind = AttributeType::try_from(attribute.r#type).unwrap_or(AttributeType::Undefined);
    // The rest is written in one fixed way, so its bytes can be hashed as they are.
    let value = AttributeProto {
        name: String::new(),
        doc_string: String::new(),
        r#type: 0,
        f: attribute.f.or((kind == AttributeType::Float).then_some(0.0)),
        i: attribute.i.or((kind == AttributeType::Int).then_some(0)),
        s: attribute.s.clone().or((kind == AttributeType::String).then(Default::default)),
        tensors: attribute.tensors.iter().map(nameless).collect(),
        sparse_tensor: attribute.sparse_tensor.as_deref().map(nameless_sparse).map(Box::new),
        sparse_tensors: attribute.sparse_tensors.iter().map(nameless_sparse).collect(),
        ..attribute.clone()
    };
    record.text("value").bytes(&value.encode_to_vec());
}

/// The weight id of a tensor, or for strings, which are not weights, a digest like it.
pub(crate) fn tensor_digest(proto: &TensorProto) -> Digest {
    match Tensor::from_proto(proto) {
        Ok(tensor) => WeightTable::id_of(&tensor).0,
        Err(_) => digest_as_written("tensor", &nameless(proto)),
    }
}

/// The digest of a sparse tensor.
pub(crate) fn sparse_digest(proto: &SparseTensorProto) -> Digest {
    digest_as_written("sparse tensor", &nameless_sparse(proto))
}

fn digest_as_written(kind: &str, message: &impl Message) -> Digest {
    let mut record = Record::new(kind);
    record.bytes(&message.encode_to_vec());
    record.finish()
}

fn nameless(proto: &TensorProto) -> TensorProto {
    TensorProto {
        name: String::new(),
        doc_string: String::new(),
        metadata_props: Vec::new(),
        ..proto.clone()
    }
}

fn nameless_sparse(proto: &SparseTensorProto) -> SparseTensorProto {
    SparseTensorProto {
        values: proto.values.as_ref().map(nameless),
        indices: proto.indices.as_ref().map(nameless),
        dims: proto.dims.clone(),
    }
}
