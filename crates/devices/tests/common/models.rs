//! Small models for tests of programs.

use holdfast_devices::Loaded;
use holdfast_graph::DataType::{Bool, F32, I64};
use holdfast_graph::{Model, Tensor};
use holdfast_testkit::{Builder, Init, attribute, fixed, named};

use super::Scratch;
use super::inputs::{Named, integers};

/// `x` [batch, 4] → `y` [batch, 4].
pub(crate) fn dense(seed: u64) -> Model {
    let mut builder = Builder::new("dense", seed);
    let dims = [named("batch"), fixed(4)];
    let x = builder.input("x", F32, &dims);
    let weight = builder.weight("weight", &[4, 4], Init::fan_in(4));
    let y = builder.node("MatMul", &[&x, &weight], &[]);
    let y = builder.node("Tanh", &[&y], &[]);
    builder.output("y", &y, F32, &dims);
    builder.finish().unwrap()
}

/// `id` [1] → `row` [1, 4]; an id of ten or more fails while it runs.
pub(crate) fn lookup() -> Model {
    let mut builder = Builder::new("lookup", 1);
    let id = builder.input("id", I64, &[fixed(1)]);
    let table = builder.weight("table", &[10, 4], Init::embedding());
    let row = builder.node("Gather", &[&table, &id], &[]);
    builder.output("row", &row, F32, &[fixed(1), fixed(4)]);
    builder.finish().unwrap()
}

const SIDE: usize = 32;

/// `rounds`, `x` [32, 32] → `y`: runs as long as it is told to.
pub(crate) fn rounds(seed: u64) -> Model {
    let dims = [fixed(SIDE), fixed(SIDE)];
    let mut body = Builder::new("round", seed);
    body.input("round", I64, &[]);
    let go_on = body.input("go_on", Bool, &[]);
    let state = body.input("state", F32, &dims);
    let weight = body.weight("weight", &[SIDE, SIDE], Init { mean: 0.0, deviation: 0.3 });
    let next = body.node("MatMul", &[&state, &weight], &[]);
    let next = body.node("Tanh", &[&next], &[]);
    let go_on = body.node("Identity", &[&go_on], &[]);
    body.output("go_on_after", &go_on, Bool, &[]);
    body.output("state_after", &next, F32, &dims);

    let mut builder = Builder::new("rounds", seed);
    let count = builder.input("rounds", I64, &[]);
    let x = builder.input("x", F32, &dims);
    let body = attribute::graph("body", body.finish_body());
    let y = builder.node("Loop", &[&count, "", &x], &[body]);
    builder.output("y", &y, F32, &dims);
    builder.finish().unwrap()
}

/// More rounds than any test waits for: minutes at the very least.
pub(crate) const ENDLESS: i64 = 1 << 30;

pub(crate) fn rounds_inputs(rounds: i64, seed: u64) -> Named {
    let init = Init { mean: 0.0, deviation: 1.0 };
    let x = holdfast_testkit::Weights::new(seed).draw("x", &[SIDE, SIDE], init).unwrap();
    [("rounds", integers(&[], |_| rounds)), ("x", x)]
        .map(|(name, tensor)| (name.to_owned(), tensor))
        .into()
}

/// Inputs of [`dense`].
pub(crate) fn dense_inputs(batch: usize, seed: u64) -> Named {
    [("x".to_owned(), matrix(batch, seed))].into()
}

/// A seeded [rows, 4].
pub(crate) fn matrix(rows: usize, seed: u64) -> Tensor {
    let init = Init { mean: 0.0, deviation: 1.0 };
    holdfast_testkit::Weights::new(seed).draw("x", &[rows, 4], init).unwrap()
}

impl Scratch {
    /// Imports, lowers and loads a model.
    pub(crate) async fn load_model(&self, name: &str, model: &Model) -> Loaded {
        let graph = self.import(name, model);
        self.load(&graph).await
    }
}
