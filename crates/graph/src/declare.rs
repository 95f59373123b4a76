//! Declares the sizes of inputs that say nothing about them.
//!
//! A piece of a model takes values of which the file says no shape. Engines that compile for fixed
//! sizes need to be told.

use crate::model::Model;
use crate::proto::{DimensionProto, DimensionValue, TensorShapeProto, TypeValue};

/// The model with these shapes for inputs that declare none.
pub fn declare<'a>(model: &Model, shape: impl Fn(&str) -> Option<&'a [usize]>) -> Model {
    let mut proto = model.proto().clone();
    for input in proto.graph.iter_mut().flat_map(|graph| &mut graph.input) {
        let of = input.r#type.as_mut().and_then(|r#type| r#type.value.as_mut());
        if let (Some(TypeValue::Tensor(tensor)), Some(dims)) = (of, shape(&input.name))
            && tensor.shape.is_none()
        {
            let dim = |&size: &usize| DimensionProto {
                value: Some(DimensionValue::Value(size as i64)),
                ..DimensionProto::default()
            };
            tensor.shape = Some(TensorShapeProto { dim: dims.iter().map(dim).collect() });
        }
    }
    Model::from_proto(proto).expect("a shape makes no valid model invalid")
}
