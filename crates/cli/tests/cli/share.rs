//! share: what models have in common, what that saves, and why the rest is not shared.

use std::fs;

use holdfast_graph::{DataType, Model, Tensor};
use holdfast_testkit::{Builder, Size, fixed};

use crate::support::{Scene, check, keys, made};

/// A store with two models on one trunk that is worth sharing.
fn scene(seeds: [u64; 2]) -> Scene {
    let scene = Scene::new();
    for (position, (name, seed)) in ["first", "second"].into_iter().zip(seeds).enumerate() {
        let model = made("heads", seed, Size::new(2, 64)).swap_remove(position);
        scene.write_model(&format!("{name}.onnx"), &model);
        scene.ok(&["import", &format!("{name}.onnx")]);
    }
    scene
}

#[test]
fn what_is_shared_and_what_it_saves_is_said() {
    let scene = scene([1, 1]);
    check!(scene, scene.ok(&["share", "first", "second", "--dot", "plan.dot", "--svg", "plan.svg"]), @r#"
    2 graphs for cpu at batch=1, sequence=128

    trunk 1: 71 nodes, 34.8 MFLOP, 8.3 MB of weights
      used by first, second
      passes on /encoder/layer.1/output/LayerNorm/LayerNormalization_output_0, 32.8 kB

    first: trunk 1, then a head of 3 nodes, 8.5 kFLOP, 17.2 kB of weights
    second: trunk 1, then a head of 2 nodes, 49.5 kFLOP, 780 B of weights

    weights: 8.4 MB instead of 16.7 MB
    one input through all of them: 34.8 MFLOP instead of 69.6 MFLOP

    why the rest is not shared
      first and second part at node `/Gather` (Gather): the other model goes on with node `/classifier/MatMul` (MatMul)
      second and first part at node `/classifier/MatMul` (MatMul): the other model goes on with node `/Gather` (Gather)
    "#);
    let dot = fs::read_to_string(scene.path("plan.dot")).unwrap();
    assert!(dot.starts_with("digraph plan {") && dot.contains("first"), "{dot}");
    let svg = fs::read_to_string(scene.path("plan.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("trunk 1 of 2 models"), "{svg}");
}

/// `y = x · weight`.
fn product(weight: &Tensor) -> Model {
    let mut builder = Builder::new("product", 1);
    builder.input("x", DataType::F32, &[fixed(1), fixed(weight.dims()[0])]);
    let weight_name = builder.initializer("embedding.weight", weight);
    let y = builder.node("MatMul", &["x", &weight_name], &[]);
    builder.output("y", &y, DataType::F32, &[fixed(1), fixed(weight.dims()[1])]);
    builder.finish().unwrap()
}

#[test]
fn an_embedding_that_another_model_has_transposed_is_said_and_one_of_other_numbers_is_not() {
    let scene = Scene::new();
    let tensor = |dims: [usize; 2], of: &dyn Fn(usize, usize) -> usize| {
        let at = (0..dims[0]).flat_map(|row| (0..dims[1]).map(move |column| (row, column)));
        let values: Vec<f32> = at.map(|(row, column)| of(row, column) as f32).collect();
        Tensor::from_slice(&dims, &values).unwrap()
    };
    let models = [
        ("plain", product(&tensor([16, 32], &|row, column| row * 32 + column))),
        ("turned", product(&tensor([32, 16], &|row, column| column * 32 + row))),
        ("other", product(&tensor([32, 16], &|row, column| row * 16 + column))),
    ];
    for (name, model) in &models {
        scene.write_model(&format!("{name}.onnx"), model);
        scene.ok(&["import", &format!("{name}.onnx")]);
    }
    let said = scene.ok(&["share", "plain", "turned"]);
    assert!(said.contains("the same numbers transposed, held by each"), "{said}");
    assert!(said.contains("turned has 1 weight of plain the other way round, 2.0 kB"), "{said}");
    let told = scene.json(&["share", "plain", "turned"]);
    assert_eq!(told["transposed"][0]["other"], "plain");
    assert_eq!(told["transposed"][0]["bytes"], 2048);
    assert!(!scene.ok(&["share", "plain", "other"]).contains("transposed"));
}

#[test]
fn weights_in_common_without_a_trunk_are_said() {
    let scene = Scene::new();
    for (name, model) in ["first", "second"].into_iter().zip(made("adapters", 1, Size::new(2, 64)))
    {
        scene.write_model(&format!("{name}.onnx"), &model);
        scene.ok(&["import", &format!("{name}.onnx")]);
    }
    check!(scene, scene.ok(&["share", "first", "second"]), @r#"
    2 graphs for cpu at batch=1, sequence=128

    trunk 1: 23 nodes, 3.2 MFLOP, 8.0 MB of weights
      used by first, second
      passes on /Mul_output_0, 512 B
      passes on /embeddings/LayerNorm/LayerNormalization_output_0, 32.8 kB
      passes on /encoder/layer.0/attention/Transpose_output_0, 32.8 kB
      passes on /encoder/layer.0/attention/self/query/Add_output_0, 32.8 kB
      passes on /encoder/layer.0/attention/self/value/Add_output_0, 32.8 kB

    first: trunk 1, then a head of 60 nodes, 32.6 MFLOP, 366.5 kB of weights
    second: trunk 1, then a head of 60 nodes, 32.6 MFLOP, 366.5 kB of weights

    weights: 8.7 MB instead of 16.7 MB
    one input through all of them: 68.4 MFLOP instead of 71.7 MFLOP

    weights in common without a common trunk
      first, second: 11 weights, 346.1 kB
      the engine holds each once: 8.4 MB in all instead of 16.7 MB

    why the rest is not shared
      first and second part at node `/encoder/layer.0/attention/self/query/MatMul_1` (MatMul): its weight `encoder.layer.0.attention.self.query.lora_A.weight` is not the other model's `encoder.layer.0.attention.self.query.lora_A.weight`
      first and second part at node `/encoder/layer.0/attention/self/value/MatMul_1` (MatMul): its weight `encoder.layer.0.attention.self.value.lora_A.weight` is not the other model's `encoder.layer.0.attention.self.query.lora_A.weight`
      second and first part at node `/encoder/layer.0/attention/self/query/MatMul_1` (MatMul): its weight `encoder.layer.0.attention.self.query.lora_A.weight` is not the other model's `encoder.layer.0.attention.self.query.lora_A.weight`
      second and first part at node `/encoder/layer.0/attention/self/value/MatMul_1` (MatMul): its weight `encoder.layer.0.attention.self.value.lora_A.weight` is not the other model's `encoder.layer.0.attention.self.query.lora_A.weight`
    "#);
    let plan = scene.json(&["share", "first", "second"]);
    let group = &plan["weights_without_trunk"][0];
    assert_eq!(group["models"], serde_json::json!(["first", "second"]));
    assert_eq!(group["weights"], 11);
    // What holds on the processor need not hold elsewhere.
    for (target, how) in [
        ("wasm", "a lane holds each once where the models fit into one graph"),
        ("webgpu", "a lane holds each once, in a buffer that all are fed from"),
        ("webnn", "WebNN has no way to hold them once"),
    ] {
        let said = scene.ok(&["share", "first", "second", "--target", target]);
        assert!(said.contains(how) && !said.contains("the engine holds"), "{target}: {said}");
    }
}

#[test]
fn a_picture_that_cannot_be_written_is_an_error() {
    let scene = scene([1, 1]);
    let said = scene.fails(1, &["share", "first", "second", "--svg", "missing/plan.svg"]);
    assert!(said.contains("cannot write missing/plan.svg"), "{said}");
}

#[test]
fn json_has_the_plan() {
    let scene = scene([1, 1]);
    let plan = scene.json(&["share", "first", "second", "--target", "wasm"]);
    assert_eq!(
        keys(&plan),
        [
            "target",
            "plan",
            "shares",
            "flops",
            "flops_apart",
            "weight_bytes",
            "weight_bytes_apart",
            "segments",
            "models",
            "differences",
            "transposed",
            "weights_without_trunk"
        ]
    );
    assert_eq!(plan["shares"], true);
    let trunk = &plan["segments"][0];
    assert_eq!(trunk["kind"], "trunk");
    assert_eq!(trunk["models"], serde_json::json!(["first", "second"]));
    assert_eq!(plan["weights_without_trunk"], serde_json::json!([]));
    assert!(plan["weight_bytes"].as_u64() < plan["weight_bytes_apart"].as_u64());
}

#[test]
fn models_of_other_weights_have_nothing_in_common() {
    let scene = scene([1, 2]);
    let said = scene.ok(&["share", "first", "second"]);
    assert!(said.contains("they compute nothing alike that is worth sharing"), "{said}");
    assert!(said.contains("is not the other model's"), "{said}");
}

#[test]
fn one_model_or_an_unknown_one_is_refused() {
    let scene = scene([1, 1]);
    assert!(scene.fails(2, &["share", "first"]).contains("2 values required"));
    assert!(scene.fails(1, &["share", "first", "third"]).contains("third"));
}
