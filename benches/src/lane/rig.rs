//! Everything that a figure needs, in one hand: a store, the in-process engine, a server, and one
//! browser that joins it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use holdfast_browsers::{Browser, GuardCommand, Launch, packaged};
use holdfast_devices::cpu::{CpuEngine, CpuOptions, Target};
use holdfast_devices::lane::{Lane, LaneOptions, Lanes};
use holdfast_devices::{Device, DeviceError, Loaded, Outcome, Program, Segment};
use holdfast_graph::{Dim, Model, Tensor, Value, encode};
use holdfast_models::{ImportOptions, Store, StoredGraph};
use holdfast_server::{Server, ServerOptions};
use holdfast_wire::Backend;

/// Threads of WebAssembly, said in every link so that a bare page can have as many.
pub(super) const THREADS: usize = 2;

/// How long a browser has to join.
const JOIN_LIMIT: Duration = Duration::from_secs(60);

pub(super) struct Rig {
    pub(super) store: Arc<Store>,
    pub(super) engine: CpuEngine,
    pub(super) lanes: Arc<Lanes>,
    pub(super) server: Server,
    home: tempfile::TempDir,
}

impl Rig {
    pub(super) async fn new() -> Result<Rig> {
        let home = tempfile::tempdir()?;
        let store = Arc::new(Store::open(home.path())?);
        let engine = CpuEngine::new(store.clone(), CpuOptions::default())?;
        let lanes = Arc::new(Lanes::new(store.clone(), LaneOptions::default()));
        let address = (std::net::Ipv4Addr::LOCALHOST, 0).into();
        let options = ServerOptions { address, ..ServerOptions::default() };
        let server = Server::start(lanes.clone(), options).await?;
        Ok(Rig { store, engine, lanes, server, home })
    }

    /// The link for a browser with one lane.
    pub(super) fn link(&self, backend: Backend) -> String {
        format!("{}&lanes={}&threads={THREADS}", self.server.join_link(), backend.name())
    }

    /// A browser with one lane, and the lane.
    pub(super) async fn browser(&self, backend: Backend) -> Result<(Browser, Lane)> {
        let browser = launch(&self.link(backend))?.start().await?;
        let lane = self.lane(&browser, backend).await?;
        Ok((browser, lane))
    }

    /// The lane of a browser that was started; one that is gone does not count.
    pub(super) async fn lane(&self, browser: &Browser, backend: Backend) -> Result<Lane> {
        let joined = self.lanes.wait_for(|lane| lane.backend() == backend && lane.is_connected());
        let joined = tokio::time::timeout(JOIN_LIMIT, browser.while_running(joined)).await;
        Ok(joined.with_context(|| format!("{} did not join", browser.name()))??)
    }

    pub(super) fn import(&self, path: &Path, name: &str) -> Result<StoredGraph> {
        let options = ImportOptions { name: Some(name.to_owned()), ..ImportOptions::default() };
        let mut imported = self.store.import(path, &options, &mut |_| ())?;
        Ok(imported.manifest.components.swap_remove(0).graph)
    }

    /// Imports a model that was built in code.
    pub(super) fn add(&self, model: &Model, name: &str) -> Result<StoredGraph> {
        let path = self.home.path().join(format!("{name}.onnx"));
        std::fs::write(&path, encode(model))?;
        self.import(&path, name)
    }

    /// A segment for a target, lowered as the pool lowers it: WebNN gets fixed sizes.
    pub(super) async fn segment(
        &self,
        graph: &StoredGraph,
        target: Target,
        inputs: &[(String, Tensor)],
    ) -> Result<Segment> {
        let dims = match target {
            Target::WebNn => bindings(&self.inputs(graph)?, inputs),
            Target::Cpu | Target::Wasm | Target::WebGpu => BTreeMap::new(),
        };
        let graph = self.engine.lower(graph, target, &dims).await?;
        Ok(Segment { dims, ..Segment::new(graph) })
    }

    /// What a model takes.
    pub(super) fn inputs(&self, graph: &StoredGraph) -> Result<Vec<Value>> {
        Ok(self.store.open_graph(graph)?.inputs())
    }

    /// The answer of the engine in this process.
    pub(super) async fn expected(
        &self,
        graph: &StoredGraph,
        inputs: &[(String, Tensor)],
    ) -> Result<Vec<Tensor>> {
        let loaded = self.engine.load(self.segment(graph, Target::Cpu, inputs).await?).await?;
        let outcome = self.engine.run(program(&loaded, inputs)).await?;
        self.engine.unload(loaded.id).await?;
        Ok(tensors(outcome))
    }

    /// Ends the browser, then the server.
    pub(super) async fn close(self, browser: Browser) -> Result<()> {
        browser.close().await?;
        self.server.stop(Duration::ZERO).await;
        Ok(())
    }
}

/// The packaged Chromium without a window, in a private profile, on a link.
pub(crate) fn launch(link: &str) -> Result<Launch> {
    let cache = std::env::current_exe()?.with_file_name("browser-cache");
    let browser = packaged(&cache, &|line| println!("{line}"))?;
    let guard = GuardCommand::this_program([super::GUARD])?;
    Ok(Launch::new(browser, link, guard))
}

/// A program of one step that returns all that a segment gives.
pub(super) fn program(loaded: &Loaded, inputs: &[(String, Tensor)]) -> Program {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let outputs = loaded.outputs.iter().map(|output| output.name.clone());
    Program::single(format!("bench-{number}"), loaded.id, inputs.to_vec(), outputs)
}

/// Runs a loaded segment once.
pub(super) async fn run(
    device: &dyn Device,
    loaded: &Loaded,
    inputs: &[(String, Tensor)],
) -> Result<Vec<Tensor>, DeviceError> {
    Ok(tensors(device.run(program(loaded, inputs)).await?))
}

pub(super) fn tensors(outcome: Outcome) -> Vec<Tensor> {
    outcome.outputs.into_iter().map(|output| output.tensor).collect()
}

/// The sizes of the named dimensions, by the inputs that are given.
fn bindings(declared: &[Value], inputs: &[(String, Tensor)]) -> BTreeMap<String, usize> {
    let mut bound = BTreeMap::new();
    for (name, tensor) in inputs {
        let value = declared.iter().find(|value| value.name == *name);
        let dims = value.and_then(|value| value.dims.as_ref()).into_iter().flatten();
        for (dim, &size) in dims.zip(tensor.dims()) {
            if let Dim::Named(dim) = dim {
                bound.insert(dim.clone(), size);
            }
        }
    }
    bound
}
