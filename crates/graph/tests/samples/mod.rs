//! Small models by hand, for what random graphs do not have: bodies, functions, strings.
#![allow(dead_code, reason = "each test program uses its own part")]
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

pub(crate) mod compare;

use bytes::Bytes;
use holdfast_graph::DataType::{Bool, F32, I64};
use holdfast_graph::proto::{
    FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, SparseTensorProto,
    StringStringEntryProto, TensorProto, ValueInfoProto,
};
use holdfast_graph::{DataType, Model, Tensor};
use holdfast_testkit::random::{self, transform};
use holdfast_testkit::{Architecture, Builder, Recipe, Size, attribute, fixed};

/// A model over inputs of 2 × 2 numbers that returns what `build` makes of them.
pub(crate) fn model(inputs: &[&str], build: impl FnOnce(&mut Builder) -> String) -> Model {
    model_at(17, inputs, build)
}

/// The same for another version of the operators.
pub(crate) fn model_at(
    opset: i64,
    inputs: &[&str],
    build: impl FnOnce(&mut Builder) -> String,
) -> Model {
    let typed: Vec<(&str, DataType)> = inputs.iter().map(|&name| (name, F32)).collect();
    typed_model(opset, &typed, build)
}

/// The same for inputs of any type.
pub(crate) fn typed_model(
    opset: i64,
    inputs: &[(&str, DataType)],
    build: impl FnOnce(&mut Builder) -> String,
) -> Model {
    let mut builder = Builder::new("sample", 1).opset(opset).domain("com.microsoft", 1);
    for (name, dtype) in inputs {
        builder.input(name, *dtype, &[fixed(2), fixed(2)]);
    }
    let result = build(&mut builder);
    builder.output("result", &result, F32, &[fixed(2), fixed(2)]);
    builder.finish().unwrap()
}

/// A 2 × 2 matrix.
pub(crate) fn matrix(values: [f32; 4]) -> Tensor {
    Tensor::from_slice(&[2, 2], &values).unwrap()
}

/// A body that returns what `build` makes. Its inputs, if any, are numbers.
pub(crate) fn body(inputs: &[&str], build: impl FnOnce(&mut Builder) -> String) -> GraphProto {
    let mut builder = Builder::new("body", 1);
    for name in inputs {
        builder.input(name, F32, &[fixed(2), fixed(2)]);
    }
    let result = build(&mut builder);
    builder.output("returned", &result, F32, &[fixed(2), fixed(2)]);
    builder.finish_body()
}

/// `condition ? yes : no`, where both can see the inputs `x` and `y`.
pub(crate) fn branches(yes: GraphProto, no: GraphProto) -> Model {
    let mut builder = Builder::new("branches", 1);
    let condition = builder.input("condition", Bool, &[]);
    builder.input("x", F32, &[fixed(2), fixed(2)]);
    builder.input("y", F32, &[fixed(2), fixed(2)]);
    let bodies = [attribute::graph("then_branch", yes), attribute::graph("else_branch", no)];
    let result = builder.node("If", &[&condition], &bodies);
    builder.output("result", &result, F32, &[fixed(2), fixed(2)]);
    builder.finish().unwrap()
}

/// Three rounds of `step(state, x)`, the state starting as `y`.
pub(crate) fn rounds(step: impl FnOnce(&mut Builder) -> String) -> Model {
    let mut inner = Builder::new("round", 1);
    inner.input("number", I64, &[]);
    let go_on = inner.input("go_on", Bool, &[]);
    inner.input("state", F32, &[fixed(2), fixed(2)]);
    let next = step(&mut inner);
    inner.output("still", &go_on, Bool, &[]);
    inner.output("next", &next, F32, &[fixed(2), fixed(2)]);
    model(&["x", "y"], |builder| {
        let count = builder.initializer("count", &Tensor::from_slice(&[], &[3i64]).unwrap());
        let body = attribute::graph("body", inner.finish_body());
        builder.node("Loop", &[&count, "", "y"], &[body])
    })
}

/// One model with everything that a file may have: a loop around a branch around a weight, a
/// function, strings, a sparse weight, typed data fields, notes.
pub(crate) fn with_everything() -> Model {
    let inner = body(&[], |builder| {
        let weight = builder.constant(&matrix([1.0, 2.0, 3.0, 4.0]));
        builder.node("Add", &["state", &weight], &[])
    });
    let other = body(&[], |builder| builder.node("Mul", &["state", "x"], &[]));
    let model = rounds(|builder| {
        let bodies =
            [attribute::graph("then_branch", inner), attribute::graph("else_branch", other)];
        builder.node("If", &["go_on"], &bodies)
    });
    let mut proto: ModelProto = model.into_proto();
    proto.opset_import.push(OperatorSetIdProto { domain: "local".into(), version: 1 });
    proto.functions = vec![doubling()];
    let note = StringStringEntryProto { key: "author".into(), value: "nobody".into() };
    proto.metadata_props = vec![note.clone()];
    let graph = proto.graph.as_mut().unwrap();
    graph.metadata_props = vec![note];
    graph.node.push(NodeProto {
        input: vec!["result".into()],
        output: vec!["doubled".into()],
        op_type: "Double".into(),
        domain: "local".into(),
        ..NodeProto::default()
    });
    graph.initializer.push(TensorProto {
        name: "names".into(),
        dims: vec![2],
        data_type: DataType::String.to_onnx(),
        string_data: vec![Bytes::from_static(b"one"), Bytes::from_static(b"two")],
        ..TensorProto::default()
    });
    graph.initializer.push(TensorProto {
        name: "typed".into(),
        dims: vec![2, 2],
        data_type: F32.to_onnx(),
        float_data: vec![1.0, 0.5, 0.25, 0.125],
        ..TensorProto::default()
    });
    graph.sparse_initializer.push(SparseTensorProto {
        values: Some(Tensor::from_slice(&[1], &[5.0f32]).unwrap().to_proto("sparse")),
        indices: Some(Tensor::from_slice(&[1], &[3i64]).unwrap().to_proto("")),
        dims: vec![2, 2],
    });
    for (left, right, sum) in [("doubled", "typed", "sum"), ("sum", "sparse", "total")] {
        graph.node.push(NodeProto {
            input: vec![left.into(), right.into()],
            output: vec![sum.into()],
            op_type: "Add".into(),
            ..NodeProto::default()
        });
    }
    graph.output = vec![ValueInfoProto { name: "total".into(), ..graph.output[0].clone() }];
    Model::from_proto(proto).unwrap()
}

/// `local::Double`.
fn doubling() -> FunctionProto {
    FunctionProto {
        name: "Double".into(),
        domain: "local".into(),
        input: vec!["v".into()],
        output: vec!["w".into()],
        node: vec![NodeProto {
            input: vec!["v".into(), "v".into()],
            output: vec!["w".into()],
            op_type: "Add".into(),
            ..NodeProto::default()
        }],
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 17 }],
        ..FunctionProto::default()
    }
}

/// Every architecture of the testkit, a few kilobytes each.
pub(crate) fn architectures() -> Vec<Model> {
    let size = Size {
        layers: 1,
        hidden: 8,
        heads: 2,
        key_value_heads: 1,
        intermediate: 8,
        vocabulary: 8,
        positions: 8,
        image: 8,
        patch: 4,
    };
    let recipe = Recipe { size, ..Recipe::tiny(1) };
    let members = Architecture::ALL.into_iter().flat_map(|kind| kind.build(&recipe).unwrap());
    members.map(|member| member.model).collect()
}

/// Small models of every kind that the testkit makes.
pub(crate) fn models() -> Vec<Model> {
    let mut models: Vec<Model> = (0..40).map(random::graph).collect();
    models.extend((0..20).map(|seed| transform::disguise(&random::graph(seed), seed).0));
    models.extend(architectures());
    models.push(with_everything());
    models
}
