//! Comparing structures, one sentence per test.
#![allow(dead_code, reason = "each test program uses its own part")]

use holdfast_graph::proto::AttributeProto;
use holdfast_graph::{Fingerprint, Fingerprints, Model, WeightTable};

use super::model_at;

pub(crate) fn prints(model: &Model) -> Fingerprints {
    Fingerprints::new(model, &WeightTable::new(model))
}

/// The fingerprint of the value `result`.
pub(crate) fn result(model: &Model) -> Fingerprint {
    prints(model).get("result").expect("a fingerprint").clone()
}

pub(crate) fn check_equal(left: &Model, right: &Model) {
    assert_eq!(result(left).structure, result(right).structure);
    assert_eq!(prints(left).model(), prints(right).model());
}

pub(crate) fn check_different(left: &Model, right: &Model) {
    assert_ne!(result(left).structure, result(right).structure);
    assert_ne!(prints(left).model(), prints(right).model());
}

/// One operator applied to the inputs `a`, `b` … and attributes.
pub(crate) fn apply(opset: i64, operator: &str, inputs: &[&str], with: &[AttributeProto]) -> Model {
    let mut named = inputs.to_vec();
    named.retain(|name| !name.is_empty());
    named.sort_unstable();
    named.dedup();
    model_at(opset, &named, |builder| builder.node(operator, inputs, with))
}
