//! The pieces that a composite is written with.

use crate::dtype::DataType;
use crate::model::Dim;
use crate::proto::{
    AttributeProto, AttributeType, DimensionProto, GraphProto, NodeProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, TypeValue, ValueInfoProto,
};

/// What the format says of a value.
pub(super) fn value(name: &str, dtype: DataType, dims: Option<&[Dim]>) -> ValueInfoProto {
    use crate::proto::DimensionValue::{Param, Value};
    let dim = |dim: &Dim| DimensionProto {
        value: match dim {
            Dim::Fixed(size) => Some(Value(*size as i64)),
            Dim::Named(name) => Some(Param(name.clone())),
            Dim::Unknown => None,
        },
        ..DimensionProto::default()
    };
    let shape = dims.map(|dims| TensorShapeProto { dim: dims.iter().map(dim).collect() });
    let tensor = TensorTypeProto { elem_type: dtype.to_onnx(), shape };
    let r#type = TypeProto { value: Some(TypeValue::Tensor(tensor)), ..TypeProto::default() };
    ValueInfoProto { name: name.to_owned(), r#type: Some(r#type), ..ValueInfoProto::default() }
}

pub(super) fn node(operator: &str, input: Vec<String>, output: Vec<String>) -> NodeProto {
    NodeProto { input, output, op_type: operator.to_owned(), ..NodeProto::default() }
}

/// A `Constant` without elements.
pub(super) fn constant(name: &str, dtype: DataType) -> NodeProto {
    let tensor =
        TensorProto { dims: vec![0], data_type: dtype.to_onnx(), ..TensorProto::default() };
    let value = AttributeProto {
        name: "value".to_owned(),
        r#type: AttributeType::Tensor as i32,
        t: Some(Box::new(tensor)),
        ..AttributeProto::default()
    };
    NodeProto { attribute: vec![value], ..node("Constant", Vec::new(), vec![name.to_owned()]) }
}

pub(super) fn branch(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        r#type: AttributeType::Graph as i32,
        g: Some(Box::new(graph)),
        ..AttributeProto::default()
    }
}
