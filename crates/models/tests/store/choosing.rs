//! Which of a model's variants is taken.

use holdfast_graph::{DataType, Model};
use holdfast_models::{ImportOptions, Manifest};
use holdfast_testkit::{Builder, fixed};

use crate::support::{Scene, halves, matrix, product, small, variant};

fn chosen(manifest: &Manifest, wanted: Option<&str>) -> Vec<String> {
    let wanted = wanted.map(variant);
    let components = manifest.choose(wanted.as_ref());
    components.iter().map(|c| format!("{} {}", c.role, c.variant)).collect()
}

#[test]
fn the_most_faithful_variant_is_taken_unless_one_is_named() {
    let scene = Scene::new();
    for file in ["model_q4", "model_quantized", "model_fp16", "model_bnb4"] {
        scene.write_model(&format!("one/{file}.onnx"), &small("bert", 1));
    }
    let manifest = scene.import("one").manifest;
    let variants: Vec<String> = manifest.variants().iter().map(ToString::to_string).collect();
    assert_eq!(variants, ["fp16", "q8", "q4", "bnb4"]);
    assert_eq!(chosen(&manifest, None), ["model fp16"]);
    assert_eq!(chosen(&manifest, Some("q4")), ["model q4"]);
    assert_eq!(chosen(&manifest, Some("fp32")), ["model fp16"], "what there is not is not taken");
}

#[test]
fn each_role_has_one_component_and_falls_back_by_itself() {
    let scene = Scene::new();
    for file in ["encoder_model", "decoder_model_merged", "decoder_model_merged_q4"] {
        scene.write_model(&format!("two/{file}.onnx"), &small("bert", 1));
    }
    let manifest = scene.import("two").manifest;
    assert_eq!(chosen(&manifest, None), ["decoder_merged fp32", "encoder fp32"]);
    assert_eq!(chosen(&manifest, Some("q4")), ["decoder_merged q4", "encoder fp32"]);
}

#[test]
fn only_the_variant_that_was_asked_for_is_imported() {
    let scene = Scene::new();
    scene.write_model("one/model.onnx", &small("bert", 1));
    scene.write_model("one/model_fp16.onnx", &small("bert", 2));
    let options = ImportOptions { variant: Some(variant("fp16")), ..Default::default() };
    let manifest = scene.try_import("one", &options).unwrap().manifest;
    assert_eq!(chosen(&manifest, None), ["model fp16"]);
}

#[test]
fn a_name_that_says_nothing_leaves_it_to_the_weights_and_operators() {
    let scene = Scene::new();
    let check = |name: &str, model: &Model, expected: &str| {
        assert_eq!(scene.add(name, model).manifest.components[0].variant.0, expected, "{name}");
    };
    check("floats", &product(&matrix(16, 16, 1.0)), "fp32");
    check("halves", &product(&halves(32, 32)), "fp16");
    check("quantized", &quantized(), "q8");
    // A name that says something is believed.
    check("named_q4f16", &product(&matrix(16, 16, 1.0)), "q4f16");
}

fn quantized() -> Model {
    let mut builder = Builder::new("quantized", 1);
    let x = builder.input("x", DataType::U8, &[fixed(1), fixed(16)]);
    let weight = holdfast_graph::Tensor::zeros(DataType::U8, &[16, 16]).unwrap();
    let weight = builder.initializer("weight", &weight);
    let y = builder.node("MatMulInteger", &[&x, &weight], &[]);
    builder.output("y", &y, DataType::I32, &[fixed(1), fixed(16)]);
    builder.finish().unwrap()
}
