//! What may be declared of a trunk's inputs and outputs: only what holds in all its uses.
//!
//! A structure knows no shapes, so one model may have fixed sizes where another has names, and
//! an engine refuses a tensor that is not as declared.

use std::collections::HashMap;

use crate::model::{Dim, Value};
use crate::proto::{DimensionProto, TypeValue, ValueInfoProto};

/// Takes out of `values`, as the first use declares them, what another use contradicts. Each of
/// `others` declares the same values in the same order. Returns whether anything was taken out.
pub(super) fn loosen(values: &mut [ValueInfoProto], others: &[Vec<ValueInfoProto>]) -> bool {
    let mut changed = false;
    for other in others {
        // What the names of the first use are in this one.
        let mut names: HashMap<String, Dim> = HashMap::new();
        for (value, other) in values.iter_mut().zip(other) {
            changed |= loosen_one(value, &Value::from_proto(other), &mut names);
        }
    }
    changed
}

/// Takes all shapes out.
pub(super) fn without_shapes(values: &mut [ValueInfoProto]) {
    for value in values {
        if let Some(TypeValue::Tensor(tensor)) =
            value.r#type.as_mut().and_then(|r#type| r#type.value.as_mut())
        {
            tensor.shape = None;
        }
    }
}

fn loosen_one(value: &mut ValueInfoProto, other: &Value, names: &mut HashMap<String, Dim>) -> bool {
    let Some(dims) = Value::from_proto(value).dims else { return false };
    let Some(TypeValue::Tensor(tensor)) =
        value.r#type.as_mut().and_then(|r#type| r#type.value.as_mut())
    else {
        return false;
    };
    let same_rank = other.dims.as_ref().filter(|other| other.len() == dims.len());
    let Some(others) = same_rank else {
        tensor.shape = None;
        return true;
    };
    let mut changed = false;
    let declared = tensor.shape.iter_mut().flat_map(|shape| &mut shape.dim);
    for ((declared, dim), other) in declared.zip(dims).zip(others) {
        let holds = match dim {
            Dim::Unknown => true,
            Dim::Fixed(_) => dim == *other,
            Dim::Named(_) if *other == Dim::Unknown => false,
            Dim::Named(name) => names.entry(name).or_insert_with(|| other.clone()) == other,
        };
        if !holds {
            *declared = DimensionProto::default();
            changed = true;
        }
    }
    changed
}
