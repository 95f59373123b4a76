//! Where it pays to cut.

use holdfast_graph::DataType::F32;
use holdfast_graph::Model;
use holdfast_graph::share::{Prices, SharePlan};
use holdfast_testkit::attribute::int;
use holdfast_testkit::{Builder, Init, fixed};

use crate::check::{plan_at, summary};

/// A product with a square weight, then what `tail` makes of it, then a head.
fn model(side: usize, head: &str, tail: impl Fn(&mut Builder, String) -> String) -> Model {
    let mut builder = Builder::new("priced", 1);
    builder.input("x", F32, &[fixed(1), fixed(side)]);
    let weight = builder.weight("trunk", &[side, side], Init::bias());
    let product = builder.node("MatMul", &["x", &weight], &[]);
    let tail = tail(&mut builder, product);
    let bias = builder.weight(head, &[1], Init::bias());
    let y = builder.node("Add", &[&tail, &bias], &[]);
    builder.output("y", &y, F32, &[]);
    builder.finish().unwrap()
}

fn pair(side: usize, tail: impl Fn(&mut Builder, String) -> String) -> SharePlan {
    let mut models = ["a", "b"].map(|head| model(side, head, &tail));
    // What the outputs' shapes are does not matter here.
    models = models.map(|model| {
        let mut proto = model.into_proto();
        for output in &mut proto.graph.as_mut().unwrap().output {
            output.r#type = None;
        }
        Model::from_proto(proto).unwrap()
    });
    plan_at(&[&models[0], &models[1]], &Prices::default())
}

#[test]
fn less_than_a_launch_is_not_worth_a_segment() {
    assert!(!pair(16, |_, x| x).shares());
    assert!(pair(512, |_, x| x).shares());
}

#[test]
fn the_cut_is_where_little_crosses() {
    let cut_after = |tail: fn(&mut Builder, String) -> String| {
        let plan = pair(512, tail);
        assert!(plan.shares(), "{:?}", summary(&plan));
        plan.segments[0].model.graph().node.last().unwrap().op_type.clone()
    };
    // A tensor that was made larger is made so in the heads.
    let widened = cut_after(|builder, x| {
        let many = builder.initializer("many", &list(&[64, 512]));
        builder.node("Expand", &[&x, &many], &[])
    });
    assert_eq!(widened, "MatMul");
    // One that was made smaller crosses as it is.
    let narrowed = cut_after(|builder, x| builder.node("ReduceMax", &[&x], &[int("keepdims", 0)]));
    assert_eq!(narrowed, "ReduceMax");
}

#[test]
fn what_is_cheap_and_needed_on_both_sides_is_computed_on_both() {
    // The mask is large, cheap to make, and used by trunk and head.
    let masked = |head: &str| {
        let mut builder = Builder::new("masked", 1);
        builder.input("x", F32, &[fixed(1), fixed(512)]);
        builder.input("mask", F32, &[fixed(1), fixed(1)]);
        let many = builder.initializer("many", &list(&[512, 512]));
        let mask = builder.node("Expand", &["mask", &many], &[]);
        let weight = builder.weight("trunk", &[512, 512], Init::bias());
        let masked = builder.node("Mul", &[&weight, &mask], &[]);
        let product = builder.node("MatMul", &["x", &masked], &[]);
        let own = builder.weight(head, &[1], Init::bias());
        let mask = builder.node("Mul", &[&mask, &own], &[]);
        let y = builder.node("MatMul", &[&product, &mask], &[]);
        builder.output("y", &y, F32, &[fixed(1), fixed(512)]);
        builder.finish().unwrap()
    };
    let plan = plan_at(&[&masked("a"), &masked("b")], &Prices::default());
    let expands = |segment: usize| {
        let nodes = &plan.segments[segment].model.graph().node;
        nodes.iter().filter(|node| node.op_type == "Expand").count()
    };
    assert_eq!([0, 1, 2].map(expands), [1, 1, 1], "{:?}", summary(&plan));
    assert_eq!(plan.segments[0].cost.bytes_out, 4 * 512);
}

fn list(values: &[i64]) -> holdfast_graph::Tensor {
    holdfast_graph::Tensor::from_slice(&[values.len()], values).unwrap()
}
