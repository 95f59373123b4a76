//! Cutting and hoisting: what they give, and when they refuse.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod samples;

use std::collections::{BTreeMap, HashSet};

use holdfast_graph::DataType::{Bool, F32};
use holdfast_graph::{
    CutError, Fingerprints, Model, Tensor, WeightTable, cut, encode, hoist, hoist_constants,
    weights,
};
use holdfast_testkit::random::evaluate;
use holdfast_testkit::{Builder, attribute, fixed};
use samples::{body, branches, matrix, model};

/// `result = (a + w) · b`, with the sum as `sum`.
fn sum_and_product() -> Model {
    let mut builder = Builder::new("chain", 1);
    for name in ["a", "b"] {
        builder.input(name, F32, &[fixed(2), fixed(2)]);
    }
    let weight = builder.initializer("w", &matrix([1.0, 2.0, 3.0, 4.0]));
    let sum = builder.node("Add", &["a", &weight], &[]);
    let product = builder.node("MatMul", &[&sum, "b"], &[]);
    builder.output("result", &product, F32, &[fixed(2), fixed(2)]);
    builder.finish().unwrap()
}

const SUM: &str = "/Add_output_0";

fn input_names(model: &Model) -> Vec<String> {
    model.inputs().into_iter().map(|input| input.name).collect()
}

fn run(model: &Model, inputs: &[(&str, &Tensor)]) -> Tensor {
    let inputs: BTreeMap<String, Tensor> =
        inputs.iter().map(|(name, tensor)| ((*name).to_owned(), (*tensor).clone())).collect();
    evaluate(model, &inputs).unwrap().into_values().next().unwrap()
}

fn model_structure(model: &Model) -> Option<holdfast_graph::Structure> {
    Fingerprints::new(model, &WeightTable::new(model)).model()
}

mod cutting {
    use super::*;

    #[test]
    fn takes_along_what_the_piece_needs_and_nothing_else() {
        let model = sum_and_product();
        let front = cut(&model, &[], &[SUM]).unwrap();
        assert_eq!(input_names(&front), ["a"]);
        assert_eq!(weights::weights(&front).len(), 1);
        let back = cut(&model, &[SUM], &["result"]).unwrap();
        assert_eq!(input_names(&back), [SUM, "b"]);
        assert_eq!(back.inputs()[0].dtype, Some(F32));
        assert_eq!(weights::weights(&back).len(), 0);

        let (a, b) = (matrix([1.0, -1.0, 0.5, 2.0]), matrix([3.0, 1.0, 4.0, 1.0]));
        let sum = run(&front, &[("a", &a)]);
        assert_eq!(run(&back, &[(SUM, &sum), ("b", &b)]), run(&model, &[("a", &a), ("b", &b)]));
    }

    #[test]
    fn a_weight_may_become_an_input() {
        let piece = cut(&sum_and_product(), &["w"], &["result"]).unwrap();
        assert_eq!(input_names(&piece), ["w", "a", "b"]);
        assert_eq!(weights::weights(&piece).len(), 0);
    }

    #[test]
    fn one_of_several_outputs_may_be_given_while_another_is_computed() {
        let mut builder = Builder::new("halves", 1);
        builder.input("a", F32, &[fixed(4), fixed(2)]);
        let halves = builder.node_with_outputs("Split", &["a"], &[], 2);
        let sum = builder.node("Sub", &[&halves[0], &halves[1]], &[]);
        builder.output("result", &sum, F32, &[fixed(2), fixed(2)]);
        let model = builder.finish().unwrap();
        let piece = cut(&model, &[&halves[1]], &["result"]).unwrap();
        assert_eq!(input_names(&piece), [halves[1].as_str(), "a"]);

        let a = Tensor::from_slice(&[4, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]).unwrap();
        let zeros = matrix([0.0; 4]);
        let expected = matrix([1.0, 2.0, 3.0, 4.0]);
        assert_eq!(run(&piece, &[("a", &a), (&halves[1], &zeros)]), expected);
    }

    #[test]
    fn what_a_body_captures_comes_along() {
        let yes = body(&[], |builder| builder.node("Relu", &["x"], &[]));
        let no = body(&[], |builder| builder.node("Neg", &["y"], &[]));
        let piece = cut(&branches(yes, no), &["x"], &["result"]).unwrap();
        assert_eq!(input_names(&piece), ["x", "condition", "y"]);
    }

    #[test]
    fn notes_functions_and_opsets_come_along() {
        let model = samples::with_everything();
        let piece = cut(&model, &["result"], &["doubled"]).unwrap();
        assert_eq!(piece.proto().functions, model.proto().functions);
        assert_eq!(piece.proto().metadata_props, model.proto().metadata_props);
        assert_eq!(piece.opset("local"), Some(1));
        assert_eq!(Model::from_bytes(encode(&piece).into()).unwrap(), piece);
    }

    #[test]
    fn refuses_values_that_are_not_there_or_not_computed() {
        let model = sum_and_product();
        let refuse = |inputs: &[&str], outputs: &[&str]| cut(&model, inputs, outputs).unwrap_err();
        assert_eq!(refuse(&[], &["nothing"]), CutError::NoSuchValue("nothing".to_owned()));
        assert_eq!(refuse(&["nothing"], &["result"]), CutError::NoSuchValue("nothing".to_owned()));
        assert_eq!(refuse(&[], &[""]), CutError::NoSuchValue(String::new()));
        assert_eq!(refuse(&[], &["a"]), CutError::NotComputed("a".to_owned()));
        assert_eq!(refuse(&[], &["w"]), CutError::NotComputed("w".to_owned()));
        assert_eq!(refuse(&[SUM], &[SUM]), CutError::NotComputed(SUM.to_owned()));
        assert_eq!(refuse(&["a"], &[]), CutError::NoOutputs);
    }

    #[test]
    fn refuses_a_value_inside_a_body() {
        let inside = || {
            body(&[], |builder| {
                let inner = builder.node("Relu", &["x"], &[]);
                builder.node("Neg", &[&inner], &[])
            })
        };
        let error = cut(&branches(inside(), inside()), &[], &["/Relu_output_0"]).unwrap_err();
        assert_eq!(error, CutError::NoSuchValue("/Relu_output_0".to_owned()));
        assert!(error.to_string().contains("inside an If, Loop or Scan"), "{error}");
    }

    #[test]
    fn refuses_an_input_whose_type_nobody_knows() {
        let mut builder = Builder::new("unknown", 1).domain("custom", 1);
        builder.input("a", F32, &[fixed(2), fixed(2)]);
        let odd = builder.node("custom::Odd", &["a"], &[]);
        let result = builder.node("Relu", &[&odd], &[]);
        builder.output("result", &result, F32, &[fixed(2), fixed(2)]);
        let model = builder.finish().unwrap();
        assert_eq!(
            cut(&model, &[&odd], &["result"]).unwrap_err(),
            CutError::UnknownType(odd.clone())
        );
        assert!(cut(&model, &[], &[&odd]).is_ok(), "as an output it may be");
    }
}

mod hoisting {
    use super::*;

    /// Branches that use one name for two weights, one of them returned as it is.
    fn clashing() -> Model {
        let branch = |values: [f32; 4]| {
            body(&[], |builder| {
                let weight = builder.initializer("w", &matrix(values));
                let constant = builder.constant(&matrix(values.map(|value| value + 10.0)));
                let sum = builder.node("Add", &["x", &weight], &[]);
                builder.node("Mul", &[&sum, &constant], &[])
            })
        };
        branches(branch([1.0, 2.0, 3.0, 4.0]), branch([5.0, 6.0, 7.0, 8.0]))
    }

    #[test]
    fn every_weight_goes_outside_under_a_name_of_its_own_and_the_structure_stays() {
        let model = clashing();
        let hoisted = hoist(&model, 16);
        assert_eq!(model_structure(&hoisted), model_structure(&model));
        let found = weights::weights(&hoisted);
        assert!(found.iter().all(|weight| weight.place.bodies.is_empty()));
        let names: HashSet<&str> = found.iter().map(|weight| weight.name.as_str()).collect();
        assert_eq!(names.len(), 4, "{names:?}");
    }

    #[test]
    fn small_weights_and_returned_ones_stay() {
        let stays = |model: &Model, min_bytes| hoist(model, min_bytes) == *model;
        assert!(stays(&clashing(), 17));
        let returned = || body(&[], |builder| builder.constant(&matrix([1.0, 2.0, 3.0, 4.0])));
        let mut model = branches(returned(), returned());
        // The builder names what a body returns, so the constant itself is what it returns.
        let proto = model.proto().graph.as_ref().unwrap();
        assert_eq!(proto.node[0].attribute[0].g.as_ref().unwrap().node.len(), 1);
        assert!(stays(&model, 1));
        model = samples::model(&["a"], |builder| builder.constant(&matrix([1.0; 4])));
        assert!(stays(&model, 1));
        assert_eq!(hoist_constants(&model, 1), model);
    }

    #[test]
    fn constants_of_the_outermost_graph_keep_their_names() {
        let model = model(&["a"], |builder| {
            let weight = builder.constant(&matrix([1.0, 2.0, 3.0, 4.0]));
            builder.node("Add", &["a", &weight], &[])
        });
        for hoisted in [hoist(&model, 16), hoist_constants(&model, 16)] {
            assert_eq!(hoisted.graph().initializer[0].name, "/Constant_output_0");
            assert_eq!(hoisted.graph().node.len(), 1);
            assert_eq!(model_structure(&hoisted), model_structure(&model));
        }
        assert_eq!(hoist_constants(&clashing(), 1), clashing(), "bodies are left as they are");
    }

    #[test]
    fn typed_data_in_a_body_is_a_weight_like_any_other() {
        let mut model = clashing().into_proto();
        let bodies = &mut model.graph.as_mut().unwrap().node[0].attribute;
        let weight = &mut bodies[0].g.as_mut().unwrap().initializer[0];
        weight.raw_data = None;
        weight.float_data = vec![1.0, 2.0, 3.0, 4.0];
        let model = Model::from_proto(model).unwrap();
        let hoisted = hoist(&model, 16);
        assert!(weights::weights(&hoisted).iter().all(|weight| weight.place.bodies.is_empty()));
        assert_eq!(model_structure(&hoisted), model_structure(&clashing()));
    }

    #[test]
    fn new_names_avoid_every_name_that_is_taken_even_by_what_a_body_is_given() {
        let mut inner = Builder::new("round", 1);
        inner.input("number", holdfast_graph::DataType::I64, &[]);
        let go_on = inner.input("go_on", Bool, &[]);
        inner.input("hoisted_0", F32, &[fixed(2), fixed(2)]);
        let weight = inner.initializer("w", &matrix([1.0, 2.0, 3.0, 4.0]));
        let next = inner.node("Sub", &["hoisted_0", &weight], &[]);
        inner.output("still", &go_on, Bool, &[]);
        inner.output("next", &next, F32, &[fixed(2), fixed(2)]);
        let model = model(&["x"], |builder| {
            let count =
                builder.initializer("hoisted_1", &Tensor::from_slice(&[], &[3i64]).unwrap());
            let body = attribute::graph("body", inner.finish_body());
            builder.node("Loop", &[&count, "", "x"], &[body])
        });
        let hoisted = hoist(&model, 16);
        assert_eq!(model_structure(&hoisted), model_structure(&model));
        assert_eq!(hoisted.graph().initializer[1].name, "hoisted_2");
    }

    #[test]
    fn a_name_that_an_inner_body_defines_anew_is_left_alone() {
        let inner = |weight: [f32; 4]| {
            body(&[], |builder| {
                let weight = builder.initializer("w", &matrix(weight));
                builder.node("Sub", &["x", &weight], &[])
            })
        };
        let uses_outer = || body(&[], |builder| builder.node("Sub", &["x", "w"], &[]));
        let outer = body(&[], |builder| {
            builder.initializer("w", &matrix([1.0, 2.0, 3.0, 4.0]));
            let bodies = [
                attribute::graph("then_branch", inner([5.0, 6.0, 7.0, 8.0])),
                attribute::graph("else_branch", uses_outer()),
            ];
            builder.node("If", &["condition"], &bodies)
        });
        let model = branches(outer, inner([0.0; 4]));
        let hoisted = hoist(&model, 16);
        assert_eq!(model_structure(&hoisted), model_structure(&model));
        assert_eq!(weights::weights(&hoisted).len(), 3);
    }
}
