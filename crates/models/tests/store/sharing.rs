//! A weight that several models have is stored once.

use std::collections::HashMap;
use std::fs;

use holdfast_graph::{Digest, Tensor, WeightTable};
use holdfast_models::Written;

use crate::support::{Scene, family, matrix, product, small};

/// Above this, a weight is a blob.
const MIN_BLOB_BYTES: usize = 1024;

#[test]
fn each_distinct_weight_is_stored_once_across_models() {
    let scene = Scene::new();
    let mut distinct: HashMap<Digest, u64> = HashMap::new();
    let mut written = Written::default();
    for (index, model) in family("heads", 1).iter().enumerate() {
        let imported = scene.add(&format!("head-{index}"), model);
        written.blobs += imported.written.blobs;
        written.bytes += imported.written.bytes;
        for weight in WeightTable::new(model).entries() {
            let bytes = weight.tensor.bytes().len();
            if bytes >= MIN_BLOB_BYTES {
                distinct.insert(weight.content, bytes as u64);
            }
        }
    }
    assert_eq!(written.blobs, distinct.len());
    assert_eq!(written.bytes, distinct.values().sum::<u64>());
    for (digest, bytes) in &distinct {
        assert_eq!(fs::metadata(scene.blob_path(digest)).unwrap().len(), *bytes);
    }
    // Four graphs besides the weights, and nothing else.
    assert_eq!(scene.blob_count(), distinct.len() + 4);
}

#[test]
fn importing_again_writes_no_weight_bytes() {
    let scene = Scene::new();
    let first = scene.add("one", &small("bert", 1));
    assert!(first.written.bytes > 100_000);
    assert_eq!(first.written.bytes, first.weight_bytes);
    let when = |scene: &Scene| -> Vec<std::time::SystemTime> {
        let entries = fs::read_dir(scene.store.blobs_folder()).unwrap();
        entries.map(|entry| entry.unwrap().metadata().unwrap().modified().unwrap()).collect()
    };
    let before = when(&scene);
    assert_eq!(scene.add("one", &small("bert", 1)).written, Written::default());
    let other = scene.add("two", &small("bert", 1));
    assert_eq!((other.written, other.weight_bytes), (Written::default(), first.weight_bytes));
    assert_eq!(when(&scene), before, "a blob was written again");
}

#[test]
fn a_weight_that_one_model_has_twice_is_stored_once() {
    let scene = Scene::new();
    let twins = family("decoder-twins", 1);
    scene.write_model("llama/decoder_model.onnx", &twins[0]);
    scene.write_model("llama/decoder_with_past_model.onnx", &twins[1]);
    let imported = scene.import("llama");
    assert_eq!(imported.written.bytes, imported.weight_bytes);
    let parts = &imported.manifest.components;
    let alone: u64 = parts[0].graph.weights.iter().map(|weight| weight.bytes).sum();
    assert!(imported.weight_bytes < alone * 11 / 10, "the twins have nearly all in common");
}

#[test]
fn small_weights_stay_in_the_graph() {
    let scene = Scene::new();
    let small = scene.add("small", &product(&matrix(15, 17, 1.0)));
    assert_eq!((small.written.blobs, scene.blob_count()), (0, 1));
    let large = scene.add("large", &product(&matrix(16, 16, 1.0)));
    assert_eq!((large.written.blobs, scene.blob_count()), (1, 3));
}

#[test]
fn a_weight_that_another_model_has_transposed_is_noted() {
    let scene = Scene::new();
    let plain = matrix(16, 32, 1.0);
    let values = plain.to_vec::<f32>().unwrap();
    let turned: Vec<f32> = (0..32)
        .flat_map(|column| (0..16).map(move |row| row * 32 + column))
        .map(|at| values[at])
        .collect();
    let turned = Tensor::from_slice(&[32, 16], &turned).unwrap();
    let first = scene.add("plain", &product(&plain)).manifest;
    assert!(first.components[0].transposed.is_empty());
    let second = scene.add("turned", &product(&turned)).manifest;
    let [note] = &second.components[0].transposed[..] else { panic!("one weight is mirrored") };
    assert_eq!(note.model, "plain");
    assert_eq!(note.of, first.components[0].graph.weights[0].id);
    assert_eq!(note.weight, second.components[0].graph.weights[0].id);

    // The same numbers in another order are not.
    let mut shuffled = values;
    shuffled.swap(3, 200);
    let shuffled = Tensor::from_slice(&[32, 16], &shuffled).unwrap();
    let third = scene.add("shuffled", &product(&shuffled)).manifest;
    assert!(third.components[0].transposed.is_empty());
}

#[test]
fn damage_in_another_model_does_not_stop_an_import() {
    let scene = Scene::new();
    let plain = matrix(16, 32, 1.0);
    let first = scene.add("plain", &product(&plain)).manifest;
    let blob = scene.blob_path(&first.components[0].graph.weights[0].content);
    fs::write(blob, b"damaged").unwrap();
    let values = plain.to_vec::<f32>().unwrap();
    let turned: Vec<f32> = (0..32)
        .flat_map(|column| (0..16).map(move |row| row * 32 + column))
        .map(|at| values[at])
        .collect();
    let turned = Tensor::from_slice(&[32, 16], &turned).unwrap();
    assert!(scene.add("turned", &product(&turned)).manifest.components[0].transposed.is_empty());
}
