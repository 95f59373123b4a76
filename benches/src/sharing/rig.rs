//! A store with the models of a family, a pool over it, and a browser where the column needs one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use holdfast_browsers::Browser;
use holdfast_devices::{Device, Loaded, ModelKind, Program, Segment};
use holdfast_devtools::{ARGUMENT, DevTools};
use holdfast_graph::{Model, Tensor, Value, encode};
use holdfast_models::{ImportOptions, Store, StoredGraph};
use holdfast_pool::{Answer, Choices, Pool, PoolOptions, Priority, Request};
use holdfast_server::{Server, ServerOptions};
use holdfast_wire::Backend;

use super::cases::{Column, inputs};
use super::home::{MEMBER, WARM_UP};

/// How long a browser has to join.
const JOIN_LIMIT: Duration = Duration::from_secs(60);

pub(super) struct Rig {
    pub(super) pool: Arc<Pool>,
    pub(super) store: Arc<Store>,
    pub(super) column: Column,
    /// What was imported, and what it takes.
    pub(super) models: Vec<(StoredGraph, Vec<Value>)>,
    pub(super) device: Arc<dyn Device>,
    browser: Option<(Browser, Server)>,
}

impl Rig {
    pub(super) async fn open(home: &Path, column: Column, options: PoolOptions) -> Result<Rig> {
        let store = Arc::new(Store::open(home)?);
        let pool = Arc::new(Pool::new(store.clone(), options)?);
        let mut models = Vec::new();
        for name in store.names()?.iter().filter(|name| name.starts_with(MEMBER)) {
            let graph = store.model(name)?.components.swap_remove(0).graph;
            let takes = store.open_graph(&graph)?.inputs();
            models.push((graph, takes));
        }
        let (device, browser): (Arc<dyn Device>, _) = match column.backend() {
            None => (Arc::new(pool.engine().clone()), None),
            Some(backend) => {
                let browser = join(&pool, backend).await?;
                let lane = pool.lane(backend).await.map_err(|why| anyhow!(why))?;
                (Arc::new(lane), Some(browser))
            }
        };
        Ok(Rig { pool, store, column, models, device, browser })
    }

    /// Imports models, in place of those that there were.
    pub(super) fn bring(&mut self, models: &[Model]) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("model.onnx");
        self.models.clear();
        for (number, model) in models.iter().enumerate() {
            std::fs::write(&file, encode(model))?;
            let options =
                ImportOptions { name: Some(format!("{MEMBER}{number}")), ..Default::default() };
            let mut imported = self.store.import(&file, &options, &mut |_| ())?;
            let graph = imported.manifest.components.swap_remove(0).graph;
            self.models.push((graph, model.inputs()));
        }
        Ok(())
    }

    /// A request for every model, with inputs that another number makes others.
    pub(super) fn requests(&self, number: u64, share: bool) -> Result<Vec<Request>> {
        let request = |(model, (_, takes)): (usize, &(StoredGraph, Vec<Value>))| {
            Ok(self.request(model, inputs(takes, self.column.tokens(), number)?, share))
        };
        self.models.iter().enumerate().map(request).collect()
    }

    pub(super) fn request(
        &self,
        model: usize,
        inputs: Vec<(String, Tensor)>,
        share: bool,
    ) -> Request {
        Request {
            model: "bench".to_owned(),
            graph: self.models[model].0.clone(),
            kind: ModelKind::Text,
            inputs,
            choices: Choices::Ordered(vec![self.column.choice()]),
            priority: Priority::Normal,
            share,
            namespace: String::new(),
            deadline: None,
        }
    }

    /// Runs these at once; all have to succeed.
    pub(super) async fn run(&self, requests: &[Request]) -> Result<Vec<Answer>> {
        let answers = self.pool.run_concurrent(requests).await;
        Ok(answers.into_iter().collect::<Result<_, _>>()?)
    }

    /// Loads and runs the model that keeps the engine warm, which stays: a lane ends an engine
    /// that holds nothing.
    pub(super) async fn warm_up(&self) -> Result<Loaded> {
        let graph = self.store.model(WARM_UP)?.components.swap_remove(0).graph;
        let values = self.store.open_graph(&graph)?.inputs();
        let target = self.column.target();
        let lowered = self.pool.engine().lower(&graph, target, &Default::default()).await?;
        let loaded = self.device.load(Segment::new(lowered)).await?;
        let outputs = loaded.outputs.iter().map(|output| output.name.clone());
        let given = inputs(&values, 16, 1)?;
        self.device.run(Program::single(WARM_UP, loaded.id, given, outputs)).await?;
        Ok(loaded)
    }

    pub(super) fn browser(&self) -> Result<&Browser> {
        Ok(&self.browser.as_ref().context("there is no browser")?.0)
    }

    pub(super) async fn devtools(&self) -> Result<DevTools> {
        Ok(DevTools::connect(self.browser()?.profile()).await?)
    }

    /// Ends the browser, then the server.
    pub(super) async fn close(self) -> Result<()> {
        if let Some((browser, server)) = self.browser {
            browser.close().await?;
            server.stop(Duration::ZERO).await;
        }
        Ok(())
    }
}

/// A browser that has joined with one lane.
async fn join(pool: &Pool, backend: Backend) -> Result<(Browser, Server)> {
    let address = (std::net::Ipv4Addr::LOCALHOST, 0).into();
    let options = ServerOptions { address, ..ServerOptions::default() };
    let server = Server::start(pool.lanes().clone(), options).await?;
    let link = format!("{}&lanes={}", server.join_link(), backend.name());
    let mut launch = crate::lane::launch(&link)?;
    launch.extra_arguments.push(ARGUMENT.to_owned());
    let browser = launch.start().await?;
    let is_there = pool.lanes().wait_for(|lane| lane.backend() == backend && lane.is_connected());
    let joined = tokio::time::timeout(JOIN_LIMIT, browser.while_running(is_there)).await;
    joined.with_context(|| format!("{} did not join", browser.name()))??;
    Ok((browser, server))
}

/// Whether two runs gave the same bits.
pub(super) fn same(one: &Answer, other: &Answer) -> bool {
    let (one, other) = (&one.outcome.outputs, &other.outcome.outputs);
    let same = |(a, b): (&holdfast_devices::Returned, &holdfast_devices::Returned)| {
        a.name == b.name && a.tensor == b.tensor
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}
