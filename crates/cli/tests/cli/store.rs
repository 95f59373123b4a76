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
    check!(scene, scene.ok(&["models"]), @"");
    check!(scene, scene.ok(&["verify"]), @"");
    check!(scene, scene.ok(&["gc"]), @"");
}

#[test]
fn import_says_what_was_new_and_what_was_there() {
    let scene = Scene::new();
    let members = made("heads", 1, Size::tiny());
    scene.write_model("first.onnx", &members[0]);
    scene.write_model("second.onnx", &members[1]);
    check!(scene, scene.ok(&["import", "first.onnx"]), @"");
    check!(scene, scene.ok(&["import", "second.onnx"]), @"");
    check!(scene, scene.ok(&["import", "second.onnx"]), @"");
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
    check!(scene, scene.ok(&["models"]), @"");
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
    check!(scene, listed.stdout, @"");
    check!(scene, listed.stderr, @"");
    assert_eq!(keys(&scene.json(&["models"])["unreadable"][0]), ["model", "problem"]);
    scene.ok(&["show", "second"]);
    check!(scene, scene.fails(1, &["show", "first"]), @"");
    check!(scene, scene.fails(1, &["gc"]), @"");
    let doctor = scene.run(&["doctor"]);
    assert_eq!(doctor.code, Some(1));
    assert!(doctor.stdout.contains("FAIL store: `first` cannot be used: "), "{}", doctor.stdout);

    fs::write(&manifest, "{\"format\": 99}").unwrap();
    check!(scene, scene.fails(1, &["show", "first"]), @"");
    scene.ok(&["rm", "first"]);
    scene.ok(&["gc"]);
    scene.ok(&["models"]);
    scene.ok(&["verify"]);
}

#[test]
fn show_prints_everything_about_a_model() {
    let scene = scene_with_two();
    check!(scene, scene.ok(&["show", "first", "--dim", "sequence=16"]), @"");
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
    check!(scene, scene.ok(&["rm", "first"]), @"");
    check!(scene, scene.ok(&["gc", "--dry-run"]), @"");
    check!(scene, scene.ok(&["gc"]), @"");
    check!(scene, scene.ok(&["gc"]), @"");
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
    check!(scene, scene.ok(&["verify"]), @"");
    damage(&scene);
    let found = scene.run(&["verify"]);
    assert_eq!((found.code, found.stderr.as_str()), (Some(1), ""));
    check!(scene, found.stdout, @"");
    let found = scene.run(&["verify", "second", "--json"]);
    assert_eq!(found.code, Some(1));
    let report: serde_json::Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(keys(&report), ["models", "blobs", "bytes", "problems"]);
    assert_eq!(keys(&report["problems"][0]), ["model", "problem"]);
    assert_eq!(report["problems"][0]["model"], "second");
    check!(scene, scene.fails(1, &["show", "second"]), @"");
    scene.ok(&["import", "second.onnx"]);
    scene.ok(&["verify"]);
    scene.ok(&["show", "first"]);
}

#[test]
fn synth_makes_models_that_can_be_imported() {
    let scene = Scene::new();
    check!(scene, scene.ok(&["synth", "heads", "--count", "2", "--out", "made"]), @"");
    let again = scene.json(&["synth", "heads", "--count", "2", "--out", "made"]);
    assert_eq!(keys(&again), ["files"]);
    assert_eq!(keys(&again["files"][0]), ["path", "bytes"]);
    scene.ok(&["import", "made/head-0-sequence-classification.onnx", "--name", "head"]);
    check!(scene, scene.fails(1, &["synth", "gpt", "--out", "made"]), @"");
    check!(scene, scene.fails(1, &["synth", "bert", "--heads", "7", "--out", "made"]), @"");
}

#[test]
fn doctor_says_what_works_and_how_to_fix_the_rest() {
    let scene = Scene::new();
    scene.write_model("a.onnx", &small("bert", 1));
    scene.ok(&["import", "a.onnx"]);
    let text = scene.ok(&["doctor"]);
    let first = |line: &str| line.split(": ").next().unwrap().to_owned();
    let heads: Vec<String> = text.lines().map(first).collect();
    assert_eq!(heads, ["ok   processor", "ok   store", "ok   cpu engine"], "{text}");
    let report = scene.json(&["doctor"]);
    assert_eq!(keys(&report), ["fine", "findings"]);
    assert_eq!(keys(&report["findings"][0]), ["what", "fine", "text"]);

    let broken = scene.run(&["doctor", "--onnxruntime", "/nonexistent"]);
    assert_eq!((broken.code, broken.stderr.as_str()), (Some(1), ""));
    let fail = broken.stdout.lines().find(|line| line.starts_with("FAIL")).unwrap().to_owned();
    check!(scene, fail, @"");
    scene.write("not-a-library.so", "text");
    let broken = scene.run(&["doctor", "--onnxruntime", "not-a-library.so"]);
    assert_eq!(broken.code, Some(1));
    let fail = broken.stdout.lines().find(|line| line.starts_with("FAIL")).unwrap().to_owned();
    assert!(fail.contains("not-a-library.so") && fail.contains("1.30"), "{fail}");
}
