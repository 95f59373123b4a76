//! One case after the other: what is shared, each with a twin that is not.

use holdfast_graph::DataType::{self, F32, I32, I64};
use holdfast_graph::Model;
use holdfast_graph::share::{SharePlan, Source};
use holdfast_testkit::attribute::{float, graph, int};
use holdfast_testkit::random::transform;
use holdfast_testkit::{Builder, Init, fixed, named};

use crate::check::{plan, summary};
use crate::samples::body;

const SIDE: [usize; 2] = [3, 3];

/// A model over square matrices that returns what `build` names.
fn net(inputs: &[&str], build: impl FnOnce(&mut Builder) -> Vec<(&'static str, String)>) -> Model {
    let mut builder = Builder::new("net", 1);
    for name in inputs {
        builder.input(name, F32, &SIDE.map(fixed));
    }
    for (name, value) in build(&mut builder) {
        builder.output(name, &value, F32, &SIDE.map(fixed));
    }
    builder.finish().unwrap()
}

/// A layer with a weight that belongs to its name.
fn layer(builder: &mut Builder, name: &str, x: &str) -> String {
    let weight = builder.weight(name, &SIDE, Init { mean: 0.0, deviation: 1.0 });
    let product = builder.node("MatMul", &[x, &weight], &[]);
    builder.node("Tanh", &[&product], &[])
}

fn layers(builder: &mut Builder, names: &[&str], x: &str) -> String {
    names.iter().fold(x.to_owned(), |x, name| layer(builder, name, &x))
}

/// `input → layers → output`.
fn chain(names: &[&str]) -> Model {
    net(&["x"], |builder| vec![("y", layers(builder, names, "x"))])
}

fn check(models: &[&Model], expected: &[&str]) -> SharePlan {
    let plan = plan(models);
    assert_eq!(summary(&plan), expected);
    plan
}

/// What of these models is computed once.
fn trunks(models: &[&Model]) -> Vec<String> {
    let all = summary(&plan(models));
    all.into_iter().filter(|segment| segment.starts_with("Trunk")).collect()
}

const LAYER: &str = "MatMul Tanh";

#[test]
fn a_common_beginning_is_a_trunk_and_the_rest_are_heads() {
    let (one, two) = (chain(&["a", "b", "c"]), chain(&["a", "b", "d"]));
    let two_layers = format!("Trunk [0, 1] of \"{LAYER} {LAYER}\"");
    let [head_0, head_1] = [0, 1].map(|n| format!("Head [{n}] of \"{LAYER}\""));
    check(&[&one, &two], &[&two_layers, &head_0, &head_1]);
}

#[test]
fn models_with_nothing_in_common_stay_as_they_are() {
    let (one, two) = (chain(&["a", "b"]), chain(&["c", "b"]));
    let plan = plan(&[&one, &two]);
    assert!(!plan.shares());
    assert_eq!(plan.segments[0].model, one);
    assert_eq!(plan.segments[1].model, two);
}

#[test]
fn one_model_alone_stays_as_it_is() {
    let one = chain(&["a"]);
    assert_eq!(plan(&[&one]).segments[0].model, one);
    assert!(plan(&[]).segments.is_empty());
}

#[test]
fn identical_models_are_one_segment_whatever_they_are_called() {
    let one = chain(&["a", "b"]);
    for seed in 0..10 {
        let (two, _) = transform::disguise(&one, seed);
        check(&[&one, &two], &[&format!("Trunk [0, 1] of \"{LAYER} {LAYER}\"")]);
    }
}

#[test]
fn a_model_that_is_the_beginning_of_another_is_its_trunk() {
    let (short, long) = (chain(&["a"]), chain(&["a", "b"]));
    let plan = check(
        &[&long, &short],
        &[&format!("Trunk [0, 1] of \"{LAYER}\""), &format!("Head [0] of \"{LAYER}\"")],
    );
    assert_eq!(plan.models[1].steps.len(), 1);
    assert_eq!(plan.models[0].steps.len(), 2);

    // The twin: what is like the beginning but for a weight, or for an operator, is not.
    assert!(!crate::check::plan(&[&long, &chain(&["e"])]).shares());
    let other = net(&["x"], |builder| {
        let weight = builder.weight("a", &SIDE, Init { mean: 0.0, deviation: 1.0 });
        let product = builder.node("MatMul", &["x", &weight], &[]);
        vec![("y", builder.node("Sigmoid", &[&product], &[]))]
    });
    assert_eq!(trunks(&[&long, &other]), ["Trunk [0, 1] of \"MatMul\""]);
}

#[test]
fn different_outputs_of_one_trunk_need_no_heads() {
    let returns = |which: usize, name: &'static str| {
        net(&["x"], |builder| {
            let first = layer(builder, "a", "x");
            let second = layer(builder, "b", &first);
            let third = layer(builder, name, &second);
            let taps = [first, second.clone(), second];
            let last = ("last", third);
            vec![("tap", taps[which].clone()), last]
        })
    };
    let plan = plan(&[&returns(0, "c"), &returns(1, "c")]);
    assert_eq!(plan.segments.len(), 1, "{:?}", summary(&plan));

    // The twin: an output that is computed with another weight needs a head.
    check(
        &[&returns(0, "c"), &returns(1, "d")],
        &[
            &format!("Trunk [0, 1] of \"{LAYER} {LAYER}\""),
            &format!("Head [0] of \"{LAYER}\""),
            &format!("Head [1] of \"{LAYER}\""),
        ],
    );
}

#[test]
fn what_two_of_three_have_in_common_grows_from_what_all_have() {
    let models = [chain(&["a", "b", "c"]), chain(&["a", "b", "d"]), chain(&["a", "e", "b"])];
    let plan = check(
        &[&models[0], &models[1], &models[2]],
        &[
            &format!("Trunk [0, 1, 2] of \"{LAYER}\""),
            &format!("Trunk [0, 1] of \"{LAYER}\""),
            &format!("Head [0] of \"{LAYER}\""),
            &format!("Head [1] of \"{LAYER}\""),
            &format!("Head [2] of \"{LAYER} {LAYER}\""),
        ],
    );
    assert_eq!(plan.models[0].steps.iter().map(|step| step.segment).collect::<Vec<_>>(), [0, 1, 2]);

    // The twin: with another weight in between, nothing grows from it.
    let other = chain(&["a", "f", "d"]);
    let of_all = format!("Trunk [0, 1, 2] of \"{LAYER}\"");
    assert_eq!(trunks(&[&models[0], &other, &models[2]]), [of_all]);
}

#[test]
fn inputs_are_bound_by_what_they_do() {
    let joined = |[a, b]: [&str; 2], left: &str, right: &str, head: &str| {
        net(&["x", "y"], |builder| {
            let (left, right) = (layer(builder, a, left), layer(builder, b, right));
            let both = builder.node("MatMul", &[&left, &right], &[]);
            vec![("z", layer(builder, head, &both))]
        })
    };
    let apart = |left: &str, right: &str, head: &str| joined(["a", "b"], left, right, head);
    let plan = plan(&[&apart("x", "y", "c"), &apart("y", "x", "d")]);
    assert!(plan.shares());
    assert_eq!(summary(&plan)[0], format!("Trunk [0, 1] of \"{LAYER} {LAYER} MatMul\""));
    let bound =
        |model: usize| -> Vec<&Source> { plan.models[model].steps[0].inputs.values().collect() };
    let input = |name: &str| Source::Input { name: name.to_owned(), casts: Vec::new() };
    assert_eq!(bound(0), [&input("x"), &input("y")]);
    assert_eq!(bound(1), [&input("y"), &input("x")]);

    // The twins: one input for both, and the layers the other way round, are other functions.
    for other in [apart("x", "x", "d"), joined(["b", "a"], "x", "y", "d")] {
        let trunks = trunks(&[&apart("x", "y", "c"), &other]);
        assert!(trunks.iter().all(|trunk| !trunk.contains("Tanh MatMul\"")), "{trunks:?}");
    }
}

#[test]
fn two_towers_are_one_trunk_that_is_run_twice() {
    let towers = net(&["x", "y"], |builder| {
        let x = layers(builder, &["a", "b"], "x");
        let y = layers(builder, &["a", "b"], "y");
        vec![("score", builder.node("MatMul", &[&x, &y], &[]))]
    });
    let one = chain(&["a", "b", "c"]);
    let plan = check(
        &[&towers, &one],
        &[
            &format!("Trunk [0, 1] of \"{LAYER} {LAYER}\""),
            "Head [0] of \"MatMul\"",
            &format!("Head [1] of \"{LAYER}\""),
        ],
    );
    let steps = &plan.models[0].steps;
    assert_eq!(steps.iter().map(|step| step.segment).collect::<Vec<_>>(), [0, 0, 1]);
    assert_ne!(steps[0].inputs, steps[1].inputs);

    // The twin: towers with different weights are not.
    let other = net(&["x", "y"], |builder| {
        let x = layers(builder, &["a", "b"], "x");
        let y = layers(builder, &["a", "e"], "y");
        vec![("score", builder.node("MatMul", &[&x, &y], &[]))]
    });
    let plan = crate::check::plan(&[&other, &one]);
    assert_eq!(plan.models[0].steps.iter().filter(|step| step.segment == 0).count(), 2);
    assert_eq!(plan.segments[0].model.graph().node.len(), 2, "{:?}", summary(&plan));
}

#[test]
fn two_models_with_two_towers_share_the_whole() {
    let pair = |second: &'static str, head: &'static str| {
        net(&["x", "y"], move |builder| {
            let (x, y) = (layer(builder, "a", "x"), layer(builder, second, "y"));
            let both = builder.node("MatMul", &[&x, &y], &[]);
            vec![("score", layer(builder, head, &both))]
        })
    };
    let towers = |head| pair("a", head);
    check(
        &[&towers("b"), &towers("c")],
        &[
            &format!("Trunk [0, 1] of \"{LAYER} {LAYER} MatMul\""),
            &format!("Head [0] of \"{LAYER}\""),
            &format!("Head [1] of \"{LAYER}\""),
        ],
    );

    // The twin: where one tower has another weight, what joins them is another function.
    let trunks = trunks(&[&towers("b"), &pair("e", "c")]);
    assert!(trunks.iter().all(|trunk| !trunk.contains("Tanh MatMul\"")), "{trunks:?}");
}

#[test]
fn an_input_or_a_weight_that_is_returned_as_it_is_is_still_returned() {
    let echo = |head: &'static str| {
        net(&["x"], move |builder| {
            let first = layer(builder, "a", "x");
            let weight = builder.weight("a", &SIDE, Init { mean: 0.0, deviation: 1.0 });
            vec![("y", layer(builder, head, &first)), ("input", "x".into()), ("weight", weight)]
        })
    };
    let plan = check(
        &[&echo("b"), &echo("c")],
        &[
            &format!("Trunk [0, 1] of \"{LAYER}\""),
            &format!("Head [0] of \"{LAYER} Identity Identity\""),
            &format!("Head [1] of \"{LAYER} Identity Identity\""),
        ],
    );
    assert_eq!(plan.models[0].outputs.len(), 3);
}

#[test]
fn an_output_that_is_an_input_by_name_is_still_returned() {
    let direct = |head: &str| {
        let mut proto =
            net(&["x"], |builder| vec![("y", layers(builder, &["a", head], "x"))]).into_proto();
        let graph = proto.graph.as_mut().unwrap();
        graph.output.push(graph.input[0].clone());
        Model::from_proto(proto).unwrap()
    };
    let plan = plan(&[&direct("b"), &direct("c")]);
    assert!(plan.shares());
    assert_eq!(plan.models[0].outputs["x"].step, 1);
}

#[test]
fn a_cast_of_an_input_belongs_to_the_binding() {
    let ids = |dtype: DataType, casts: &[DataType], head: &str| {
        let mut builder = Builder::new("ids", 1);
        builder.input("ids", dtype, &[named("batch")]);
        let ids = casts.iter().fold("ids".to_owned(), |ids, to| {
            builder.node("Cast", &[&ids], &[int("to", i64::from(to.to_onnx()))])
        });
        let table = builder.weight("table", &[8, 3], Init::bias());
        let rows = builder.node("Gather", &[&table, &ids], &[]);
        let rows = builder.node("Softmax", &[&rows], &[]);
        let y = layer(&mut builder, head, &rows);
        builder.output("y", &y, F32, &[named("batch"), fixed(3)]);
        builder.finish().unwrap()
    };
    let wide = ids(I64, &[], "a");
    let narrow = ids(I32, &[I64], "b");
    let mixed = plan(&[&wide, &narrow]);
    let source = |plan: &SharePlan, model: usize| plan.models[model].steps[0].inputs["ids"].clone();
    let input = |casts: &[DataType]| Source::Input { name: "ids".into(), casts: casts.to_vec() };
    assert_eq!(source(&mixed, 0), input(&[]));
    assert_eq!(source(&mixed, 1), input(&[I64]));

    // Where all models cast alike, the trunk does.
    let alike = plan(&[&narrow, &ids(I32, &[I64], "c")]);
    assert_eq!(source(&alike, 0), input(&[]));
    assert_eq!(alike.segments[0].model.inputs()[0].dtype, Some(I32));

    // The twin: without the cast it is another type.
    assert!(!plan(&[&wide, &ids(I32, &[], "b")]).shares());
}

#[test]
fn what_depends_on_chance_is_never_shared() {
    let noisy = |operator: &'static str, head: &'static str| {
        net(&["x"], move |builder| {
            let first = layer(builder, "a", "x");
            let noise = builder.node(operator, &[&first], &[]);
            let sum = builder.node("Add", &[&first, &noise], &[]);
            vec![("y", layer(builder, head, &sum))]
        })
    };
    let shared = |operator| plan(&[&noisy(operator, "b"), &noisy(operator, "c")]);
    let nodes = |plan: &SharePlan| plan.segments[0].model.graph().node.len();
    assert_eq!(nodes(&shared("Neg")), 4);
    assert_eq!(nodes(&shared("RandomNormalLike")), 2);
}

#[test]
fn a_value_of_unknown_type_does_not_cross() {
    let odd = |operator: &'static str, head: &'static str| {
        let mut builder = Builder::new("odd", 1).domain("custom", 1);
        builder.input("x", F32, &SIDE.map(fixed));
        let first = layer(&mut builder, "a", "x");
        let odd = builder.node(operator, &[&first], &[]);
        let y = layer(&mut builder, head, &odd);
        builder.output("y", &y, F32, &SIDE.map(fixed));
        builder.finish().unwrap()
    };
    let shared = |operator| plan(&[&odd(operator, "b"), &odd(operator, "c")]);
    let nodes = |plan: &SharePlan| plan.segments[0].model.graph().node.len();
    assert_eq!(nodes(&shared("Neg")), 3);
    assert_eq!(
        nodes(&shared("custom::Odd")),
        2,
        "cut before it: {:?}",
        summary(&shared("custom::Odd"))
    );
}

#[test]
fn bodies_are_shared_whole_or_not_at_all() {
    let branching = |yes: &'static str, head: &'static str| {
        let mut builder = Builder::new("branching", 1);
        builder.input("condition", DataType::Bool, &[]);
        builder.input("x", F32, &SIDE.map(fixed));
        let first = layer(&mut builder, "a", "x");
        let alias = builder.node("Identity", &[&first], &[]);
        let then = body(&[], |inner| inner.node(yes, &[&alias], &[]));
        let other = body(&[], |inner| inner.node("Neg", &[&first], &[]));
        let bodies = [graph("then_branch", then), graph("else_branch", other)];
        let chosen = builder.node("If", &["condition"], &bodies);
        let y = layer(&mut builder, head, &chosen);
        builder.output("y", &y, F32, &SIDE.map(fixed));
        builder.finish().unwrap()
    };
    let operators = |other: &Model| summary(&plan(&[&branching("Abs", "b"), other]))[0].clone();
    assert!(operators(&branching("Abs", "c")).contains("MatMul Tanh Identity If"));
    assert!(!operators(&branching("Relu", "c")).contains("If"));
}

#[test]
fn sizes_are_declared_only_where_they_hold_for_all() {
    let sized = |rows: holdfast_graph::Dim, head: &str| {
        let mut builder = Builder::new("sized", 1);
        builder.input("x", F32, &[rows.clone(), fixed(3)]);
        let y = layers(&mut builder, &["a", head], "x");
        builder.output("y", &y, F32, &[rows, fixed(3)]);
        builder.finish().unwrap()
    };
    let input = |models: [&Model; 2]| plan(&models).segments[0].model.inputs()[0].to_string();
    assert_eq!(input([&sized(fixed(3), "b"), &sized(fixed(3), "c")]), "f32[3, 3]");
    assert_eq!(input([&sized(fixed(3), "b"), &sized(fixed(5), "c")]), "f32[?, 3]");
    assert_eq!(input([&sized(named("batch"), "b"), &sized(fixed(5), "c")]), "f32[batch, 3]");
}

#[test]
fn an_attribute_an_edge_or_a_bit_that_differs_ends_the_trunk() {
    let varied = |alpha: f32, from_input: bool, weight: &'static str, head: &'static str| {
        net(&["x"], move |builder| {
            let first = layer(builder, "a", "x");
            let leaky = builder.node("LeakyRelu", &[&first], &[float("alpha", alpha)]);
            let taken = if from_input { "x".to_owned() } else { first };
            let sum = builder.node("Sub", &[&leaky, &taken], &[]);
            let next = layer(builder, weight, &sum);
            vec![("y", layer(builder, head, &next))]
        })
    };
    let base = varied(0.1, false, "b", "h");
    let nodes = |other: Model| {
        let plan = plan(&[&base, &other]);
        plan.segments[0].model.graph().node.len()
    };
    assert_eq!(nodes(varied(0.1, false, "b", "g")), 6);
    assert_eq!(nodes(varied(0.2, false, "b", "g")), 2, "another attribute");
    assert_eq!(nodes(varied(0.1, true, "b", "g")), 3, "another edge");
    assert_eq!(nodes(varied(0.1, false, "c", "g")), 4, "another weight");
}

#[test]
fn what_one_model_computes_twice_is_computed_once() {
    let twice = |second: &'static str, head: &'static str| {
        net(&["x"], move |builder| {
            let (one, two) = (layer(builder, "a", "x"), layer(builder, second, "x"));
            let both = builder.node("MatMul", &[&one, &two], &[]);
            vec![("y", layer(builder, head, &both))]
        })
    };
    let once = net(&["x"], |builder| {
        let one = layer(builder, "a", "x");
        let both = builder.node("MatMul", &[&one, &one], &[]);
        vec![("y", layer(builder, "c", &both))]
    });
    let plan = plan(&[&twice("a", "b"), &once]);
    assert_eq!(summary(&plan)[0], format!("Trunk [0, 1] of \"{LAYER} MatMul\""));

    // The twin: what differs by a weight is two things, and computed twice.
    assert_eq!(trunks(&[&twice("e", "b"), &once]), [format!("Trunk [0, 1] of \"{LAYER}\"")]);
}
