//! Wrong input gets one clear sentence and a hint.

use crate::run::scene_with_classifiers;
use crate::support::{Scene, check, small};

#[test]
fn unknown_models_are_answered_with_the_nearest_names() {
    let scene = Scene::new();
    check!(scene, scene.fails(1, &["run", "mini", "--text", "a"]), @"");
    let model = scene.write_model("model.onnx", &small("bert", 1));
    for name in ["all-MiniLM-L6-v2", "all-mpnet-base", "whisper-tiny"] {
        scene.ok(&["import", model.to_str().unwrap(), "--name", name]);
    }
    check!(scene, scene.fails(1, &["show", "all-minilm-l6"]), @"");
    check!(scene, scene.fails(1, &["show", "Xenova/all-MiniLM-L6-v2"]), @"");
    check!(scene, scene.fails(1, &["rm", "whisper"]), @"");
    check!(scene, scene.fails(1, &["verify", "zzz"]), @"");
    check!(scene, scene.fails(1, &["run", "all-", "--text", "a"]), @"");
}

#[test]
fn files_that_are_no_models_are_refused() {
    let scene = Scene::new();
    scene.write("text.onnx", "this is no model\n");
    scene.write("empty.onnx", "");
    scene.write("folder/readme.txt", "nothing here");
    scene.write_model("whole.onnx", &small("bert", 1));
    let whole = std::fs::read(scene.path("whole.onnx")).unwrap();
    scene.write("cut.onnx", &whole[..whole.len() / 2]);
    check!(scene, scene.fails(1, &["import", "text.onnx"]), @"");
    check!(scene, scene.fails(1, &["import", "empty.onnx"]), @"");
    check!(scene, scene.fails(1, &["import", "cut.onnx"]), @"");
    scene.write("pointer.onnx", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
    check!(scene, scene.fails(1, &["import", "pointer.onnx"]), @"");
    check!(scene, scene.fails(1, &["import", "folder"]), @"");
    check!(scene, scene.fails(1, &["import", "absent"]), @"");
    check!(scene, scene.fails(1, &["import", "whole.onnx", "--name", "a/b"]), @"");
    check!(scene, scene.fails(1, &["import", "whole.onnx", "--variant", "q4"]), @"");
    scene.write("two/model.onnx", &whole);
    scene.write("two/onnx/model.onnx", &whole);
    check!(scene, scene.fails(1, &["import", "two"]), @"");
    assert!(scene.files_in("blobs").is_empty());
    assert!(scene.files_in("models").is_empty());
}

#[test]
fn unknown_variants_and_components_are_answered_with_the_known_ones() {
    let scene = scene_with_classifiers();
    let text = ["--text", "a"];
    let run = |more: &[&str]| {
        let all: Vec<&str> = ["run", "first"].iter().chain(&text).chain(more).copied().collect();
        scene.fails(1, &all)
    };
    check!(scene, run(&["--variant", "q4"]), @"");
    check!(scene, run(&["--component", "decoder"]), @"");
    check!(scene, run(&["--pool", "sum"]), @"");

    for file in ["encoder_model.onnx", "decoder_model.onnx"] {
        scene.write_model(&format!("several/{file}"), &small("bert", 1));
    }
    scene.ok(&["import", "several"]);
    check!(scene, scene.fails(1, &["run", "several", "--text", "a"]), @"");
    check!(scene, scene.fails(1, &["run", "several", "--component", "encoder", "--text", "a"]), @"");
}

#[test]
fn a_missing_engine_is_named_with_what_to_do() {
    let scene = scene_with_classifiers();
    let run = ["run", "first", "--text", "a", "--onnxruntime", "/nonexistent"];
    check!(scene, scene.fails(1, &run), @"");
}

#[test]
fn commands_that_are_not_understood_exit_with_2() {
    let scene = Scene::new();
    check!(scene, scene.fails(2, &["improt", "x"]), @"");
    check!(scene, scene.fails(2, &["import"]), @"");
    check!(scene, scene.fails(2, &["run", "m", "--device", "gpu"]), @"");
    check!(scene, scene.fails(2, &["show", "m", "--dim", "batch"]), @"");
    check!(scene, scene.fails(2, &["run", "m", "--repeat", "0"]), @"");
    check!(scene, scene.fails(2, &["completions", "csh"]), @"");
}
