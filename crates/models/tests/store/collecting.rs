//! Removing models, and collecting what only they had.

use std::fs;

use holdfast_models::{GcReport, StoreError};

use crate::support::{Scene, family, small};

#[test]
fn removing_and_collecting_frees_exactly_what_only_that_model_had() {
    let scene = Scene::new();
    let models = family("heads", 1);
    scene.add("stays", &models[0]);
    let alone = scene.files();
    scene.add("goes", &models[2]);
    scene.add("goes-too", &small("vit", 9));
    let together = scene.files();

    for name in ["goes", "goes-too"] {
        scene.store.remove(name).unwrap();
    }
    let manifests = ["models/goes.json", "models/goes-too.json"];
    let before = scene.files();
    let dry = scene.store.gc(true).unwrap();
    assert_eq!(scene.files(), before, "a dry run removes nothing");
    let wet = scene.store.gc(false).unwrap();
    assert_eq!(dry, wet);
    assert_eq!(scene.files(), alone);
    let freed: u64 = together
        .iter()
        .filter(|(name, _)| !alone.contains_key(*name) && !manifests.contains(&name.as_str()))
        .map(|(_, bytes)| bytes)
        .sum();
    assert_eq!(wet.bytes, freed);
    assert_eq!(wet.blobs, together.len() - alone.len() - manifests.len());
    assert_eq!(scene.store.gc(false).unwrap(), GcReport::default());
    assert!(scene.problems().is_empty());
}

#[test]
fn what_interrupted_writers_left_is_collected() {
    let scene = Scene::new();
    scene.add("model-a", &small("bert", 1));
    let before = scene.files();
    for folder in ["blobs", "models", "derived"] {
        fs::write(scene.store.home().join(folder).join(".tmpAbCdEf.partial"), "half").unwrap();
    }
    assert_eq!(scene.store.names().unwrap(), ["model-a"]);
    assert!(scene.problems().is_empty());
    let report = scene.store.gc(false).unwrap();
    assert_eq!(report, GcReport { partial: 3, bytes: 12, ..GcReport::default() });
    assert_eq!(scene.files(), before);
}

#[test]
fn nothing_is_collected_while_a_model_cannot_be_read() {
    let scene = Scene::new();
    scene.add("fine", &small("bert", 1));
    scene.add("newer", &small("bert", 2));
    scene.add("gone", &small("bert", 3));
    scene.store.remove("gone").unwrap();
    fs::write(scene.store.home().join("models/newer.json"), "{\"format\": 2}").unwrap();
    let before = scene.files();
    let error = scene.store.gc(false).unwrap_err();
    assert!(matches!(&error, StoreError::UnknownNeeds { name, .. } if name == "newer"), "{error}");
    assert_eq!(scene.files(), before);
    // A failed import takes nothing back either: its blobs might be that model's.
    scene.write_model("broken/decoder_model.onnx", &small("bert", 4));
    scene.write("broken/encoder_model.onnx", "no model");
    scene.try_import("broken", &Default::default()).unwrap_err();
    assert!(scene.files().len() > before.len());

    scene.store.remove("newer").unwrap();
    scene.store.gc(false).unwrap();
    assert_eq!(scene.store.names().unwrap(), ["fine"]);
    assert!(scene.problems().is_empty());
}

#[test]
fn files_that_are_not_the_stores_are_left_alone() {
    let scene = Scene::new();
    scene.write("home/blobs/notes.txt", "mine");
    scene.write("home/blobs/sha256-short", "mine");
    scene.write("home/models/notes.txt", "mine");
    assert_eq!(scene.store.gc(false).unwrap(), GcReport::default());
    assert_eq!(scene.files().len(), 3);
    assert!(scene.store.models().unwrap().readable.is_empty());
}
