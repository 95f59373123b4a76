//! Which ways of writing an operator are one structure, and which are not.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod samples;

use holdfast_graph::DataType::F32;
use holdfast_graph::proto::AttributeProto;
use holdfast_graph::{Model, Tensor, common};
use holdfast_testkit::attribute::{float, int, ints, text};
use holdfast_testkit::{Builder, fixed};
use samples::compare::{apply, check_different, check_equal, prints, result};
use samples::{matrix, model, model_at};

fn numbers(values: &[i64]) -> Tensor {
    Tensor::from_slice(&[values.len()], values).unwrap()
}

#[test]
fn only_add_and_mul_commute() {
    for (operator, commutes) in
        [("Add", true), ("Mul", true), ("Sub", false), ("Max", false), ("MatMul", false)]
    {
        let applied = |turned: bool| {
            model(&["a"], |builder| {
                let weight = builder.constant(&matrix([1.0, 2.0, 3.0, 4.0]));
                let (left, right) = if turned { (&*weight, "a") } else { ("a", &*weight) };
                builder.node(operator, &[left, right], &[])
            })
        };
        let (one, other) = (applied(false), applied(true));
        assert_eq!(result(&one) == result(&other), commutes, "{operator}");
    }
}

#[test]
fn versions_of_softmax_are_equal_only_on_the_last_axis() {
    let softmax = |opset, axis: Option<i64>| {
        let axis: Vec<AttributeProto> = axis.map(|axis| int("axis", axis)).into_iter().collect();
        apply(opset, "Softmax", &["a"], &axis)
    };
    // Of a matrix: the last axis is 1, which is the default before 13 and -1 after.
    check_equal(&softmax(11, None), &softmax(17, None));
    check_equal(&softmax(11, Some(-1)), &softmax(17, Some(1)));
    check_different(&softmax(11, Some(0)), &softmax(17, Some(0)));
    check_different(&softmax(17, Some(0)), &softmax(17, None));
    check_equal(&softmax(13, Some(0)), &softmax(17, Some(0)));
}

#[test]
fn axes_as_attribute_equal_axes_as_operand() {
    let operand = |opset, operator: &str, axes: &[i64]| {
        model_at(opset, &["a"], |builder| {
            let axes = builder.constant(&numbers(axes));
            builder.node(operator, &["a", &axes], &[])
        })
    };
    for operator in ["Unsqueeze", "Squeeze", "ReduceSum"] {
        let attribute = apply(11, operator, &["a"], &[ints("axes", &[1])]);
        check_equal(&attribute, &operand(13, operator, &[1]));
        check_different(&attribute, &operand(13, operator, &[0]));
    }
    let attribute = apply(13, "ReduceMean", &["a"], &[ints("axes", &[-1])]);
    check_equal(&attribute, &operand(18, "ReduceMean", &[-1]));
    check_different(&attribute, &apply(13, "ReduceMean", &["a"], &[]));
}

#[test]
fn split_sizes_and_counts_count() {
    let split = |opset, with: &[AttributeProto], outputs| {
        model_at(opset, &["a"], |builder| {
            let parts = builder.node_with_outputs("Split", &["a"], with, outputs);
            builder.node("Concat", &[&parts[0], &parts[1]], &[int("axis", 0)])
        })
    };
    check_equal(&split(13, &[], 2), &split(18, &[int("num_outputs", 2)], 2));
    check_different(&split(13, &[], 2), &split(13, &[], 3));
    check_different(&split(11, &[], 2), &split(11, &[ints("split", &[1, 1])], 2));
}

#[test]
fn what_a_convolution_says_twice_is_dropped() {
    let convolution = |with: &[AttributeProto], kernel: usize| {
        model(&["a"], |builder| {
            let dims = [1, 1, kernel, kernel];
            let weight = Tensor::zeros(F32, &dims).unwrap();
            let weight = builder.initializer("weight", &weight);
            builder.node("Conv", &["a", &weight], with)
        })
    };
    let plain = convolution(&[], 3);
    let spelled = [
        ints("kernel_shape", &[3, 3]),
        ints("strides", &[1, 1]),
        ints("dilations", &[1, 1]),
        ints("pads", &[0, 0, 0, 0]),
        int("group", 1),
        text("auto_pad", "NOTSET"),
    ];
    check_equal(&plain, &convolution(&spelled, 3));
    for other in [
        ints("kernel_shape", &[3, 2]),
        ints("strides", &[1, 2]),
        ints("dilations", &[2, 1]),
        ints("pads", &[0, 0, 0, 1]),
        int("group", 2),
        text("auto_pad", "VALID"),
    ] {
        check_different(&plain, &convolution(&[other], 3));
    }
    check_different(&plain, &convolution(&[], 2));
    // Without a weight to read it from, a kernel says something new.
    let kernel = [ints("kernel_shape", &[3, 3])];
    check_different(&apply(17, "Conv", &["a", "b"], &kernel), &apply(17, "Conv", &["a", "b"], &[]));
}

#[test]
fn defaults_of_gemm_do_not_count_and_other_values_do() {
    let inputs = ["a", "b", "c"];
    let plain = apply(17, "Gemm", &inputs, &[]);
    let spelled = [int("transB", 0), float("beta", 1.0), int("transA", 0), float("alpha", 1.0)];
    check_equal(&plain, &apply(17, "Gemm", &inputs, &spelled));
    check_equal(&plain, &apply(11, "Gemm", &inputs, &[]));
    for other in [int("transA", 1), int("transB", 1), float("alpha", 2.0), float("beta", 0.0)] {
        check_different(&plain, &apply(17, "Gemm", &inputs, &[other]));
    }
}

#[test]
fn turning_all_axes_round_is_what_transpose_does_anyway() {
    let plain = apply(17, "Transpose", &["a"], &[]);
    check_equal(&plain, &apply(17, "Transpose", &["a"], &[ints("perm", &[1, 0])]));
    check_different(&plain, &apply(17, "Transpose", &["a"], &[ints("perm", &[0, 1])]));
}

#[test]
fn an_operator_that_is_not_known_counts_with_its_version_and_all_it_says() {
    let unknown =
        |opset, alpha: f32| apply(opset, "ThresholdedRelu", &["a"], &[float("alpha", alpha)]);
    check_equal(&unknown(17, 1.0), &unknown(17, 1.0));
    check_different(&unknown(17, 1.0), &unknown(16, 1.0));
    check_different(&unknown(17, 1.0), &unknown(17, 2.0));
    check_different(&unknown(17, 1.0), &apply(17, "ThresholdedRelu", &["a"], &[]));
    check_different(
        &apply(17, "Gelu", &["a"], &[]),
        &apply(17, "com.microsoft::Gelu", &["a"], &[]),
    );
}

#[test]
fn the_second_output_is_not_the_first() {
    let part = |number: usize| {
        model(&["a"], |builder| builder.node_with_outputs("Split", &["a"], &[], 2)[number].clone())
    };
    check_different(&part(0), &part(1));
}

#[test]
fn an_output_that_is_left_out_is_no_value() {
    let mut builder = Builder::new("omitted", 1);
    builder.input("a", F32, &[fixed(2), fixed(2)]);
    let values = builder.node_with_outputs("TopK", &["a", "a"], &[], 2);
    builder.output("result", &values[0], F32, &[fixed(2), fixed(2)]);
    let mut proto = builder.finish().unwrap().into_proto();
    proto.graph.as_mut().unwrap().node[0].output[1].clear();
    let model = Model::from_proto(proto).unwrap();
    let prints = prints(&model);
    assert_eq!(prints.get(""), None);
    let found = common((&model, &prints), (&model, &prints));
    assert_eq!(found.values, [("result".to_owned(), "result".to_owned())]);
}
