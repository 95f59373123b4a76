//! Several processes work on one store at the same time.

use std::process::{Child, Stdio};

use holdfast_models::Store;
use holdfast_testkit::Size;

use crate::support::{Scene, made};

/// Ends with the test.
struct Running(Child);

impl Running {
    fn start(scene: &Scene, arguments: &[&str]) -> Running {
        let mut command = scene.command(arguments);
        Running(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn assert_success(mut self) {
        let mut complaint = String::new();
        let mut stderr = self.0.stderr.take().unwrap();
        std::io::Read::read_to_string(&mut stderr, &mut complaint).unwrap();
        assert!(self.0.wait().unwrap().success(), "{complaint}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn assert_whole(scene: &Scene, names: &[&str]) {
    let store = Store::open(scene.home()).unwrap();
    assert_eq!(store.names().unwrap(), names);
    let report = store.verify(None).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

/// Three models on one trunk, as `0.onnx` to `2.onnx`.
fn scene_with_a_family() -> Scene {
    let scene = Scene::new();
    let size = Size { vocabulary: 1024, ..Size::new(2, 128) };
    for (index, model) in made("heads", 1, size).iter().take(3).enumerate() {
        scene.write_model(&format!("{index}.onnx"), model);
    }
    scene
}

#[test]
fn one_model_imported_by_several_processes_at_once_is_whole() {
    let scene = scene_with_a_family();
    for _ in 0..3 {
        let import = |_| Running::start(&scene, &["import", "0.onnx", "--name", "model"]);
        let imports: Vec<Running> = (0..3).map(import).collect();
        imports.into_iter().for_each(Running::assert_success);
        assert_whole(&scene, &["model"]);
        scene.ok(&["rm", "model"]);
        scene.ok(&["gc"]);
        assert!(scene.files_in("blobs").is_empty());
    }
}

#[test]
fn models_that_share_weights_can_be_imported_while_others_collect_garbage() {
    let scene = scene_with_a_family();
    for round in 0..4 {
        let import = |index: usize| {
            let (file, name) = (format!("{index}.onnx"), format!("model-{index}"));
            Running::start(&scene, &["import", &file, "--name", &name])
        };
        let imports: Vec<Running> = (0..3).map(import).collect();
        for _ in 0..6 {
            scene.ok(&["gc"]);
        }
        imports.into_iter().for_each(Running::assert_success);
        assert_whole(&scene, &["model-0", "model-1", "model-2"]);
        // The next round has other weights to write.
        let removed = format!("model-{}", round % 3);
        scene.ok(&["rm", &removed]);
        scene.ok(&["gc"]);
    }
}

#[test]
fn looking_at_a_store_that_changes_is_no_error() {
    let scene = scene_with_a_family();
    scene.ok(&["import", "1.onnx", "--name", "stays"]);
    for _ in 0..4 {
        let import = Running::start(&scene, &["import", "0.onnx", "--name", "comes-and-goes"]);
        scene.ok(&["models"]);
        scene.ok(&["verify"]);
        import.assert_success();
        let remove = Running::start(&scene, &["rm", "comes-and-goes"]);
        let collect = Running::start(&scene, &["gc"]);
        scene.ok(&["models"]);
        scene.ok(&["verify"]);
        remove.assert_success();
        collect.assert_success();
    }
    assert_whole(&scene, &["stays"]);
}
