//! Real models, as their authors exported them.

use holdfast_graph::Model;
use holdfast_models::ImportOptions;

use crate::support::{Scene, assert_comes_back, assert_same, third_party};

#[test]
fn real_folders_come_back_as_they_were() {
    let scene = Scene::new();
    for (name, components, side_files) in
        [("magika", 1, 2), ("silero-vad", 6, 0), ("rapidocr", 3, 0)]
    {
        let folder = third_party(&format!("models/{name}"));
        let options = ImportOptions::default();
        let imported = scene.store.import(&folder, &options, &mut |_| ()).unwrap();
        assert_eq!(imported.manifest.name, name);
        assert_eq!(imported.manifest.components.len(), components, "{name}");
        assert_eq!(imported.manifest.files.len(), side_files, "{name}");
        assert!(imported.written.bytes > 0);
        assert_comes_back(&scene.store, &imported.manifest, &folder);
        let again = scene.store.import(&folder, &options, &mut |_| ()).unwrap();
        assert_eq!(again.written.bytes, 0, "{name}");
    }
    assert!(scene.problems().is_empty());
}

#[test]
fn weights_inside_bodies_and_constants_of_real_models_are_blobs() {
    let scene = Scene::new();
    for file in ["silero-vad/silero_vad.onnx", "rapidocr/ch_ppocr_mobile_v2.0_cls_mobile.onnx"] {
        let path = third_party(&format!("models/{file}"));
        let manifest =
            scene.store.import(&path, &ImportOptions::default(), &mut |_| ()).unwrap().manifest;
        let graph = &manifest.components[0].graph;
        let weights: u64 = graph.weights.iter().map(|weight| weight.bytes).sum();
        let left = scene.store.blob(&graph.graph).unwrap().len() as u64;
        assert!(weights > 3 * left, "{file}: {weights} bytes of weights, {left} left in the graph");
        let read = Model::open(&path).unwrap();
        assert_same(&scene.store.open_graph(graph).unwrap(), &read, file);
    }
}
