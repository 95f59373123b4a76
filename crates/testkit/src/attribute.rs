//! Attributes of nodes, one short constructor per type.

use bytes::Bytes;
use holdfast_graph::Tensor;
use holdfast_graph::proto::{AttributeProto, AttributeType, GraphProto, TensorProto};

/// An integer.
pub fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { i: Some(value), ..typed(name, AttributeType::Int) }
}

/// A list of integers.
pub fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto { ints: values.to_vec(), ..typed(name, AttributeType::Ints) }
}

/// A number.
pub fn float(name: &str, value: f32) -> AttributeProto {
    AttributeProto { f: Some(value), ..typed(name, AttributeType::Float) }
}

/// A list of numbers.
pub fn floats(name: &str, values: &[f32]) -> AttributeProto {
    AttributeProto { floats: values.to_vec(), ..typed(name, AttributeType::Floats) }
}

/// A text.
pub fn text(name: &str, value: &str) -> AttributeProto {
    let value = Bytes::copy_from_slice(value.as_bytes());
    AttributeProto { s: Some(value), ..typed(name, AttributeType::String) }
}

/// A tensor.
pub fn tensor(name: &str, value: &Tensor) -> AttributeProto {
    tensor_proto(name, value.to_proto(""))
}

/// A tensor as the format has it.
pub(crate) fn tensor_proto(name: &str, value: TensorProto) -> AttributeProto {
    AttributeProto { t: Some(Box::new(value)), ..typed(name, AttributeType::Tensor) }
}

/// A body, as `If`, `Loop` and `Scan` have.
pub fn graph(name: &str, body: GraphProto) -> AttributeProto {
    AttributeProto { g: Some(Box::new(body)), ..typed(name, AttributeType::Graph) }
}

fn typed(name: &str, r#type: AttributeType) -> AttributeProto {
    AttributeProto { name: name.to_owned(), r#type: r#type as i32, ..AttributeProto::default() }
}
