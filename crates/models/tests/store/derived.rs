//! Graphs that were made from others, such as lowered ones.

use std::fs;

use holdfast_graph::{Digest, Model};
use holdfast_models::{GcReport, StoredGraph, hashed_weights};

use crate::support::{Scene, matrix, product, small};

/// Imports a model and keeps something derived from it that has a weight of its own.
fn derive(scene: &Scene, name: &str, seed: u64) -> (Digest, StoredGraph) {
    let manifest = scene.add(name, &small("bert", seed)).manifest;
    let from = manifest.components[0].graph.graph;
    let made = made(seed);
    let graph = scene.store.put_derived(&from, "test 1", &made, &hashed_weights(&made)).unwrap();
    (from, graph)
}

fn made(seed: u64) -> Model {
    product(&matrix(16, 32, seed as f32 * 1000.0))
}

#[test]
fn a_derived_graph_is_found_by_its_origin_and_by_what_was_done() {
    let scene = Scene::new();
    let (from, graph) = derive(&scene, "model-a", 1);
    let kept = scene.store.derived(&from, "test 1").unwrap();
    assert_eq!(kept.as_ref(), Some(&graph));
    assert_eq!(scene.store.open_graph(&graph).unwrap(), made(1));
    assert_eq!(scene.store.derived(&from, "test 2").unwrap(), None);
    assert_eq!(scene.store.derived(&graph.graph, "test 1").unwrap(), None);
}

#[test]
fn all_derived_graphs_are_listed_with_their_origin_and_nothing_else() {
    let scene = Scene::new();
    scene.add("plain", &small("bert", 3));
    assert_eq!(scene.store.derivations().unwrap(), []);
    let (from, graph) = derive(&scene, "model-a", 1);
    assert_eq!(scene.store.derivations().unwrap(), [(from.to_string(), graph)]);
}

#[test]
fn derived_graphs_live_as_long_as_their_origin() {
    let scene = Scene::new();
    let (stays, _) = derive(&scene, "stays", 1);
    let (goes, graph) = derive(&scene, "goes", 2);
    assert_eq!(scene.store.gc(false).unwrap(), GcReport::default());
    scene.store.remove("goes").unwrap();
    let report = scene.store.gc(false).unwrap();
    assert_eq!(report.derived, 1);
    assert!(graph.blobs().all(|blob| !scene.store.has_blob(&blob)));
    assert_eq!(scene.store.derived(&goes, "test 1").unwrap(), None);
    let kept = scene.store.derived(&stays, "test 1").unwrap().unwrap();
    assert_eq!(scene.store.open_graph(&kept).unwrap(), made(1));
}

#[test]
fn a_damaged_derived_graph_counts_as_not_kept_and_is_made_again() {
    let scene = Scene::new();
    let (from, graph) = derive(&scene, "model-a", 1);
    let again = || {
        let made = made(1);
        scene.store.put_derived(&from, "test 1", &made, &hashed_weights(&made)).unwrap();
        assert_eq!(scene.store.derived(&from, "test 1").unwrap().as_ref(), Some(&graph));
    };
    for blob in graph.blobs() {
        let path = scene.blob_path(&blob);
        let whole = fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        for damaged in [&flipped[..], &whole[..whole.len() - 1], &[]] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(scene.store.derived(&from, "test 1").unwrap(), None);
            again();
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(scene.store.derived(&from, "test 1").unwrap(), None);
        again();
    }
    let notes: Vec<_> = fs::read_dir(scene.store.home().join("derived")).unwrap().collect();
    let note = notes[0].as_ref().unwrap().path();
    fs::write(&note, "{").unwrap();
    assert_eq!(scene.store.derived(&from, "test 1").unwrap(), None);
    // What cannot be read is garbage: it can be made again.
    assert_eq!(scene.store.gc(false).unwrap().derived, 1);
    again();
}
