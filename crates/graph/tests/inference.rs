//! What shape inference says of whole models: real exports, models of every architecture,
//! bodies, and what happens when sizes are not bound.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod zeroed;

use holdfast_graph::DataType::{Bool, F32, I64};
use holdfast_graph::infer::{Bindings, InferError, Reason, dtypes, infer};
use holdfast_graph::proto::GraphProto;
use holdfast_graph::{Dim, Model, Tensor};
use holdfast_testkit::attribute::{graph, int, ints};
use holdfast_testkit::{Architecture, Builder, Init, Recipe, fixed, named, random};
use zeroed::exports;

fn scalar<T: holdfast_graph::Element>(value: T) -> Tensor {
    Tensor::from_slice(&[], &[value]).unwrap()
}

/// Every value is known, has its declared type, and the outputs have their declared shapes.
#[track_caller]
fn assert_known(what: &str, model: &Model, sizes: &[(&str, usize)]) {
    let found = infer(model, &sizes.iter().copied().collect()).unwrap();
    assert_eq!(found.unknowns, [], "{what} at {sizes:?}");
    let types = dtypes(model);
    for name in model.graph().node.iter().flat_map(|node| &node.output) {
        assert_eq!(types.get(name), Some(&found.facts[name].dtype), "{what}: `{name}`");
    }
    for output in model.outputs() {
        let fact = &found.facts[&output.name];
        let declared = output.dims.unwrap();
        assert_eq!(fact.dims.len(), declared.len(), "{what}: `{}`", output.name);
        for (dim, &size) in declared.iter().zip(&fact.dims) {
            let bound = match dim {
                Dim::Fixed(size) => Some(*size),
                Dim::Named(name) => {
                    sizes.iter().find(|(known, _)| known == name).map(|known| known.1)
                }
                Dim::Unknown => None,
            };
            assert!(
                bound.is_none_or(|bound| bound == size),
                "{what}: `{}` {dim} is {size}",
                output.name
            );
        }
    }
}

#[test]
fn every_value_of_the_real_exports_is_known() {
    for (name, model) in exports() {
        assert_known(&name, &model, &[("batch", 1), ("seq", 128)]);
        assert_known(&name, &model, &[("batch", 3), ("seq", 17)]);
    }
}

#[test]
fn every_value_of_every_architecture_is_known() {
    let sizes = |batch, tokens, past| {
        move |name: &str| match name {
            name if name.contains("past") && name.contains('+') => past + tokens,
            name if name.contains("total") => past + tokens,
            name if name.contains("past") => past,
            name if name.contains("batch") => batch,
            _ => tokens,
        }
    };
    for architecture in Architecture::ALL {
        for member in architecture.build(&Recipe::tiny(1)).unwrap() {
            for (batch, tokens, past) in [(1, 5, 3), (2, 7, 0)] {
                let inputs = member.model.inputs();
                let names = inputs.iter().flat_map(|input| input.dims.iter().flatten());
                let names: Vec<&str> = names
                    .filter_map(|dim| match dim {
                        Dim::Named(name) => Some(name.as_str()),
                        _ => None,
                    })
                    .collect();
                let size = sizes(batch, tokens, past);
                let bound: Vec<(&str, usize)> =
                    names.iter().map(|&name| (name, size(name))).collect();
                let what = format!("{architecture} {}", member.stem);
                assert_known(&what, &member.model, &bound);
            }
        }
    }
}

#[test]
fn shapes_of_random_graphs_are_those_of_their_values() {
    for seed in 0..200 {
        let model = random::graph(seed);
        let values = random::evaluate(&model, &random::sample_inputs(&model, seed)).unwrap();
        let found = infer(&model, &Bindings::new()).unwrap();
        for (name, value) in values {
            let fact = &found.facts[&name];
            assert_eq!((fact.dtype, &fact.dims[..]), (value.dtype(), value.dims()), "seed {seed}");
        }
    }
}

fn two_inputs() -> Model {
    let mut builder = Builder::new("two", 1);
    let x = builder.input("x", F32, &[named("batch"), fixed(4)]);
    let y = builder.input("y", F32, &[named("batch"), Dim::Unknown]);
    let z = builder.node("Concat", &[&x, &y], &[int("axis", 1)]);
    builder.output("z", &z, F32, &[named("batch"), Dim::Unknown]);
    builder.finish().unwrap()
}

#[test]
fn a_bound_shape_binds_the_names_in_it() {
    let bindings = Bindings::new().shape("y", &[3, 2]);
    assert_eq!(infer(&two_inputs(), &bindings).unwrap().facts["z"].dims, [3, 6]);
}

#[test]
fn what_is_not_bound_is_an_error_that_names_it() {
    let text = |bindings: Bindings| infer(&two_inputs(), &bindings).unwrap_err().to_string();
    let bound = Bindings::new().size("batch", 3);
    assert_eq!(text(Bindings::new()), "dimension `batch` of input `x` has no size; bind it");
    assert_eq!(
        text(bound.clone()),
        "dimension 1 of input `y` has no name to bind; bind the input's whole shape"
    );
    assert_eq!(
        text(bound.clone().shape("y", &[2, 2])),
        "dimension `batch` is bound to 3, but input `y` to a shape where it is 2"
    );
    assert_eq!(
        text(bound.clone().shape("y", &[3, 2]).shape("x", &[3, 5])),
        "input `x` is f32[batch, 4], so it cannot have shape [3, 5]"
    );
    assert_eq!(
        text(bound.shape("y", &[3, 2]).value("x", Tensor::zeros(I64, &[3, 4]).unwrap())),
        "input `x` holds f32, so it cannot be bound to a value of i64"
    );
    let absurd = Bindings::new().size("batch", usize::MAX).shape("y", &[usize::MAX, 2]);
    assert!(matches!(infer(&two_inputs(), &absurd), Err(InferError::TooLarge { .. })));
}

#[test]
fn what_follows_from_something_unknown_is_reported_and_the_rest_is_not() {
    let mut builder = Builder::new("unknown", 1);
    let x = builder.input("x", F32, &[fixed(4)]);
    let places = builder.node("NonZero", &[&x], &[]);
    let cast = builder.node("Cast", &[&places], &[int("to", 1)]);
    let shape = builder.constant(&Tensor::from_slice(&[2], &[2i64, 2]).unwrap());
    let known = builder.node("Reshape", &[&cast, &shape], &[]);
    let beside = builder.node("Relu", &[&x], &[]);
    let model = builder.finish().unwrap();

    let found = infer(&model, &Bindings::new()).unwrap();
    let reported: Vec<String> = found
        .unknowns
        .iter()
        .map(|unknown| format!("{}: {}", unknown.node, unknown.reason))
        .collect();
    assert_eq!(
        reported,
        [
            "node `/NonZero` (NonZero): the shape depends on the values of `x`, which only a run can tell",
            "node `/Cast` (Cast): it follows from `/NonZero_output_0`, which is not known",
        ]
    );
    // A target shape without open dimensions says all that is needed.
    assert_eq!(found.facts[&known].dims, [2, 2]);
    assert_eq!(found.facts[&beside].dims, [4]);
    assert!(!found.facts.contains_key(&cast));
    assert_eq!(dtypes(&model)[&places], I64);
    assert_eq!(dtypes(&model)[&cast], F32);
}

#[test]
fn a_function_of_the_model_is_not_mistaken_for_an_operator() {
    let mut builder = Builder::new("function", 1).domain("com.microsoft", 1);
    let x = builder.input("x", F32, &[fixed(4)]);
    let y = builder.node("com.microsoft::Gelu", &[&x], &[]);
    let mut proto = builder.finish().unwrap().into_proto();
    assert_eq!(dtypes(&Model::from_proto(proto.clone()).unwrap())[&y], F32);
    proto.functions.push(holdfast_graph::proto::FunctionProto {
        name: "Gelu".to_owned(),
        domain: "com.microsoft".to_owned(),
        ..Default::default()
    });
    let model = Model::from_proto(proto).unwrap();
    assert!(!dtypes(&model).contains_key(&y));
    let found = infer(&model, &Bindings::new()).unwrap();
    assert_eq!(found.unknowns[0].reason, Reason::Operator("com.microsoft::Gelu".to_owned()));
}

/// A branch that joins `copies` times the value `x` of the graph around it.
fn branch(copies: usize, axis: i64) -> GraphProto {
    let mut builder = Builder::new("branch", 1);
    let y = builder.node("Concat", &vec!["x"; copies], &[int("axis", axis)]);
    builder.output(&format!("out{copies}{axis}"), &y, F32, &[Dim::Unknown, Dim::Unknown]);
    builder.finish_body()
}

fn choice(yes: GraphProto, no: GraphProto) -> Model {
    let mut builder = Builder::new("choice", 1);
    builder.input("x", F32, &[fixed(2), fixed(2)]);
    let condition = builder.input("condition", Bool, &[]);
    let y =
        builder.node("If", &[&condition], &[graph("then_branch", yes), graph("else_branch", no)]);
    builder.node("Relu", &[&y], &[]);
    builder.finish().unwrap()
}

#[test]
fn a_known_condition_takes_its_branch() {
    let model = choice(branch(2, 0), branch(3, 1));
    for (condition, expected) in [(true, [4, 2]), (false, [2, 6])] {
        let bindings = Bindings::new().value("condition", scalar(condition));
        let found = infer(&model, &bindings).unwrap();
        assert_eq!(found.unknowns, []);
        assert_eq!(found.facts["/Relu_output_0"].dims, expected);
    }
}

#[test]
fn an_unknown_condition_is_reported_and_only_differing_shapes_are_lost() {
    let reasons = |model: &Model| -> Vec<Reason> {
        let found = infer(model, &Bindings::new()).unwrap();
        found.unknowns.into_iter().map(|unknown| unknown.reason).collect()
    };
    let same = choice(branch(2, 0), branch(2, 0));
    assert_eq!(reasons(&same), [Reason::Condition]);
    assert_eq!(infer(&same, &Bindings::new()).unwrap().facts["/Relu_output_0"].dims, [4, 2]);

    let differ = choice(branch(2, 0), branch(3, 1));
    let follows = Reason::Follows("/If_output_0".to_owned());
    assert_eq!(reasons(&differ), [Reason::Condition, follows]);
    assert_eq!(dtypes(&differ)["/Relu_output_0"], F32);
}

#[test]
fn a_branch_that_cannot_run_at_these_sizes_is_not_the_one_taken() {
    // There is no axis 2, so only the other branch can run.
    let one = infer(&choice(branch(2, 2), branch(3, 1)), &Bindings::new()).unwrap();
    assert_eq!(one.unknowns, []);
    assert_eq!(one.facts["/Relu_output_0"].dims, [2, 6]);
    let none = infer(&choice(branch(2, 2), branch(3, 2)), &Bindings::new()).unwrap();
    assert!(matches!(none.unknowns[0].reason, Reason::Invalid(_)));
    assert!(!none.facts.contains_key("/Relu_output_0"));
}

/// A loop that adds a weight to `carried` and stacks the sums; `grow` makes it longer instead.
fn repeat(trips: Option<i64>, grow: bool) -> Model {
    let mut body = Builder::new("body", 1);
    body.input("step", I64, &[]);
    let go_on = body.input("go_on", Bool, &[]);
    let carried = body.input("carried", F32, &[Dim::Unknown]);
    let weight = body.weight("weight", &[4], Init::bias());
    let (operator, attributes) =
        if grow { ("Concat", vec![int("axis", 0)]) } else { ("Add", vec![]) };
    let next = body.node(operator, &[&carried, &weight], &attributes);
    body.output("go_on_next", &go_on, Bool, &[]);
    body.output("next", &next, F32, &[Dim::Unknown]);
    body.output("stacked", "next", F32, &[Dim::Unknown]);

    let mut builder = Builder::new("loop", 1);
    let x = builder.input("x", F32, &[fixed(4)]);
    let count = match trips {
        Some(trips) => builder.constant(&scalar(trips)),
        None => builder.input("count", I64, &[]),
    };
    let body = [graph("body", body.finish_body())];
    builder.node_with_outputs("Loop", &[&count, "", &x], &body, 2);
    builder.finish().unwrap()
}

#[test]
fn a_loop_with_a_known_count_stacks_that_many() {
    let found = infer(&repeat(Some(5), false), &Bindings::new()).unwrap();
    assert_eq!(found.unknowns, []);
    assert_eq!(found.facts["/Loop_output_0"].dims, [4]);
    assert_eq!(found.facts["/Loop_output_1"].dims, [5, 4]);
}

#[test]
fn a_loop_with_an_unknown_count_keeps_what_does_not_depend_on_it() {
    let found = infer(&repeat(None, false), &Bindings::new()).unwrap();
    assert_eq!(found.unknowns[0].reason, Reason::Trips);
    assert_eq!(found.facts["/Loop_output_0"].dims, [4]);
    assert!(!found.facts.contains_key("/Loop_output_1"));
}

#[test]
fn a_loop_whose_values_grow_is_not_known() {
    let model = repeat(Some(5), true);
    let found = infer(&model, &Bindings::new()).unwrap();
    assert_eq!(found.unknowns[0].reason, Reason::Unsteady);
    assert!(!found.facts.contains_key("/Loop_output_0"));
    assert_eq!(dtypes(&model)["/Loop_output_1"], F32);
}

#[test]
fn a_scan_runs_along_its_sequence() {
    let mut body = Builder::new("body", 1);
    let state = body.input("state", F32, &[fixed(3)]);
    let item = body.input("item", F32, &[fixed(3)]);
    let sum = body.node("Add", &[&state, &item], &[]);
    body.output("sum", &sum, F32, &[fixed(3)]);
    body.output("seen", "sum", F32, &[fixed(3)]);
    let attributes = [
        graph("body", body.finish_body()),
        int("num_scan_inputs", 1),
        ints("scan_input_axes", &[1]),
        ints("scan_output_axes", &[-1]),
    ];
    let mut builder = Builder::new("scan", 1);
    let start = builder.input("start", F32, &[fixed(3)]);
    let items = builder.input("items", F32, &[fixed(3), named("length")]);
    builder.node_with_outputs("Scan", &[&start, &items], &attributes, 2);
    let model = builder.finish().unwrap();
    let found = infer(&model, &Bindings::new().size("length", 7)).unwrap();
    assert_eq!(found.unknowns, []);
    assert_eq!(found.facts["/Scan_output_0"].dims, [3]);
    assert_eq!(found.facts["/Scan_output_1"].dims, [3, 7]);
}
