//! Wrong input gets one clear sentence and a hint.

use crate::run::scene_with_classifiers;
use crate::support::{Scene, check, small};

#[test]
fn unknown_models_are_answered_with_the_nearest_names() {
    let scene = Scene::new();
    check!(scene, scene.fails(1, &["run", "mini", "--text", "a"]), @"no model is named `mini`; `holdfast models` lists what there is");
    let model = scene.write_model("model.onnx", &small("bert", 1));
    for name in ["all-MiniLM-L6-v2", "all-mpnet-base", "whisper-tiny"] {
        scene.ok(&["import", model.to_str().unwrap(), "--name", name]);
    }
    check!(scene, scene.fails(1, &["show", "all-minilm-l6"]), @"no model is named `all-minilm-l6`; did you mean one of `all-MiniLM-L6-v2`, `all-mpnet-base`?");
    check!(scene, scene.fails(1, &["show", "Xenova/all-MiniLM-L6-v2"]), @"no model is named `Xenova/all-MiniLM-L6-v2`; did you mean `all-MiniLM-L6-v2`?");
    check!(scene, scene.fails(1, &["rm", "whisper"]), @"no model is named `whisper`; did you mean `whisper-tiny`?");
    check!(scene, scene.fails(1, &["verify", "zzz"]), @"no model is named `zzz`; `holdfast models` lists what there is");
    check!(scene, scene.fails(1, &["run", "all-", "--text", "a"]), @"no model is named `all-`; did you mean one of `all-mpnet-base`, `all-MiniLM-L6-v2`?");
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
    check!(scene, scene.fails(1, &["import", "text.onnx"]), @"text.onnx: not an ONNX model: at the outermost level: byte 0 is not a valid field key");
    check!(scene, scene.fails(1, &["import", "empty.onnx"]), @"empty.onnx is empty: get the model again");
    check!(scene, scene.fails(1, &["import", "cut.onnx"]), @"cut.onnx: not an ONNX model: at graph: the file ends in the middle of a field");
    scene.write("pointer.onnx", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
    check!(scene, scene.fails(1, &["import", "pointer.onnx"]), @"pointer.onnx is a Git LFS pointer, not the model itself: run `git lfs pull` in its folder");
    check!(scene, scene.fails(1, &["import", "folder"]), @"there is no ONNX model in folder: expected `.onnx` files there or in its `onnx` folder");
    check!(scene, scene.fails(1, &["import", "absent"]), @"there is no file or folder absent: name an `.onnx` file or a model's folder (`holdfast pull` gets one from a hub)");
    check!(scene, scene.fails(1, &["import", "whole.onnx", "--name", "a/b"]), @"`a/b` cannot be a model's name: choose one with --name, of letters, digits, `.`, `_` and `-`, starting with a letter or digit");
    check!(scene, scene.fails(1, &["import", "whole.onnx", "--variant", "q4"]), @"`whole.onnx` has no variant `q4`; it has fp32");
    scene.write("two/model.onnx", &whole);
    scene.write("two/onnx/model.onnx", &whole);
    check!(scene, scene.fails(1, &["import", "two"]), @"onnx/model.onnx and model.onnx would both be the component model (fp32); move one away, or import one of them by its own path");
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
    check!(scene, run(&["--variant", "q4"]), @"`first` has no variant `q4`; it has fp32");
    check!(scene, run(&["--component", "decoder"]), @"`first` has no component `decoder`; it has model");
    check!(scene, run(&["--pool", "sum"]), @r#"unknown pooling "sum"; there are mean, cls, max and last"#);

    for file in ["encoder_model.onnx", "decoder_model.onnx"] {
        scene.write_model(&format!("several/{file}"), &small("bert", 1));
    }
    scene.ok(&["import", "several"]);
    check!(scene, scene.fails(1, &["run", "several", "--text", "a"]), @"`several` has 2 components; choose with --component: decoder, encoder");
    check!(scene, scene.fails(1, &["run", "several", "--component", "encoder", "--text", "a"]), @"cannot feed `several`: this model has no tokenizer.json, which turns text into tokens; feed its inputs with --input NAME=FILE.npy");
}

#[test]
fn a_missing_engine_is_named_with_what_to_do() {
    let scene = scene_with_classifiers();
    let run = ["run", "first", "--text", "a", "--onnxruntime", "/nonexistent"];
    check!(scene, scene.fails(1, &run), @"device failed: there is no ONNX Runtime library at /nonexistent. In a source tree, run `cargo xtask setup`; elsewhere, put the library beside the `holdfast` program or name it with `--onnxruntime FILE`");
}

#[test]
fn commands_that_are_not_understood_exit_with_2() {
    let scene = Scene::new();
    check!(scene, scene.fails(2, &["improt", "x"]), @"
    unrecognized subcommand 'improt'

      tip: a similar subcommand exists: 'import'

    Usage: holdfast [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
    check!(scene, scene.fails(2, &["import"]), @"
    the following required arguments were not provided:
      <PATH>

    Usage: holdfast import --home <DIR> <PATH>

    For more information, try '--help'.
    ");
    check!(scene, scene.fails(2, &["run", "m", "--device", "gpu"]), @r"
    invalid value 'gpu' for '--device <LIST>': `gpu` is not a device: use auto, browser, or what you prefer of webgpu, webnn, wasm and cpu in order, with commas

    For more information, try '--help'.
    ");
    check!(scene, scene.fails(2, &["show", "m", "--dim", "batch"]), @"
    invalid value 'batch' for '--dim <NAME=SIZE>': expected NAME=SIZE, such as batch_size=8

    For more information, try '--help'.
    ");
    check!(scene, scene.fails(2, &["run", "m", "--repeat", "0"]), @"
    invalid value '0' for '--repeat <N>': 0 is not in 1..=1000000

    For more information, try '--help'.
    ");
    check!(scene, scene.fails(2, &["completions", "csh"]), @"
    invalid value 'csh' for '<SHELL>'
      [possible values: bash, elvish, fish, powershell, zsh]

      tip: a similar value exists: 'zsh'

    For more information, try '--help'.
    ");
}
