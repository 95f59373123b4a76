//! What a structure takes for equal and what not, case by case.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod samples;

use holdfast_graph::DataType::{self, F32, I32, I64};
use holdfast_graph::proto::{AttributeProto, GraphProto, ModelProto, NodeProto};
use holdfast_graph::{Common, Model, Tensor, common};
use holdfast_testkit::attribute::{float, floats, graph, int, tensor};
use holdfast_testkit::{Builder, fixed};
use samples::compare::{apply, check_different, check_equal, prints, result};
use samples::{body, branches, matrix, model, rounds, typed_model};

/// What is bound to what, as positions among the inputs.
fn binding(left: &Model, right: &Model) -> Vec<(usize, usize)> {
    let Common { binding, .. } = common((left, &prints(left)), (right, &prints(right)));
    binding.into_iter().map(|(left, right)| (left.input, right.input)).collect()
}

mod inputs {
    use super::*;

    #[test]
    fn sub_either_way_round_is_one_structure_with_swapped_bindings() {
        let straight = model(&["a", "b"], |builder| builder.node("Sub", &["a", "b"], &[]));
        let swapped = model(&["a", "b"], |builder| builder.node("Sub", &["b", "a"], &[]));
        check_equal(&straight, &swapped);
        assert_eq!(binding(&straight, &straight), [(0, 0), (1, 1)]);
        assert_eq!(binding(&straight, &swapped), [(0, 1), (1, 0)]);
    }

    #[test]
    fn one_input_used_twice_differs_from_two() {
        check_different(&apply(17, "Sub", &["a", "a"], &[]), &apply(17, "Sub", &["a", "b"], &[]));
        let deeper = |last: &str| {
            model(&["a", "b", "c"], |builder| {
                let sum = builder.node("Add", &["a", "b"], &[]);
                let turned = builder.node("Neg", &[last], &[]);
                builder.node("MatMul", &[&sum, &turned], &[])
            })
        };
        check_different(&deeper("a"), &deeper("c"));
    }

    #[test]
    fn the_type_of_an_input_counts_and_its_shape_does_not() {
        let typed = |dtype| typed_model(17, &[("a", dtype)], |b| b.node("Neg", &["a"], &[]));
        check_different(&typed(F32), &typed(DataType::F64));
        let shaped = |size| {
            let mut builder = Builder::new("shaped", 1);
            builder.input("a", F32, &[fixed(size)]);
            let negative = builder.node("Neg", &["a"], &[]);
            builder.output("result", &negative, F32, &[fixed(size)]);
            builder.finish().unwrap()
        };
        check_equal(&shaped(2), &shaped(5));
    }

    #[test]
    fn a_cast_between_integers_on_a_leaf_goes_to_the_binding() {
        let wide = typed_model(17, &[("ids", I64)], |b| b.node("Neg", &["ids"], &[]));
        let narrow = typed_model(17, &[("ids", I32)], |builder| {
            let cast = builder.node("Cast", &["ids"], &[int("to", 7)]);
            builder.node("Neg", &[&cast], &[])
        });
        check_equal(&wide, &narrow);
        assert!(result(&wide).leaves[0].casts.is_empty());
        assert_eq!(result(&narrow).leaves[0].casts, [I64]);

        let as_it_is = typed_model(17, &[("ids", I32)], |b| b.node("Neg", &["ids"], &[]));
        check_different(&wide, &as_it_is);
    }

    #[test]
    fn a_cast_that_loses_something_is_never_dropped() {
        let casts = |from: DataType, to: &[DataType]| {
            typed_model(17, &[("ids", from)], |builder| {
                let last = to.iter().fold("ids".to_owned(), |value, to| {
                    builder.node("Cast", &[&value], &[int("to", i64::from(to.to_onnx()))])
                });
                builder.node("Neg", &[&last], &[])
            })
        };
        let leaf = |model: &Model| result(model).leaves[0].casts.clone();
        assert_eq!(leaf(&casts(I32, &[I64, I32])), [], "there and back");
        assert_eq!(leaf(&casts(I64, &[I32, I64])), [I32, I64], "narrowed on the way");
        assert_eq!(leaf(&casts(I64, &[I64])), [], "to what it is");
        // Only integers are ids: any other cast is an operator.
        check_different(&casts(I64, &[F32]), &casts(F32, &[]));
        // And only on a leaf.
        let inside = typed_model(17, &[("ids", I32)], |builder| {
            let negative = builder.node("Neg", &["ids"], &[]);
            let cast = builder.node("Cast", &[&negative], &[int("to", 7)]);
            builder.node("Neg", &[&cast], &[])
        });
        let plain = typed_model(17, &[("ids", I64)], |builder| {
            let negative = builder.node("Neg", &["ids"], &[]);
            builder.node("Neg", &[&negative], &[])
        });
        check_different(&inside, &plain);
    }

    #[test]
    fn operands_that_are_left_out_keep_their_place() {
        let last = apply(17, "Clip", &["a", "", "b"], &[]);
        let middle = apply(17, "Clip", &["a", "b"], &[]);
        check_different(&last, &middle);
        check_equal(&middle, &apply(17, "Clip", &["a", "b", ""], &[]));
    }
}

mod weights {
    use super::*;

    #[test]
    fn a_constant_in_any_form_is_the_same_weight() {
        let constant = |value: AttributeProto| {
            model(&["a"], |builder| {
                let weight = builder.node("Constant", &[], &[value]);
                builder.node("Add", &["a", &weight], &[])
            })
        };
        let scalar = Tensor::from_slice(&[], &[1.5f32]).unwrap();
        check_equal(&constant(tensor("value", &scalar)), &constant(float("value_float", 1.5)));
        let list = Tensor::from_slice(&[2], &[1.0f32, 2.0]).unwrap();
        check_equal(
            &constant(tensor("value", &list)),
            &constant(floats("value_floats", &[1.0, 2.0])),
        );
        check_different(&constant(tensor("value", &scalar)), &constant(tensor("value", &list)));
    }

    #[test]
    fn type_and_shape_of_a_weight_count_like_its_bytes() {
        let with = |tensor: Tensor| {
            model(&["a"], |builder| {
                let weight = builder.initializer("w", &tensor);
                builder.node("Add", &["a", &weight], &[])
            })
        };
        let zeros = |dtype, dims: &[usize]| with(Tensor::zeros(dtype, dims).unwrap());
        check_different(&zeros(F32, &[2, 2]), &zeros(I32, &[2, 2]));
        check_different(&zeros(F32, &[2, 2]), &zeros(F32, &[4, 1]));
        check_different(&zeros(F32, &[2, 2]), &with(matrix([0.0, 0.0, 0.0, -0.0])));
    }

    /// A value that depends on strings, which are no weights, as initializer or constant.
    fn strings(words: [&'static str; 2], name: &str, initializer: bool) -> Model {
        let mut proto = model(&["a"], |b| b.node("Relu", &["a"], &[])).into_proto();
        let words = holdfast_graph::proto::TensorProto {
            name: name.to_owned(),
            doc_string: format!("about {name}"),
            dims: vec![2],
            data_type: DataType::String.to_onnx(),
            string_data: words.map(bytes::Bytes::from).to_vec(),
            ..Default::default()
        };
        let graph = proto.graph.as_mut().unwrap();
        graph.node[0].input.push(name.to_owned());
        if initializer {
            graph.initializer.push(words);
        } else {
            let value = AttributeProto {
                name: "value".to_owned(),
                t: Some(Box::new(words)),
                r#type: 4,
                ..Default::default()
            };
            graph.node.insert(
                0,
                NodeProto {
                    output: vec![name.to_owned()],
                    op_type: "Constant".to_owned(),
                    attribute: vec![value],
                    ..Default::default()
                },
            );
        }
        Model::from_proto(proto).unwrap()
    }

    #[test]
    fn strings_count_by_what_they_say() {
        let one = strings(["x", "y"], "words", true);
        check_equal(&one, &strings(["x", "y"], "other", true));
        check_equal(&one, &strings(["x", "y"], "other", false));
        check_different(&one, &strings(["x", "z"], "words", true));
        check_different(&one, &strings(["xy", ""], "words", false));
    }
}

mod chance {
    use super::*;

    #[test]
    fn what_depends_on_chance_equals_nothing_not_even_itself() {
        for operator in ["RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"] {
            let load = || {
                model(&["a"], |builder| {
                    let noise = builder.node(operator, &["a"], &[float("seed", 1.0)]);
                    builder.node("Add", &["a", &noise], &[])
                })
            };
            let (one, other) = (load(), load());
            assert_eq!(prints(&one).get("result"), None, "{operator}");
            assert_eq!(prints(&one).model(), None);
            assert_eq!(common((&one, &prints(&one)), (&other, &prints(&other))), Common::default());
        }
    }

    #[test]
    fn what_does_not_depend_on_it_still_matches() {
        let noisy = model(&["a"], |builder| {
            let calm = builder.node("Relu", &["a"], &[]);
            let noise = builder.node("RandomNormalLike", &["a"], &[]);
            builder.node("Add", &[&calm, &noise], &[])
        });
        let quiet = model(&["a"], |builder| builder.node("Relu", &["a"], &[]));
        let found = common((&noisy, &prints(&noisy)), (&quiet, &prints(&quiet)));
        assert_eq!(found.values, [("/Relu_output_0".to_owned(), "result".to_owned())]);
    }

    #[test]
    fn dropout_is_chance_only_where_training_is_switched_on() {
        assert!(prints(&apply(17, "Dropout", &["a"], &[])).model().is_some());
        assert!(prints(&apply(17, "Dropout", &["a", "", "b"], &[])).model().is_none());
    }

    #[test]
    fn chance_inside_a_body_or_a_function_counts() {
        let noise = || body(&[], |builder| builder.node("RandomNormalLike", &["x"], &[]));
        let calm = || body(&[], |builder| builder.node("Relu", &["x"], &[]));
        assert!(prints(&branches(calm(), calm())).model().is_some());
        assert!(prints(&branches(calm(), noise())).model().is_none());

        let mut proto: ModelProto = samples::with_everything().into_proto();
        assert!(prints(&Model::from_proto(proto.clone()).unwrap()).model().is_some());
        proto.functions[0].node[0].op_type = "RandomNormalLike".to_owned();
        assert!(prints(&Model::from_proto(proto).unwrap()).model().is_none());
    }
}

mod functions {
    use super::*;

    #[test]
    fn a_function_of_the_model_counts_by_its_definition() {
        let one = samples::with_everything();
        let mut proto = one.clone().into_proto();
        proto.functions[0].node[0].op_type = "Mul".to_owned();
        assert_ne!(prints(&one).model(), prints(&Model::from_proto(proto).unwrap()).model());
    }

    #[test]
    fn a_function_is_not_the_standard_operator_of_its_name() {
        let standard = model(&["a"], |builder| {
            let weight = builder.constant(&matrix([1.0; 4]));
            builder.node("Add", &["a", &weight], &[])
        });
        let own = |turned: bool| {
            let mut proto = standard.clone().into_proto();
            let function = samples::with_everything().proto().functions[0].clone();
            proto.functions.push(holdfast_graph::proto::FunctionProto {
                name: "Add".to_owned(),
                domain: String::new(),
                ..function
            });
            if turned {
                proto.graph.as_mut().unwrap().node[1].input.reverse();
            }
            Model::from_proto(proto).unwrap()
        };
        check_different(&standard, &own(false));
        check_different(&own(false), &own(true));
    }
}

mod bodies {
    use super::*;

    fn unary(operator: &'static str, of: &'static str) -> GraphProto {
        body(&[], |builder| builder.node(operator, &[of], &[]))
    }

    #[test]
    fn both_branches_count_and_so_does_which_is_which() {
        let one = branches(unary("Relu", "x"), unary("Neg", "x"));
        check_equal(&one, &branches(unary("Relu", "x"), unary("Neg", "x")));
        check_different(&one, &branches(unary("Neg", "x"), unary("Relu", "x")));
        check_different(&one, &branches(unary("Relu", "x"), unary("Abs", "x")));
        check_different(&one, &branches(unary("Abs", "x"), unary("Neg", "x")));
    }

    #[test]
    fn what_a_body_captures_counts() {
        let same = branches(unary("Relu", "x"), unary("Neg", "x"));
        let mixed = branches(unary("Relu", "x"), unary("Neg", "y"));
        check_different(&same, &mixed);
        let other = branches(unary("Relu", "y"), unary("Neg", "x"));
        check_equal(&mixed, &other);
        let bound = binding(&mixed, &other);
        assert!(bound.contains(&(1, 2)) && bound.contains(&(2, 1)), "{bound:?}");
    }

    #[test]
    fn a_captured_value_counts_by_how_it_is_computed() {
        let captured = |operator: &'static str| {
            let mut builder = Builder::new("captured", 1);
            let condition = builder.input("condition", DataType::Bool, &[]);
            builder.input("x", F32, &[fixed(2), fixed(2)]);
            let outside = builder.node(operator, &["x"], &[]);
            let yes = body(&[], |builder| builder.node("Relu", &[&outside], &[]));
            let bodies = [graph("then_branch", yes), graph("else_branch", unary("Neg", "x"))];
            let chosen = builder.node("If", &[&condition], &bodies);
            builder.output("result", &chosen, F32, &[fixed(2), fixed(2)]);
            builder.finish().unwrap()
        };
        check_equal(&captured("Tanh"), &captured("Tanh"));
        check_different(&captured("Tanh"), &captured("Exp"));
    }

    #[test]
    fn where_a_body_keeps_its_weight_does_not_count() {
        let weight = matrix([1.0, 2.0, 3.0, 4.0]);
        let constant = body(&[], |builder| {
            let weight = builder.constant(&weight);
            builder.node("Add", &["x", &weight], &[])
        });
        let initializer = body(&[], |builder| {
            let weight = builder.initializer("w", &weight);
            builder.node("Add", &["x", &weight], &[])
        });
        let other = body(&[], |builder| {
            let weight = builder.initializer("w", &matrix([1.0, 2.0, 3.0, 5.0]));
            builder.node("Add", &["x", &weight], &[])
        });
        let with = |yes: &GraphProto| branches(yes.clone(), unary("Neg", "x"));
        check_equal(&with(&constant), &with(&initializer));
        check_different(&with(&constant), &with(&other));
    }

    #[test]
    fn the_body_of_a_loop_counts_with_its_captures() {
        let add = |other: &'static str| rounds(move |b| b.node("Sub", &["state", other], &[]));
        check_equal(&add("x"), &add("x"));
        check_different(&add("x"), &add("state"));
        check_different(&add("x"), &add("y"));
        check_different(&add("x"), &rounds(|b| b.node("Sub", &["x", "state"], &[])));
        check_different(&add("x"), &rounds(|b| b.node("Add", &["state", "x"], &[])));
    }
}
