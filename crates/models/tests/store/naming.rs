//! Names of models, and what is refused.

use holdfast_models::{ImportOptions, StoreError};

use crate::support::{Scene, small, variant};

#[test]
fn the_default_name_is_that_of_the_folder_or_file() {
    let scene = Scene::new();
    let model = small("bert", 1);
    for (file, path, name) in [
        ("plain/model.onnx", "plain", "plain"),
        ("by-file/detector.onnx", "by-file/detector.onnx", "detector"),
        ("outer/model.onnx", "outer/model.onnx", "outer"),
        ("outer/onnx/model.onnx", "outer/onnx/model.onnx", "outer"),
        ("outer/onnx/model_fp16.onnx", "outer/onnx/model_fp16.onnx", "outer"),
        ("with space/model.onnx", "with space", "with-space"),
        ("dots/inner/x.onnx", "dots/inner/..", "dots"),
        ("v1.5_b/model.onnx", "v1.5_b/", "v1.5_b"),
    ] {
        scene.write_model(file, &model);
        if path.ends_with("..") {
            scene.write_model("dots/model.onnx", &model);
        }
        assert_eq!(scene.import(path).manifest.name, name, "{path}");
    }
}

#[test]
fn names_that_could_lead_out_of_the_store_are_refused() {
    let scene = Scene::new();
    scene.write_model("model.onnx", &small("bert", 1));
    let long = "x".repeat(129);
    for name in ["", "..", ".hidden", "a/b", "../a", "a b", "-a", "ä", "a\0b", &long] {
        let options = ImportOptions { name: Some(name.to_owned()), ..Default::default() };
        let error = scene.try_import("model.onnx", &options).unwrap_err();
        assert!(matches!(&error, StoreError::BadName(found) if found == name), "{error}");
        // Asking for such a model is asking for one that is not there.
        for error in [
            scene.store.model(name).unwrap_err(),
            scene.store.remove(name).unwrap_err(),
            scene.store.verify(Some(name)).unwrap_err(),
        ] {
            assert!(matches!(error, StoreError::NoSuchModel { .. }), "{error}");
        }
    }
    assert!(scene.files().is_empty());
}

#[test]
fn nothing_to_import_says_what_was_expected() {
    let scene = Scene::new();
    scene.write("folder/readme.txt", "no model");
    let refused = |path: &str, options: &ImportOptions| {
        let error = scene.try_import(path, options).unwrap_err();
        assert!(scene.files().is_empty(), "{path}");
        error
    };
    let default = ImportOptions::default();
    assert!(matches!(refused("folder", &default), StoreError::NothingToImport(_)));
    assert!(matches!(refused("absent", &default), StoreError::NothingThere(_)));
    scene.write("folder/model.onnx", "");
    assert!(matches!(refused("folder", &default), StoreError::EmptyFile(_)));
    scene.write("folder/model.onnx", "version https://git-lfs.github.com/spec/v1\n");
    assert!(matches!(refused("folder", &default), StoreError::LfsPointer(_)));
    scene.write("folder/model.onnx", "something else");
    assert!(matches!(refused("folder", &default), StoreError::Model { .. }));
    scene.write_model("folder/model.onnx", &small("bert", 1));
    scene.write_model("folder/model_q4.onnx", &small("bert", 1));
    let q8 = ImportOptions { variant: Some(variant("q8")), ..default };
    let StoreError::NoSuchVariant { asked, available, .. } = refused("folder", &q8) else {
        panic!("another error")
    };
    assert_eq!((asked.as_str(), available), ("q8", vec!["fp32".to_owned(), "q4".to_owned()]));
}

#[test]
fn two_files_for_one_component_are_refused() {
    let scene = Scene::new();
    for (one, two) in [
        ("model.onnx", "onnx/model.onnx"),
        ("model_quantized.onnx", "model_q8.onnx"),
        ("encoder.onnx", "encoder_model.onnx"),
        // No precision in the name: the weights tell, and they are the same.
        ("model.onnx", "model_fp32.onnx"),
    ] {
        let _ = std::fs::remove_dir_all(scene.path("folder"));
        scene.write_model(&format!("folder/{one}"), &small("bert", 1));
        scene.write_model(&format!("folder/{two}"), &small("bert", 2));
        let error = scene.try_import("folder", &ImportOptions::default()).unwrap_err();
        assert!(matches!(error, StoreError::Ambiguous { .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains(one) && message.contains(two), "{message}");
        assert!(scene.files().is_empty());
    }
}
