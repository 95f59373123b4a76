//! Inputs that are as their model declares them, and whose shapes its operators refuse.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use common::{Scratch, block_on, inputs::Named, inputs::integers};
use holdfast_devices::ErrorKind;
use holdfast_graph::DataType::F32;
use holdfast_graph::{Dim, Model, Tensor};
use holdfast_testkit::{Builder, attribute, named};

/// `a` [m, n], `b` [p, q] → `y`, by what `compute` makes of them.
fn model(compute: impl FnOnce(&mut Builder, &str, &str) -> String) -> Model {
    let mut builder = Builder::new("shapes", 1);
    let a = builder.input("a", F32, &[named("m"), named("n")]);
    let b = builder.input("b", F32, &[named("p"), named("q")]);
    let y = compute(&mut builder, &a, &b);
    builder.output("y", &y, F32, &[Dim::Unknown, Dim::Unknown]);
    builder.finish().unwrap()
}

fn inputs(a: [usize; 2], b: [usize; 2]) -> Named {
    let ones = |[rows, columns]: [usize; 2]| {
        Tensor::from_slice(&[rows, columns], &vec![1f32; rows * columns]).unwrap()
    };
    [("a".to_owned(), ones(a)), ("b".to_owned(), ones(b))].into()
}

/// Has to fail for the one pair of shapes, by the caller's fault and with the engine's words, and to
/// run for the other.
fn check(what: &str, model: &Model, wrong: Named, right: Named, words: &str) {
    let scratch = Scratch::new();
    block_on(async {
        let loaded = scratch.load_model("shapes", model).await;
        let error = scratch.try_run(&loaded, &wrong).await.expect_err(what);
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(error.kind(), ErrorKind::Caller, "{what}: {cause}");
        assert!(cause.contains(words), "{what}: {cause}");
        scratch.try_run(&loaded, &right).await.expect(what);
    });
}

#[test]
fn shapes_that_do_not_go_together_are_the_callers_fault() {
    let add = model(|builder, a, b| builder.node("Add", &[a, b], &[]));
    check("Add", &add, inputs([2, 3], [4, 3]), inputs([4, 3], [1, 3]), "2 by 4");
    let product = model(|builder, a, b| builder.node("MatMul", &[a, b], &[]));
    check("MatMul", &product, inputs([2, 3], [4, 5]), inputs([2, 4], [4, 5]), "mismatch");
    let axis = || [attribute::int("axis", 0)];
    let concat = model(|builder, a, b| builder.node("Concat", &[a, b], &axis()));
    check("Concat", &concat, inputs([2, 3], [2, 4]), inputs([2, 4], [3, 4]), "4 and 3");
    let equation = || [attribute::text("equation", "ij,jk->ik")];
    let einsum = model(|builder, a, b| builder.node("Einsum", &[a, b], &equation()));
    check("Einsum", &einsum, inputs([2, 3], [4, 5]), inputs([2, 4], [4, 5]), "Einsum");
}

#[test]
fn a_shape_that_one_input_cannot_take_is_too() {
    let rows = model(|builder, a, b| {
        let shape = builder.initializer("shape", &integers(&[2], |index| [-1, 4][index]));
        let a = builder.node("Reshape", &[a, &shape], &[]);
        builder.node("Concat", &[&a, b], &[attribute::int("axis", 0)])
    });
    check("Reshape", &rows, inputs([2, 3], [1, 4]), inputs([2, 6], [1, 4]), "{2,3}");
    let column = model(|builder, a, b| {
        let first = builder.initializer("first", &integers(&[1], |_| 0));
        let a = builder.node("Squeeze", &[a, &first], &[]);
        builder.node("Add", &[&a, b], &[])
    });
    check("Squeeze", &column, inputs([2, 3], [2, 3]), inputs([1, 3], [2, 3]), "instead of 2");
}

#[test]
fn inputs_that_disagree_on_a_named_dimension_are_too() {
    let mut builder = Builder::new("same", 1);
    let a = builder.input("a", F32, &[named("n"), named("n")]);
    let b = builder.input("b", F32, &[named("n"), named("n")]);
    let doubled = builder.node("Add", &[&a, &a], &[]);
    let y = builder.node("Mul", &[&doubled, &b], &[]);
    builder.output("y", &y, F32, &[named("n"), named("n")]);
    let model = builder.finish().unwrap();
    check("names", &model, inputs([2, 2], [3, 3]), inputs([3, 3], [3, 3]), "2 by 3");
}
