//! What is imported comes back as it was.

use std::fs;

use holdfast_graph::proto::{DataLocation, ModelProto, StringStringEntryProto, TensorProto};
use holdfast_graph::{DataType, Message, Model, Tensor};
use holdfast_models::ImportOptions;
use holdfast_testkit::synth::{Kind, Options, synth};
use holdfast_testkit::{Builder, attribute, fixed};

use crate::support::{Scene, assert_comes_back, assert_same, matrix, small, weight_ids};

#[test]
fn every_kind_of_model_comes_back_to_the_bit() {
    let scene = Scene::new();
    for kind in Kind::all() {
        for member in synth(kind, &Options::default()).unwrap() {
            let name = format!("{kind}-{}", member.stem);
            let imported = scene.add(&name, &member.model);
            let stored = scene.store.open_graph(&imported.manifest.components[0].graph).unwrap();
            assert_eq!(stored, member.model, "{name}");
        }
    }
    assert!(scene.problems().is_empty());
}

#[test]
fn a_folder_has_components_variants_and_side_files() {
    let scene = Scene::new();
    for (file, seed) in [
        ("onnx/encoder_model.onnx", 1),
        ("onnx/encoder_model_quantized.onnx", 2),
        ("onnx/decoder_model_merged.onnx", 3),
        ("onnx/decoder_model_merged_fp16.onnx", 4),
        ("embed_tokens_q4f16.onnx", 5),
    ] {
        scene.write_model(&format!("whisper/{file}"), &small("bert", seed));
    }
    let side_files = [
        "config.json",
        "tokenizer.json",
        "vocab.txt",
        "chat_template.jinja",
        "1_Pooling/config.json",
    ];
    for file in side_files {
        scene.write(&format!("whisper/{file}"), format!("the content of {file}"));
    }
    for file in ["pytorch_model.bin", "README.md", "onnx/notes.txt", "deep/config.json"] {
        scene.write(&format!("whisper/{file}"), "not a part of the model");
    }
    let manifest = scene.import("whisper").manifest;
    let found: Vec<(&str, &str, &str)> = manifest
        .components
        .iter()
        .map(|c| (c.role.0.as_str(), c.variant.0.as_str(), c.file.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            ("decoder_merged", "fp32", "onnx/decoder_model_merged.onnx"),
            ("decoder_merged", "fp16", "onnx/decoder_model_merged_fp16.onnx"),
            ("encoder", "fp32", "onnx/encoder_model.onnx"),
            ("encoder", "q8", "onnx/encoder_model_quantized.onnx"),
            ("embed_tokens", "q4f16", "embed_tokens_q4f16.onnx"),
        ]
    );
    assert_comes_back(&scene.store, &manifest, &scene.path("whisper"));

    // Without the folder the store still has everything.
    fs::remove_dir_all(scene.path("whisper")).unwrap();
    let manifest = scene.store.model("whisper").unwrap();
    let files = scene.store.files(&manifest).unwrap();
    let mut names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    let mut expected = side_files;
    expected.sort_unstable();
    assert_eq!(names, expected);
    for (name, bytes) in &files {
        assert_eq!(bytes, format!("the content of {name}").as_bytes());
    }
}

#[test]
fn the_only_file_of_a_folder_is_the_model_whatever_its_name() {
    let scene = Scene::new();
    scene.write_model("ocr/PP-OCR_det.onnx", &small("bert", 1));
    assert_eq!(scene.import("ocr").manifest.components[0].role.0, "model");
    scene.write_model("ocr/PP-OCR_rec.onnx", &small("bert", 2));
    let manifest = scene.import("ocr").manifest;
    let roles: Vec<&str> = manifest.components.iter().map(|c| c.role.0.as_str()).collect();
    assert_eq!(roles, ["PP-OCR_det", "PP-OCR_rec"]);
}

#[test]
fn weights_in_files_beside_the_model_are_taken_along() {
    let scene = Scene::new();
    let model = small("bert", 1);
    write_external(&scene, "big/onnx", &model);
    let read = Model::open(scene.path("big/onnx/model.onnx")).unwrap();
    let manifest = scene.import("big").manifest;
    let stored = scene.store.open_graph(&manifest.components[0].graph).unwrap();
    assert_eq!(stored, read);
    assert_same(&stored, &model, "external");
    // The same weights inside the file are the same in the store.
    let inside = scene.add("inside", &model);
    assert_eq!(inside.written.bytes, 0);
    fs::remove_dir_all(scene.path("big")).unwrap();
    assert_same(&scene.store.open_graph(&manifest.components[0].graph).unwrap(), &model, "alone");
}

#[test]
fn a_missing_or_short_external_file_is_an_error_that_names_it() {
    let scene = Scene::new();
    write_external(&scene, "big/onnx", &small("bert", 1));
    let data = scene.path("big/onnx/model.onnx_data");
    let whole = fs::read(&data).unwrap();
    fs::write(&data, &whole[..whole.len() - 1]).unwrap();
    let refused = |expected: &str| {
        let error = scene.try_import("big", &ImportOptions::default()).unwrap_err().to_string();
        assert!(error.contains("model.onnx_data") && error.contains(expected), "{error}");
        assert!(scene.files().is_empty());
    };
    refused("beyond the end");
    fs::remove_file(&data).unwrap();
    refused("cannot read");
}

/// Writes a model whose initializers are in `model.onnx_data`.
fn write_external(scene: &Scene, folder: &str, model: &Model) {
    let mut proto: ModelProto = model.proto().clone();
    let mut data = Vec::new();
    for tensor in &mut proto.graph.as_mut().unwrap().initializer {
        let bytes = tensor.raw_data.take().unwrap();
        let entry = |key: &str, value: String| StringStringEntryProto { key: key.into(), value };
        *tensor = TensorProto {
            data_location: DataLocation::External as i32,
            external_data: vec![
                entry("location", "model.onnx_data".to_owned()),
                entry("offset", data.len().to_string()),
                entry("length", bytes.len().to_string()),
            ],
            ..tensor.clone()
        };
        data.extend_from_slice(&bytes);
    }
    scene.write(&format!("{folder}/model.onnx"), proto.encode_to_vec());
    scene.write(&format!("{folder}/model.onnx_data"), data);
}

#[test]
fn weights_in_constants_and_in_bodies_are_weights() {
    let scene = Scene::new();
    let (first, second) = (matrix(16, 32, 0.0), matrix(16, 32, 900.0));
    let model = chooses_between(&first, &second);
    let manifest = scene.add("choice", &model).manifest;
    let graph = &manifest.components[0].graph;
    let stored: Vec<&[usize]> = graph.weights.iter().map(|weight| &weight.dims[..]).collect();
    assert_eq!(stored, [[16, 32], [16, 32], [16, 32]]);
    assert_eq!(scene.store.open_graph(graph).unwrap(), model);

    // As initializers of another model they are not stored again.
    for (name, weight) in [("first", &first), ("second", &second)] {
        assert_eq!(scene.add(name, &crate::support::product(weight)).written.bytes, 0);
    }
}

/// `condition ? x · first : x · second`, the first in an initializer and the second in a
/// `Constant`, both inside `If`; and a `Constant` outside.
fn chooses_between(first: &Tensor, second: &Tensor) -> Model {
    let branch = |weight: &Tensor, constant: bool| {
        let mut body = Builder::new("branch", 1);
        let weight =
            if constant { body.constant(weight) } else { body.initializer("inner", weight) };
        let y = body.node("MatMul", &["x", &weight], &[]);
        body.output("result", &y, DataType::F32, &[fixed(1), fixed(32)]);
        body.finish_body()
    };
    let mut builder = Builder::new("choice", 1);
    let condition = builder.input("condition", DataType::Bool, &[]);
    let x = builder.input("x", DataType::F32, &[fixed(1), fixed(16)]);
    let with = [
        attribute::graph("then_branch", branch(first, false)),
        attribute::graph("else_branch", branch(second, true)),
    ];
    let chosen = builder.node("If", &[&condition], &with);
    let outer = builder.constant(&matrix(16, 32, 5000.0));
    let product = builder.node("MatMul", &[&x, &outer], &[]);
    let y = builder.node("Add", &[&chosen, &product], &[]);
    builder.output("y", &y, DataType::F32, &[fixed(1), fixed(32)]);
    builder.finish().unwrap()
}

#[test]
fn an_import_that_fails_leaves_no_trace() {
    let scene = Scene::new();
    scene.add("there", &small("bert", 1));
    let before = scene.files();
    // The first component is fine and written before the second is looked at.
    scene.write_model("model/decoder_model.onnx", &small("bert", 2));
    scene.write("model/encoder_model.onnx", "no model");
    let error = scene.try_import("model", &ImportOptions::default()).unwrap_err().to_string();
    assert!(error.contains("encoder_model.onnx: not an ONNX model"), "{error}");
    assert_eq!(scene.files(), before);
    // Weights of a model that is there stay, though the failed import wanted them too.
    scene.write_model("model/decoder_model.onnx", &small("bert", 1));
    scene.try_import("model", &ImportOptions::default()).unwrap_err();
    assert_eq!(scene.files(), before);
    assert!(scene.problems().is_empty());
}

#[test]
fn importing_under_the_same_name_replaces() {
    let scene = Scene::new();
    assert!(!scene.add("model-a", &small("bert", 1)).replaced);
    let second = scene.add("model-a", &small("bert", 2));
    assert!(second.replaced);
    let stored = scene.store.model("model-a").unwrap();
    assert_eq!(stored, second.manifest);
    let model = scene.store.open_graph(&stored.components[0].graph).unwrap();
    assert_eq!(weight_ids(&model), weight_ids(&small("bert", 2)));
}
