//! Damage is found, named, kept to itself, and repaired by importing again.

use std::fs;
use std::path::Path;

use holdfast_graph::Digest;
use holdfast_models::{Manifest, StoreError};

use crate::support::{Scene, family, small};

/// A way to damage a file.
type Harm = (&'static str, fn(&Path));

const HARMS: [Harm; 5] = [
    ("damaged", |path| {
        let mut bytes = fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        fs::write(path, bytes).unwrap();
    }),
    ("damaged", |path| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
    }),
    ("damaged", |path| {
        let mut bytes = fs::read(path).unwrap();
        bytes.push(0);
        fs::write(path, bytes).unwrap();
    }),
    ("damaged", |path| fs::write(path, b"").unwrap()),
    ("missing", |path| fs::remove_file(path).unwrap()),
];

/// A model with a side file, beside one that has nothing in common with it.
fn scene() -> (Scene, Manifest) {
    let scene = Scene::new();
    scene.add("other", &small("vit", 5));
    scene.write_model("model-a/model.onnx", &small("bert", 1));
    scene.write("model-a/config.json", "{\"model_type\": \"bert\"}");
    let manifest = scene.import("model-a").manifest;
    (scene, manifest)
}

#[test]
fn verify_names_the_model_and_the_blob_and_importing_again_repairs() {
    let (scene, manifest) = scene();
    let whole = scene.store.verify(None).unwrap();
    assert!(whole.problems.is_empty());
    assert_eq!((whole.models, whole.blobs), (2, scene.blob_count()));
    let graph = &manifest.components[0].graph;
    let side_file = manifest.files["config.json"].content;
    for blob in [graph.graph, graph.weights[3].content, side_file] {
        for (kind, harm) in HARMS {
            harm(&scene.blob_path(&blob));
            let problems = scene.problems();
            let [(name, problem)] = &problems[..] else { panic!("{problems:?}") };
            assert_eq!(name, "model-a");
            assert!(problem.contains(&blob.to_string()) && problem.contains(kind), "{problem}");
            assert!(scene.store.verify(Some("other")).unwrap().problems.is_empty());
            assert_eq!(scene.store.verify(Some("model-a")).unwrap().problems.len(), 1);

            assert!(scene.import("model-a").replaced);
            assert!(scene.problems().is_empty());
        }
    }
}

#[test]
fn reading_damaged_bytes_is_an_error_never_wrong_bytes() {
    let (scene, manifest) = scene();
    let graph = &manifest.components[0].graph;
    let weight = graph.weights[0].content;
    for (_, harm) in HARMS {
        harm(&scene.blob_path(&weight));
        let names = |digest: &Digest, error: StoreError| match error {
            StoreError::DamagedBlob { digest: found, .. }
            | StoreError::MissingBlob { digest: found } => assert_eq!(found, *digest),
            other => panic!("{other}"),
        };
        names(&weight, scene.store.open_graph(graph).unwrap_err());
        names(&weight, scene.store.blob(&weight).unwrap_err());
        names(&weight, scene.store.blobs(&[graph.graph, weight]).unwrap_err());
        scene.import("model-a");

        let side_file = manifest.files["config.json"].content;
        harm(&scene.blob_path(&side_file));
        names(&side_file, scene.store.files(&manifest).unwrap_err());
        scene.import("model-a");
        scene.store.files(&manifest).unwrap();
        scene.store.open_graph(graph).unwrap();
    }
}

#[test]
fn what_is_open_stays_right_while_the_file_is_replaced() {
    let (scene, manifest) = scene();
    let graph = &manifest.components[0].graph;
    let open = scene.store.open_graph(graph).unwrap();
    // As a repair or a collection does: the old file is unlinked, not changed.
    scene.store.remove("model-a").unwrap();
    scene.store.gc(false).unwrap();
    assert!(!scene.store.has_blob(&graph.graph));
    assert_eq!(open, small("bert", 1));
}

#[test]
fn damage_of_a_shared_weight_is_reported_for_each_model_that_has_it() {
    let scene = Scene::new();
    let models = family("heads", 1);
    let first = scene.add("first", &models[0]).manifest;
    scene.add("second", &models[1]);
    scene.add("other", &small("vit", 5));
    let shared = first.components[0].graph.weights[0].content;
    HARMS[0].1(&scene.blob_path(&shared));
    let named: Vec<String> = scene.problems().into_iter().map(|(name, _)| name).collect();
    assert_eq!(named, ["first", "second"]);
    // Importing either repairs both.
    scene.add("second", &models[1]);
    assert!(scene.problems().is_empty());
}

#[test]
fn a_damaged_manifest_is_an_error_of_its_model_alone() {
    let (scene, _) = scene();
    let path = scene.store.home().join("models/model-a.json");
    let whole = fs::read_to_string(&path).unwrap();
    for damaged in [
        "",
        "{",
        "[]",
        &whole[..whole.len() / 2],
        &whole.replacen("\"bytes\": ", "\"bytes\": -", 1),
        &whole.replacen("\"graph\": \"", "\"graph\": \"zz", 1),
        &whole.replacen("\"f32\"", "\"f33\"", 1),
    ] {
        fs::write(&path, damaged).unwrap();
        let error = scene.store.model("model-a").unwrap_err();
        assert!(matches!(error, StoreError::DamagedManifest { .. }), "{damaged}: {error}");
        assert!(error.to_string().contains("model-a.json"), "{error}");
        let models = scene.store.models().unwrap();
        assert_eq!(models.readable.len(), 1);
        assert_eq!(models.readable[0].name, "other");
        assert_eq!(models.unreadable[0].0, "model-a");
        let problems = scene.problems();
        assert_eq!((problems.len(), problems[0].0.as_str()), (1, "model-a"));
        // Others can be imported, and this one again.
        scene.add("third", &small("bert", 3));
        scene.store.remove("third").unwrap();
        assert!(scene.import("model-a").replaced);
        assert!(scene.problems().is_empty());
    }
    fs::write(&path, "{").unwrap();
    scene.store.remove("model-a").unwrap();
    assert_eq!(scene.store.names().unwrap(), ["other"]);
}

#[test]
fn a_manifest_of_a_newer_version_says_so() {
    let (scene, _) = scene();
    let path = scene.store.home().join("models/model-a.json");
    fs::write(&path, "{\"format\": 2, \"unknown\": true}").unwrap();
    let error = scene.store.model("model-a").unwrap_err();
    assert!(matches!(error, StoreError::NewerFormat { found: 2, known: 1, .. }), "{error}");
    assert!(error.to_string().contains("update Holdfast"), "{error}");
    assert_eq!(scene.store.models().unwrap().readable.len(), 1);
}
