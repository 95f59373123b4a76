//! Killed at any moment, an import leaves the old model or the new one, and a whole store.

use std::collections::HashMap;

use holdfast_models::{ImportOptions, Manifest, Store};
use holdfast_testkit::Size;
use holdfast_testkit::crash::{Ended, kill_during};

use crate::support::{Scene, made};

const KILLS: usize = 25;
const SEED: u64 = 3;

#[test]
fn a_killed_import_leaves_the_old_model_or_the_new_one() {
    let scene = Scene::new();
    let size = Size { layers: 4, ..Size::new(4, 128) };
    let size = Size { vocabulary: 2048, ..size };
    // Two that have a trunk in common and one that has nothing in common with them.
    let trunk = made("heads", 1, size.clone());
    let models = [&trunk[0], &made("heads", 2, size)[0], &trunk[1]];
    let files: Vec<String> = (0..models.len()).map(|index| format!("{index}.onnx")).collect();
    for (file, model) in files.iter().zip(models) {
        scene.write_model(file, model);
    }
    let file_of = |round: usize| &files[round % files.len()];
    let wanted = reference(&scene, &files);

    let mut before: Option<Manifest> = None;
    let tally = kill_during(
        KILLS,
        SEED,
        |round| scene.command(&["import", file_of(round), "--name", "model"]),
        |round, ended| {
            let store = Store::open(scene.home()).unwrap();
            let report = store.verify(None).unwrap();
            assert!(report.problems.is_empty(), "round {round}: {:?}", report.problems);
            let models = store.models().unwrap();
            assert!(models.unreadable.is_empty(), "round {round}: {:?}", models.unreadable);

            let after = models.readable.into_iter().next();
            let new = &wanted[file_of(round)];
            let is_new = after.as_ref().is_some_and(|after| after.components == new.components);
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
    assert!(tally.killed > KILLS / 2, "most imports ended before they could be killed: {tally:?}");
}

/// What each file is in a store that nobody disturbs.
fn reference(scene: &Scene, files: &[String]) -> HashMap<String, Manifest> {
    let import = |file: &String| {
        let store = Store::open(scene.path("reference")).unwrap();
        let options = ImportOptions { name: Some("model".to_owned()), ..Default::default() };
        let imported = store.import(&scene.path(file), &options, &mut |_| ()).unwrap();
        (file.clone(), imported.manifest)
    };
    files.iter().map(import).collect()
}
