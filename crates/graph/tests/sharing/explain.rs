//! What a plan says to people.

use holdfast_graph::DataType::F32;
use holdfast_graph::Model;
use holdfast_graph::share::{Prices, Reason};
use holdfast_testkit::attribute::float;
use holdfast_testkit::{Builder, Init, fixed};

use crate::check::{plan, plan_at};

struct Variant {
    weight: &'static str,
    alpha: f32,
    operator: &'static str,
}

const BASE: Variant = Variant { weight: "w", alpha: 0.1, operator: "Tanh" };

fn model(variant: &Variant) -> Model {
    let mut builder = Builder::new("explained", 1);
    builder.input("x", F32, &[fixed(3), fixed(3)]);
    let first = builder.node("Sigmoid", &["x"], &[]);
    let weight = builder.weight(variant.weight, &[3, 3], Init::bias());
    let product = builder.node("MatMul", &[&first, &weight], &[]);
    let leaky = builder.node("LeakyRelu", &[&product], &[float("alpha", variant.alpha)]);
    let y = builder.node(variant.operator, &[&leaky], &[]);
    builder.output("y", &y, F32, &[fixed(3), fixed(3)]);
    builder.finish().unwrap()
}

/// The node at which a variant differs from the base, and why.
fn check(variant: Variant, node: &str, reason: &str) {
    let plan = plan(&[&model(&variant), &model(&BASE)]);
    let first = plan.differences.iter().find(|difference| difference.model == 0).unwrap();
    assert_eq!((first.other, first.node.as_str()), (1, node));
    assert_eq!(first.reason.to_string(), reason);
}

#[test]
fn differences_name_the_first_node_and_the_reason() {
    let matmul = "node `/MatMul` (MatMul)";
    check(Variant { weight: "v", ..BASE }, matmul, "its weight `v` is not the other model's `w`");
    check(
        Variant { alpha: 0.2, ..BASE },
        "node `/LeakyRelu` (LeakyRelu)",
        "its attribute `alpha` is another than that of node `/LeakyRelu` (LeakyRelu)",
    );
    check(
        Variant { operator: "Abs", ..BASE },
        "node `/Abs` (Abs)",
        "the other model goes on with node `/Tanh` (Tanh)",
    );
    check(
        Variant { operator: "RandomNormalLike", ..BASE },
        "node `/RandomNormalLike` (RandomNormalLike)",
        "it depends on chance, so nothing is equal to it",
    );
}

#[test]
fn what_is_equal_has_no_differences() {
    assert_eq!(plan(&[&model(&BASE), &model(&BASE)]).differences, []);
}

#[test]
fn what_is_common_but_not_worth_sharing_is_said_to_be() {
    let plan =
        plan_at(&[&model(&BASE), &model(&Variant { operator: "Abs", ..BASE })], &Prices::default());
    assert!(!plan.shares());
    let reasons: Vec<&Reason> = plan.differences.iter().map(|d| &d.reason).collect();
    assert!(reasons.contains(&&Reason::NotWorth), "{reasons:?}");
}

#[test]
fn the_picture_has_every_segment_model_and_crossing_tensor() {
    let plan = plan(&[&model(&BASE), &model(&Variant { operator: "Abs", ..BASE })]);
    let dot = plan.to_dot();
    for part in [
        "digraph plan {",
        "segment0 [label=\"trunk\\n3 nodes",
        "segment0 -> segment1 [label=\"/LeakyRelu_output_0\\n36 B\"];",
        "segment1 -> model0 [label=\"y\"];",
        "model1 [label=\"model-1\", shape=ellipse];",
    ] {
        assert!(dot.contains(part), "{part} in\n{dot}");
    }
}
