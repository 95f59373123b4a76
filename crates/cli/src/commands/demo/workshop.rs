//! Where the demo's models are made: a store of its own, which goes when the demo ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use holdfast_devices::cpu::CpuOptions;
use holdfast_graph::{DataType, Model, encode};
use holdfast_models::{ImportOptions, Imported, Store};
use holdfast_pool::{Pool, PoolOptions};
use holdfast_testkit::{Builder, named};
use tempfile::TempDir;

use crate::args::Global;
use crate::output::Spinner;

/// A store, an engine, and room for files.
pub(crate) struct Workshop {
    pub(crate) store: Arc<Store>,
    pub(crate) pool: Pool,
    pub(crate) spinner: Spinner,
    /// After what has files in it open.
    folder: TempDir,
}

/// A model of one node, for engines to warm up on.
pub(crate) const NOTHING: &str = "nothing";

impl Workshop {
    pub(crate) fn open(global: &Global) -> anyhow::Result<Workshop> {
        let spinner = Spinner::new("starting the engine");
        let folder = tempfile::Builder::new().prefix("holdfast-demo-").tempdir();
        let folder = folder.context("cannot make a folder for the demo's models")?;
        let store = Arc::new(Store::open(folder.path().join("home"))?);
        let cpu = CpuOptions { library: global.onnxruntime.clone(), ..CpuOptions::default() };
        let pool = Pool::new(store.clone(), PoolOptions { cpu, ..PoolOptions::default() })?;
        let workshop = Workshop { store, pool, spinner, folder };
        workshop.add(NOTHING, &nothing()?)?;
        Ok(workshop)
    }

    /// The store's folder.
    pub(crate) fn home(&self) -> &Path {
        self.store.home()
    }

    /// A path for a folder or file that is not there yet.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Imports a model that was made here.
    pub(crate) fn add(&self, name: &str, model: &Model) -> anyhow::Result<()> {
        self.spinner.say(format!("importing {name}"));
        let path = self.path(&format!("{name}.onnx"));
        write(&path, &encode(model))?;
        self.import(name, &path)?;
        std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))
    }

    /// Imports a file or a folder.
    pub(crate) fn import(&self, name: &str, path: &Path) -> anyhow::Result<Imported> {
        let options = ImportOptions { name: Some(name.to_owned()), ..ImportOptions::default() };
        Ok(self.store.import(path, &options, &mut |_| ())?)
    }
}

/// Writes a file, making its folder.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let context = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(context)?;
    }
    std::fs::write(path, bytes).with_context(context)
}

fn nothing() -> anyhow::Result<Model> {
    let mut builder = Builder::new(NOTHING, 0);
    builder.input("x", DataType::F32, &[named("batch")]);
    let sum = builder.node("Add", &["x", "x"], &[]);
    builder.output("y", &sum, DataType::F32, &[named("batch")]);
    Ok(builder.finish()?)
}
