//! Killed at any moment, an import leaves the old model or the new one, and a whole store.

use holdfast_graph::Model;
use holdfast_models::{ImportOptions, Manifest, Store};
use holdfast_testkit::Size;
use holdfast_testkit::crash::{Ended, kill_during};

use crate::support::{Scene, made};

const KILLS: usize = 25;
const SEED: u64 = 3;

#[test]
fn a_killed_import_leaves_the_old_model_or_the_new_one() {
    let scene = Scene::new();
    // Each model has two components, and each pair of models has one of them in common.
    let size = Size { vocabulary: 2048, ..Size::new(3, 128) };
    let parts: Vec<Model> =
        (1..=3).map(|seed| made("bert", seed, size.clone())[0].clone()).collect();
    let folders = ["first", "second", "third"];
    for (index, folder) in folders.iter().enumerate() {
        scene.write_model(&format!("{folder}/encoder_model.onnx"), &parts[index]);
        scene.write_model(&format!("{folder}/decoder_model.onnx"), &parts[(index + 1) % 3]);
        scene.write(&format!("{folder}/config.json"), format!("{{\"model_type\": \"{folder}\"}}"));
    }
    let folder_of = |round: usize| folders[round % folders.len()];
    let wanted: Vec<Manifest> = folders.iter().map(|folder| undisturbed(&scene, folder)).collect();

    let mut before: Option<Manifest> = None;
    let tally = kill_during(
        KILLS,
        SEED,
        |round| scene.command(&["import", folder_of(round), "--name", "model"]),
        |round, ended| {
            let store = Store::open(scene.home()).unwrap();
            let report = store.verify(None).unwrap();
            assert!(report.problems.is_empty(), "round {round}: {:?}", report.problems);
            let models = store.models().unwrap();
            assert!(models.unreadable.is_empty(), "round {round}: {:?}", models.unreadable);

            let after = models.readable.into_iter().next();
            let new = &wanted[round % folders.len()];
            let is_new = after.as_ref().is_some_and(|after| {
                after.components == new.components && after.files == new.files
            });
            let is_old = ended == Ended::Killed && after == before;
            assert!(is_new || is_old, "round {round} left something else");
            before = after;

            // So that the next round has to write again what this one no longer needs.
            store.gc(false).unwrap();
            assert!(store.verify(None).unwrap().problems.is_empty());
            let left = scene.files_in("blobs");
            assert!(left.iter().all(|name| name.starts_with("sha256-")), "{left:?}");
            Ok::<(), std::io::Error>(())
        },
    )
    .unwrap();
    assert_eq!(tally.killed, KILLS);
}

/// What a folder is in a store that nobody disturbs.
fn undisturbed(scene: &Scene, folder: &str) -> Manifest {
    let store = Store::open(scene.path("undisturbed")).unwrap();
    let options = ImportOptions { name: Some("model".to_owned()), ..Default::default() };
    store.import(&scene.path(folder), &options, &mut |_| ()).unwrap().manifest
}
