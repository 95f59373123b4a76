//! A store and a pool over the in-process engine.

use std::sync::Arc;

use anyhow::Result;
use holdfast_devices::ModelKind;
use holdfast_graph::{Model, Tensor, Value, encode};
use holdfast_models::{ImportOptions, Store, StoredGraph};
use holdfast_pool::{Answer, Choice, Choices, Pool, PoolOptions, Priority, Request};
use tokio::runtime::Runtime;

pub(super) struct Rig {
    pub(super) pool: Arc<Pool>,
    pub(super) runtime: Runtime,
    store: Arc<Store>,
    folder: tempfile::TempDir,
}

impl Rig {
    pub(super) fn new(options: PoolOptions) -> Result<Rig> {
        let folder = tempfile::tempdir()?;
        let store = Arc::new(Store::open(folder.path().join("home"))?);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let pool = {
            let _inside = runtime.enter();
            Arc::new(Pool::new(store.clone(), options)?)
        };
        Ok(Rig { pool, runtime, store, folder })
    }

    pub(super) fn add(&self, model: &Model, name: &str) -> Result<StoredGraph> {
        let path = self.folder.path().join(format!("{name}.onnx"));
        std::fs::write(&path, encode(model))?;
        self.import(&path)
    }

    pub(super) fn import(&self, path: &std::path::Path) -> Result<StoredGraph> {
        let imported = self.store.import(path, &ImportOptions::default(), &mut |_| ())?;
        Ok(imported.manifest.components[0].graph.clone())
    }

    /// What a model takes.
    pub(super) fn inputs(&self, graph: &StoredGraph) -> Result<Vec<Value>> {
        Ok(self.store.open_graph(graph)?.inputs())
    }

    /// Runs these at once; all have to succeed.
    pub(super) fn run(&self, requests: &[Request]) -> Result<Vec<Answer>> {
        let answers = self.runtime.block_on(self.pool.run_concurrent(requests));
        Ok(answers.into_iter().collect::<Result<_, _>>()?)
    }
}

/// A request for the in-process engine.
pub(super) fn request(graph: &StoredGraph, inputs: Vec<(String, Tensor)>) -> Request {
    Request {
        model: "bench".to_owned(),
        graph: graph.clone(),
        kind: ModelKind::Other,
        inputs,
        choices: Choices::Ordered(vec![Choice::Cpu]),
        priority: Priority::Normal,
        share: false,
        namespace: String::new(),
        deadline: None,
    }
}

/// Whether two runs gave the same bits.
pub(super) fn same(one: &Answer, other: &Answer) -> bool {
    let (one, other) = (&one.outcome.outputs, &other.outcome.outputs);
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| a.tensor == b.tensor)
}
