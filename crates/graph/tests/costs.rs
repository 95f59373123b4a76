//! What running models takes, against numbers worked out by hand.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod zeroed;

use holdfast_graph::DataType::{Bool, F32, I64};
use holdfast_graph::cost::{Cost, NodeCost, cost};
use holdfast_graph::infer::{Bindings, Reason};
use holdfast_graph::proto::GraphProto;
use holdfast_graph::{Model, Tensor};
use holdfast_testkit::attribute::{graph, int, ints};
use holdfast_testkit::{Builder, Init, fixed};
use zeroed::exports;

fn of(model: &Model) -> Cost {
    cost(model, &Bindings::new()).unwrap()
}

fn single(build: impl FnOnce(&mut Builder)) -> NodeCost {
    let mut builder = Builder::new("single", 1).domain("com.microsoft", 1);
    build(&mut builder);
    of(&builder.finish().unwrap()).nodes.pop().unwrap()
}

#[test]
fn products_of_minilm_take_what_the_formula_says() {
    let (layers, hidden, intermediate) = (6, 384, 1536);
    for (name, model) in exports() {
        let (batch, tokens) = if name.contains("static") { (2, 9) } else { (3, 50) };
        let bindings = Bindings::new().size("batch", batch).size("seq", tokens);
        let cost = cost(&model, &bindings).unwrap();
        assert_eq!(cost.unknowns, [], "{name}");
        let products: u64 = cost
            .nodes
            .iter()
            .filter(|node| node.operator == "MatMul")
            .filter_map(|node| node.flops)
            .sum();
        let projections = 2 * batch * tokens * hidden * (4 * hidden + 2 * intermediate);
        let attention = 2 * batch * tokens * tokens * hidden * 2;
        assert_eq!(products, (layers * (projections + attention)) as u64, "{name}");
        // Everything else is a few operations for each element.
        assert!(cost.flops > products && cost.flops < products / 50 * 51, "{name}: {}", cost.flops);
    }
}

#[test]
fn exports_of_one_model_have_its_weights() {
    for (name, model) in exports() {
        let cost = cost(&model, &Bindings::new().size("batch", 1).size("seq", 8)).unwrap();
        // 22.6 million parameters of MiniLM without its pooler, and a few constants.
        let parameters = 4 * 22_565_376;
        let extra = cost.weight_bytes.checked_sub(parameters);
        assert!(extra.is_some_and(|extra| extra < 20_000), "{name}: {}", cost.weight_bytes);
    }
}

#[test]
fn twice_the_batch_takes_twice_the_operations_but_the_same_weights() {
    let (_, model) = exports().swap_remove(0);
    let at = |batch| cost(&model, &Bindings::new().size("batch", batch).size("seq", 16)).unwrap();
    let (one, two) = (at(1), at(2));
    assert!(two.flops.abs_diff(2 * one.flops) < one.flops / 1000);
    assert_eq!(one.weight_bytes, two.weight_bytes);
    assert!(two.peak_activation_bytes > one.peak_activation_bytes);
}

#[test]
fn operators_take_what_their_formula_says() {
    let flops = |operator: &str, shapes: &[&[usize]], attributes: &[_]| {
        let node = single(|builder| {
            let inputs: Vec<String> = shapes
                .iter()
                .enumerate()
                .map(|(index, dims)| {
                    let dims: Vec<_> = dims.iter().copied().map(fixed).collect();
                    builder.input(&format!("x{index}"), F32, &dims)
                })
                .collect();
            let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
            builder.node(operator, &inputs, attributes);
        });
        node.flops.unwrap()
    };
    let heads = [int("num_heads", 2)];
    let convolution = [ints("strides", &[2, 2]), ints("pads", &[1, 1, 1, 1])];
    assert_eq!(flops("MatMul", &[&[5, 7], &[7, 3]], &[]), 2 * 5 * 7 * 3);
    assert_eq!(flops("Gemm", &[&[5, 7], &[7, 3], &[3]], &[]), 2 * 5 * 7 * 3 + 5 * 3);
    assert_eq!(
        flops("Conv", &[&[1, 3, 8, 8], &[4, 3, 3, 3], &[4]], &convolution),
        4 * 4 * 4 * (2 * 27 + 1)
    );
    assert_eq!(
        flops("Conv", &[&[1, 4, 8, 8], &[4, 1, 3, 3]], &[int("group", 4)]),
        4 * 6 * 6 * 2 * 9
    );
    assert_eq!(flops("ConvTranspose", &[&[1, 3, 4, 4], &[3, 5, 2, 2]], &[]), 3 * 4 * 4 * 2 * 5 * 4);
    assert_eq!(flops("MaxPool", &[&[1, 3, 4, 4]], &[ints("kernel_shape", &[2, 2])]), 3 * 3 * 3 * 4);
    assert_eq!(flops("Add", &[&[2, 3], &[3]], &[]), 6);
    assert_eq!(flops("Erf", &[&[2, 3]], &[]), 6);
    assert_eq!(flops("Softmax", &[&[2, 3]], &[]), 30);
    assert_eq!(flops("ReduceMean", &[&[2, 3]], &[]), 6);
    assert_eq!(flops("Transpose", &[&[2, 3]], &[]), 0);
    assert_eq!(
        flops("LSTM", &[&[7, 2, 3], &[1, 32, 3], &[1, 32, 8]], &[]),
        7 * 2 * 8 * (2 * 4 * (3 + 8) + 4 + 9)
    );
    assert_eq!(
        flops("com.microsoft::Attention", &[&[2, 5, 8], &[8, 24], &[24]], &heads),
        2 * 5 * 24 * (2 * 8 + 1) + 2 * 2 * 5 * 5 * (2 * 4 + 2 * 4 + 6)
    );
}

#[test]
fn views_move_nothing_and_choosing_reads_only_what_it_gives() {
    let view = single(|builder| {
        let x = builder.input("x", F32, &[fixed(6)]);
        builder.node("Unsqueeze", &[&x, ""], &[ints("axes", &[0])]);
    });
    assert_eq!((view.bytes_read, view.bytes_written), (0, 0));
    let gather = single(|builder| {
        let table = builder.weight("table", &[1000, 8], Init::embedding());
        let ids = builder.input("ids", I64, &[fixed(3)]);
        builder.node("Gather", &[&table, &ids], &[]);
    });
    assert_eq!((gather.bytes_read, gather.bytes_written), (3 * 8 * 4 + 3 * 8, 3 * 8 * 4));
    assert_eq!(gather.weight_bytes, 1000 * 8 * 4);
    let square = single(|builder| {
        let x = builder.input("x", F32, &[fixed(6)]);
        builder.node("Mul", &[&x, &x], &[]);
    });
    assert_eq!((square.bytes_read, square.bytes_written), (24, 24));
}

#[test]
fn weights_count_once_however_often_they_are_used() {
    let mut builder = Builder::new("tied", 1);
    let x = builder.input("x", F32, &[fixed(2), fixed(8)]);
    let weight = builder.weight("weight", &[8, 8], Init::fan_in(8));
    let constant = builder.constant(&Tensor::zeros(F32, &[8]).unwrap());
    let y = builder.node("MatMul", &[&x, &weight], &[]);
    let y = builder.node("MatMul", &[&y, &weight], &[]);
    let y = builder.node("Add", &[&y, &constant], &[]);
    builder.output("y", &y, F32, &[fixed(2), fixed(8)]);
    let cost = of(&builder.finish().unwrap());
    assert_eq!(cost.weight_bytes, 8 * 8 * 4 + 8 * 4);
    assert_eq!(cost.flops, 2 * (2 * 2 * 8 * 8) + 16);
    // Each product reads two matrices and writes one, the sum reads a vector in place of one.
    assert_eq!(cost.bytes_moved, 2 * (64 + 256 + 64) + (64 + 32 + 64));
}

/// x → `operator` → sum: the peak is where the first two are there, if they are two.
fn peak_through(operator: &str) -> u64 {
    let mut builder = Builder::new("peak", 1);
    let x = builder.input("x", F32, &[fixed(10), fixed(100)]);
    let y = builder.node(operator, &[&x], &[]);
    let z = builder.node("ReduceSum", &[&y], &[]);
    builder.output("z", &z, F32, &[fixed(1), fixed(1)]);
    of(&builder.finish().unwrap()).peak_activation_bytes
}

#[test]
fn a_view_takes_no_memory_of_its_own() {
    assert_eq!(peak_through("Flatten"), 4000 + 4);
    assert_eq!(peak_through("Identity"), 4000 + 4);
    assert_eq!(peak_through("Neg"), 4000 + 4000);
}

#[test]
fn values_are_there_from_their_producer_to_their_last_consumer() {
    let mut builder = Builder::new("liveness", 1);
    let x = builder.input("x", F32, &[fixed(100)]);
    let early = builder.node("Relu", &[&x], &[]);
    let middle = builder.node("Neg", &[&early], &[]);
    let middle = builder.node("Exp", &[&middle], &[]);
    // The first value is needed again, the graph's input is not.
    let last = builder.node("Add", &[&middle, &early], &[]);
    builder.output("last", &last, F32, &[fixed(100)]);
    let held = builder.finish().unwrap();
    assert_eq!(of(&held).peak_activation_bytes, 3 * 400);

    let mut proto = held.into_proto();
    let nodes = &mut proto.graph.as_mut().unwrap().node;
    nodes[3].input[1] = nodes[3].input[0].clone();
    assert_eq!(of(&Model::from_proto(proto).unwrap()).peak_activation_bytes, 2 * 400);
}

#[test]
fn outputs_stay_to_the_end() {
    let mut builder = Builder::new("outputs", 1);
    let x = builder.input("x", F32, &[fixed(100)]);
    let first = builder.node("Relu", &[&x], &[]);
    let first = builder.output("first", &first, F32, &[fixed(100)]);
    let second = builder.node("Neg", &[&first], &[]);
    let third = builder.node("Exp", &[&second], &[]);
    builder.output("third", &third, F32, &[fixed(100)]);
    assert_eq!(of(&builder.finish().unwrap()).peak_activation_bytes, 3 * 400);
}

/// A branch of so many element-wise nodes on the value `x` of the graph around it.
fn branch(nodes: usize) -> GraphProto {
    let mut builder = Builder::new("branch", 1);
    let mut y = "x".to_owned();
    for _ in 0..nodes {
        y = builder.node("Neg", &[&y], &[]);
    }
    let weight = builder.weight(&format!("weight{nodes}"), &[100], Init::bias());
    let y = builder.node("Add", &[&y, &weight], &[]);
    builder.output(&format!("out{nodes}"), &y, F32, &[fixed(100)]);
    builder.finish_body()
}

fn choice() -> Model {
    let mut builder = Builder::new("choice", 1);
    builder.input("x", F32, &[fixed(100)]);
    let condition = builder.input("condition", Bool, &[]);
    let branches = [graph("then_branch", branch(1)), graph("else_branch", branch(3))];
    let y = builder.node("If", &[&condition], &branches);
    builder.output("y", &y, F32, &[fixed(100)]);
    builder.finish().unwrap()
}

#[test]
fn the_branch_that_is_taken_is_counted() {
    let at = |condition: bool| {
        let value = Tensor::from_slice(&[], &[condition]).unwrap();
        cost(&choice(), &Bindings::new().value("condition", value)).unwrap()
    };
    assert_eq!((at(true).flops, at(false).flops), (200, 400));
    assert_eq!(at(true).unknowns, []);
    // The weights of both are held whichever runs.
    assert_eq!(at(true).weight_bytes, 2 * 400);
    let labels: Vec<String> = at(true).nodes.into_iter().map(|node| node.node).collect();
    assert_eq!(labels[0], "node `/Neg` (Neg) in then_branch of node `/If` (If)");
}

#[test]
fn the_costlier_branch_is_counted_and_said_where_only_a_run_can_tell() {
    let cost = of(&choice());
    assert_eq!(cost.flops, 400);
    assert_eq!(cost.unknowns[0].reason, Reason::Condition);
    // The input and the condition, then two values inside the branch.
    assert_eq!(cost.peak_activation_bytes, 400 + 1 + 2 * 400);
}

fn repeat(trips: Option<i64>) -> Model {
    let mut body = Builder::new("body", 1);
    body.input("step", I64, &[]);
    let go_on = body.input("go_on", Bool, &[]);
    let carried = body.input("carried", F32, &[fixed(100)]);
    let next = body.node("Relu", &[&carried], &[]);
    body.output("go_on_next", &go_on, Bool, &[]);
    body.output("next", &next, F32, &[fixed(100)]);
    let mut builder = Builder::new("loop", 1);
    let x = builder.input("x", F32, &[fixed(100)]);
    let count = match trips {
        Some(trips) => builder.constant(&Tensor::from_slice(&[], &[trips]).unwrap()),
        None => builder.input("count", I64, &[]),
    };
    let body = graph("body", body.finish_body());
    let y = builder.node("Loop", &[&count, "", &x], &[body]);
    builder.output("y", &y, F32, &[fixed(100)]);
    builder.finish().unwrap()
}

#[test]
fn a_loop_counts_every_run_of_its_body_if_their_number_is_known() {
    let known = of(&repeat(Some(7)));
    assert_eq!((known.flops, known.unknowns.len()), (700, 0));
    assert!(known.nodes.iter().any(|node| node.operator == "Relu" && node.runs == 7));
    let unknown = of(&repeat(None));
    assert_eq!((unknown.flops, &unknown.unknowns[0].reason), (100, &Reason::Trips));
}

#[test]
fn an_unknown_operator_has_no_operations_and_is_listed() {
    let mut builder = Builder::new("custom", 1).domain("elsewhere", 1);
    let x = builder.input("x", F32, &[fixed(4)]);
    let y = builder.node("elsewhere::Magic", &[&x], &[]);
    let z = builder.node("Relu", &[&x], &[]);
    builder.output("y", &y, F32, &[fixed(4)]);
    builder.output("z", &z, F32, &[fixed(4)]);
    let cost = of(&builder.finish().unwrap());
    assert_eq!(cost.nodes[0].flops, None);
    assert_eq!(cost.flops, 4);
    assert_eq!(cost.unknowns[0].reason, Reason::Operator("elsewhere::Magic".to_owned()));
}
