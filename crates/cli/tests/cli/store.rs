//! import, models, show, rm, verify, gc, synth, doctor.

use std::fs;

use serde_json::json;

use crate::support::{Scene, check, keys, made, small};
use holdfast_testkit::Size;

/// A store with two models on one trunk.
fn scene_with_two() -> Scene {
    let scene = Scene::new();
    for (name, model) in ["first", "second"].iter().zip(made("heads", 1, Size::tiny())) {
        scene.write_model(&format!("{name}.onnx"), &model);
        scene.ok(&["import", &format!("{name}.onnx")]);
    }
    scene
}

/// Changes a byte in the middle of the largest blob.
fn damage(scene: &Scene) {
    let blobs = scene.files_in("blobs");
    let paths = blobs.iter().map(|name| scene.home().join("blobs").join(name));
    let path = paths.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
}

#[test]
fn an_empty_store_says_what_to_do() {
    let scene = Scene::new();
    check!(scene, scene.ok(&["models"]), @"no models yet; `holdfast import PATH` adds one");
    check!(scene, scene.ok(&["verify"]), @"checked 0 models, 0 blobs, 0 B: all is well");
    check!(scene, scene.ok(&["gc"]), @"nothing to remove");
}

#[test]
fn import_says_what_was_new_and_what_was_there() {
    let scene = Scene::new();
    let members = made("heads", 1, Size::tiny());
    scene.write_model("first.onnx", &members[0]);
    scene.write_model("second.onnx", &members[1]);
    check!(scene, scene.ok(&["import", "first.onnx"]), @"
    imported first
      model (fp32): 15 large weights
      weights: 360.4 kB
    ");
    check!(scene, scene.ok(&["import", "second.onnx"]), @"
    imported second
      model (fp32): 14 large weights
      weights: 344.1 kB, all of them already in the store
    ");
    check!(scene, scene.ok(&["import", "second.onnx"]), @"
    replaced second
      model (fp32): 14 large weights
      weights: 344.1 kB, all of them already in the store
    ");
    let again = scene.json(&["import", "second.onnx", "--name", "third"]);
    assert_eq!(
        keys(&again),
        [
            "model",
            "replaced",
            "components",
            "weight_bytes",
            "weight_bytes_written",
            "weights_written"
        ]
    );
    assert_eq!(
        keys(&again["components"][0]),
        ["role", "variant", "file", "large_weights", "transposed_weights"]
    );
    assert_eq!(again["model"], "third");
    assert_eq!(again["replaced"], false);
    assert_eq!(again["weight_bytes_written"], 0);
}

#[test]
fn models_lists_what_is_shared() {
    let scene = scene_with_two();
    check!(scene, scene.ok(&["models"]), @"
    model   components  variants   weights    shared
    first   model       fp32      360.4 kB  344.1 kB
    second  model       fp32      344.1 kB  344.1 kB

    2 models, weights on disk: 360.4 kB instead of 704.5 kB
    ");
    let listed = scene.json(&["models"]);
    assert_eq!(keys(&listed), ["home", "models", "unreadable", "weight_bytes"]);
    assert_eq!(
        keys(&listed["models"][0]),
        [
            "model",
            "components",
            "variants",
            "weight_bytes",
            "shared_weight_bytes",
            "imported_at_unix"
        ]
    );
    assert_eq!(listed["unreadable"], json!([]));
}

#[test]
fn a_damaged_manifest_does_not_hide_the_other_models() {
    let scene = scene_with_two();
    let manifest = scene.home().join("models/first.json");
    fs::write(&manifest, "{\"format\": 1, \"na").unwrap();
    let listed = scene.run(&["models"]);
    assert_eq!(listed.code, Some(0));
    check!(scene, listed.stdout, @"
    model   components  variants   weights  shared
    second  model       fp32      344.1 kB     0 B

    1 model, weights on disk: 344.1 kB
    ");
    check!(scene, listed.stderr, @"warning: `first` cannot be used: the manifest [DIR]/home/models/first.json is damaged (EOF while parsing a string at line 1 column 17); import the model again, or remove it with `holdfast rm`");
    assert_eq!(keys(&scene.json(&["models"])["unreadable"][0]), ["model", "problem"]);
    scene.ok(&["show", "second"]);
    check!(scene, scene.fails(1, &["show", "first"]), @"the manifest [DIR]/home/models/first.json is damaged (EOF while parsing a string at line 1 column 17); import the model again, or remove it with `holdfast rm`");
    check!(scene, scene.fails(1, &["gc"]), @"nothing was removed, because what `first` needs is not known: the manifest [DIR]/home/models/first.json is damaged (EOF while parsing a string at line 1 column 17); import the model again, or remove it with `holdfast rm`");
    let doctor = scene.run(&["doctor"]);
    assert_eq!(doctor.code, Some(1));
    assert!(doctor.stdout.contains("FAIL store: `first` cannot be used: "), "{}", doctor.stdout);

    fs::write(&manifest, "{\"format\": 99}").unwrap();
    check!(scene, scene.fails(1, &["show", "first"]), @"[DIR]/home/models/first.json was written by a newer Holdfast (format 99, this one reads 1); update Holdfast");
    scene.ok(&["rm", "first"]);
    scene.ok(&["gc"]);
    scene.ok(&["models"]);
    scene.ok(&["verify"]);
}

#[test]
fn show_prints_everything_about_a_model() {
    let scene = scene_with_two();
    check!(scene, scene.ok(&["show", "first", "--dim", "sequence=16"]), @"
    first  (from [DIR]/first.onnx)

    model (fp32)  first.onnx
      input     input_ids i64[batch, sequence]
      input     attention_mask i64[batch, sequence]
      input     token_type_ids i64[batch, sequence]
      output    logits f32[batch, 2]
      operators Constant 65, Add 22, Gather 21, Unsqueeze 19, Shape 17, MatMul 16, Concat 8, Reshape 8, Transpose 8, LayerNormalization 5, Mul 5, Div 4, Erf 2, Gemm 2, Softmax 2, Cast 1, Slice 1, Sub 1, Tanh 1 (opset 17)
      weights   368.9 kB in 106 tensors
      shared    14 weights, 344.1 kB with second
      cost      2.3 MFLOP, 998.6 kB moved, 28.7 kB activations at most at batch=1, sequence=16
      structure [DIGEST]
    ");
    let shown = scene.json(&["show", "first", "--dim", "sequence=16"]);
    assert_eq!(keys(&shown), ["model", "provenance", "files", "components"]);
    assert_eq!(keys(&shown["provenance"]), ["source", "path", "imported_at_unix", "holdfast"]);
    let component = &shown["components"][0];
    assert_eq!(
        keys(component),
        [
            "role",
            "variant",
            "file",
            "opset",
            "inputs",
            "outputs",
            "operators",
            "weights",
            "weight_bytes",
            "shared_weights",
            "shared_weight_bytes",
            "shared_with",
            "transposed",
            "graph",
            "structure",
            "cost",
        ]
    );
    assert_eq!(keys(&component["inputs"][0]), ["name", "dtype", "dims"]);
    assert_eq!(
        keys(&component["cost"]),
        ["dims", "flops", "bytes_moved", "weight_bytes", "peak_activation_bytes", "unknown"]
    );
    assert_eq!(component["cost"]["dims"]["sequence"], 16);
    assert_eq!(component["shared_with"], json!(["second"]));
}

#[test]
fn rm_and_gc_free_what_only_that_model_had() {
    let scene = scene_with_two();
    check!(scene, scene.ok(&["rm", "first"]), @"
    removed first
    `holdfast gc` frees the weights that no other model has
    ");
    check!(scene, scene.ok(&["gc", "--dry-run"]), @"would free 63.4 kB: 2 blobs, 0 derived graphs, 0 unfinished files");
    check!(scene, scene.ok(&["gc"]), @"freed 63.4 kB: 2 blobs, 0 derived graphs, 0 unfinished files");
    check!(scene, scene.ok(&["gc"]), @"nothing to remove");
    scene.ok(&["verify"]);
    assert_eq!(scene.json(&["rm", "second", "second"]), json!({ "removed": ["second"] }));
    let freed = scene.json(&["gc"]);
    assert_eq!(keys(&freed), ["dry_run", "blobs", "derived", "partial", "bytes"]);
    assert!(scene.files_in("blobs").is_empty());
}

#[test]
fn a_misspelt_name_removes_nothing() {
    let scene = scene_with_two();
    for other in ["secund", "../second", ""] {
        let message = scene.fails(1, &["rm", "first", other]);
        assert!(message.starts_with(&format!("no model is named `{other}`; ")), "{message}");
    }
    assert_eq!(scene.files_in("models"), ["first.json", "second.json"]);
}

#[test]
fn verify_finds_damage_and_importing_again_repairs_it() {
    let scene = scene_with_two();
    check!(scene, scene.ok(&["verify"]), @"checked 2 models, 17 blobs, 454.1 kB: all is well");
    damage(&scene);
    let found = scene.run(&["verify"]);
    assert_eq!((found.code, found.stderr.as_str()), (Some(1), ""));
    check!(scene, found.stdout, @"
    first: blob [DIGEST] is damaged: its bytes hash to [DIGEST]; import the model again to repair it
    second: blob [DIGEST] is damaged: its bytes hash to [DIGEST]; import the model again to repair it
    checked 2 models, 16 blobs, 388.5 kB: 2 problems
    ");
    let found = scene.run(&["verify", "second", "--json"]);
    assert_eq!(found.code, Some(1));
    let report: serde_json::Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(keys(&report), ["models", "blobs", "bytes", "problems"]);
    assert_eq!(keys(&report["problems"][0]), ["model", "problem"]);
    assert_eq!(report["problems"][0]["model"], "second");
    check!(scene, scene.fails(1, &["show", "second"]), @"blob [DIGEST] is damaged: its bytes hash to [DIGEST]; import the model again to repair it");
    scene.ok(&["import", "second.onnx"]);
    scene.ok(&["verify"]);
    scene.ok(&["show", "first"]);
}

#[test]
fn synth_makes_models_that_can_be_imported() {
    let scene = Scene::new();
    check!(scene, scene.ok(&["synth", "heads", "--count", "2", "--out", "made"]), @"
    made/head-0-sequence-classification.onnx  406.0 kB
    made/head-1-token-classification.onnx  389.2 kB
    ");
    let again = scene.json(&["synth", "heads", "--count", "2", "--out", "made"]);
    assert_eq!(keys(&again), ["files"]);
    assert_eq!(keys(&again["files"][0]), ["path", "bytes"]);
    scene.ok(&["import", "made/head-0-sequence-classification.onnx", "--name", "head"]);
    check!(scene, scene.fails(1, &["synth", "gpt", "--out", "made"]), @"there is no kind of model `gpt`; choose one of bert, distilbert, t5-encoder, vit, clip, whisper-encoder, llama, heads, adapters, decoder-twins");
    check!(scene, scene.fails(1, &["synth", "bert", "--heads", "7", "--out", "made"]), @"hidden (64) must be a multiple of heads (7)");
}

#[test]
fn doctor_says_what_works_and_how_to_fix_the_rest() {
    let scene = Scene::new();
    scene.write_model("a.onnx", &small("bert", 1));
    scene.ok(&["import", "a.onnx"]);
    let text = scene.ok(&["doctor", "--no-browser"]);
    let first = |line: &str| line.split(": ").next().unwrap().to_owned();
    let heads: Vec<String> = text.lines().map(first).collect();
    assert_eq!(heads, ["ok   processor", "ok   store", "ok   cpu engine"], "{text}");
    let report = scene.json(&["doctor", "--no-browser"]);
    assert_eq!(keys(&report), ["fine", "findings"]);
    assert_eq!(keys(&report["findings"][0]), ["what", "browser", "fine", "text"]);

    let broken = scene.run(&["doctor", "--onnxruntime", "/nonexistent"]);
    assert_eq!((broken.code, broken.stderr.as_str()), (Some(1), ""));
    let fail = broken.stdout.lines().find(|line| line.starts_with("FAIL")).unwrap().to_owned();
    check!(scene, fail, @"FAIL cpu engine: device failed: there is no ONNX Runtime library at /nonexistent. In a source tree, run `cargo xtask setup`; elsewhere, put the library beside the `holdfast` program or name it with `--onnxruntime FILE`");
    scene.write("not-a-library.so", "text");
    let broken = scene.run(&["doctor", "--onnxruntime", "not-a-library.so"]);
    assert_eq!(broken.code, Some(1));
    let fail = broken.stdout.lines().find(|line| line.starts_with("FAIL")).unwrap().to_owned();
    assert!(fail.contains("not-a-library.so") && fail.contains("1.30"), "{fail}");
}
