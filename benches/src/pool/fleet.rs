//! A pool with browsers of its own, and what of them can be seen and broken from outside.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use holdfast_browsers::{GuardCommand, Kind};
use holdfast_devices::ModelKind;
use holdfast_graph::{Model, Tensor, encode};
use holdfast_models::{ImportOptions, Store, StoredGraph};
use holdfast_pool::{BrowserOptions, Pool, PoolOptions, Priority, Request};
use holdfast_server::{Server, ServerOptions};
use holdfast_testkit::{Recipe, bert};

use crate::lane::proxy::Proxy;
use crate::spine::cases::MINILM;

pub(super) struct Fleet {
    pub(super) pool: Arc<Pool>,
    pub(super) proxy: Proxy,
    _server: Server,
    pub(super) store: Arc<Store>,
    folder: tempfile::TempDir,
}

impl Fleet {
    /// Two packaged browsers with so many lanes on each backend, on a line that can be cut.
    pub(super) async fn start(lanes: usize) -> Result<Fleet> {
        let folder = tempfile::tempdir()?;
        let store = Arc::new(Store::open(folder.path().join("home"))?);
        let cache = std::env::current_exe()?.with_file_name("browser-cache");
        let guard = GuardCommand::this_program([crate::lane::GUARD])?;
        let browser = BrowserOptions {
            kinds: vec![Kind::Packaged],
            min: 2,
            max: 2,
            lanes,
            extra_arguments: vec![holdfast_devtools::ARGUMENT.to_owned()],
            ..BrowserOptions::new(cache, guard)
        };
        let options = PoolOptions { browser: Some(browser), ..PoolOptions::default() };
        let pool = Arc::new(Pool::new(store.clone(), options)?);
        let address = (std::net::Ipv4Addr::LOCALHOST, 0).into();
        let options = ServerOptions { address, ..ServerOptions::default() };
        let server = Server::start(pool.lanes().clone(), options).await?;
        let proxy = Proxy::start(server.address()).await?;
        pool.open_door(proxy.link(&server.join_link()));
        Ok(Fleet { pool, proxy, _server: server, store, folder })
    }

    /// MiniLM at 32 tokens.
    pub(super) fn minilm(&self) -> Result<StoredGraph> {
        self.import(&MINILM.path())
    }

    /// BERT of two layers of 64.
    pub(super) fn tiny_bert(&self) -> Result<StoredGraph> {
        self.add(&bert(&Recipe::tiny(1))?, "tiny-bert")
    }

    pub(super) fn add(&self, model: &Model, name: &str) -> Result<StoredGraph> {
        let path = self.folder.path().join(format!("{name}.onnx"));
        std::fs::write(&path, encode(model))?;
        self.import(&path)
    }

    pub(super) fn import(&self, path: &Path) -> Result<StoredGraph> {
        let imported = self.store.import(path, &ImportOptions::default(), &mut |_| ())?;
        Ok(imported.manifest.components[0].graph.clone())
    }

    /// A request with ids below a limit, which depend on its number.
    pub(super) fn request(
        &self,
        graph: &StoredGraph,
        (tokens, limit): (usize, usize),
        number: usize,
        choices: &str,
    ) -> Result<Request> {
        let id = |token: usize| 1 + ((number * 7919 + token * 104_729) % (limit - 1)) as i64;
        let make = |value: holdfast_graph::Value| -> Result<(String, Tensor)> {
            let ids: Vec<i64> = match value.name.as_str() {
                "input_ids" => (0..tokens).map(id).collect(),
                "attention_mask" => vec![1; tokens],
                _ => vec![0; tokens],
            };
            Ok((value.name, Tensor::from_slice(&[1, tokens], &ids)?))
        };
        let inputs = self.store.open_graph(graph)?.inputs().into_iter().map(make);
        Ok(Request {
            model: "bench".to_owned(),
            graph: graph.clone(),
            kind: ModelKind::Other,
            inputs: inputs.collect::<Result<_>>()?,
            choices: choices.parse().map_err(anyhow::Error::msg)?,
            priority: Priority::Normal,
            share: false,
            namespace: String::new(),
            deadline: None,
        })
    }
}

/// A process, told apart from a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Process {
    pub(super) pid: u32,
    started: u64,
}

impl Process {
    /// Whether it is there, even if it only waits to be reaped.
    pub(super) fn is_there(self) -> bool {
        look(self.pid).is_some_and(|(_, started)| started == self.started)
    }
}

/// Everything below a process.
pub(super) fn descendants(ancestor: u32) -> Result<BTreeSet<Process>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some((pid, (parent, started))) = pid.and_then(|pid| Some((pid, look(pid)?))) {
            all.push((Process { pid, started }, parent));
        }
    }
    let mut found = BTreeSet::new();
    let mut frontier = vec![ancestor];
    while let Some(parent) = frontier.pop() {
        for (process, _) in all.iter().filter(|(_, of)| *of == parent) {
            if found.insert(*process) {
                frontier.push(process.pid);
            }
        }
    }
    Ok(found)
}

/// The processes of a browser that do this.
pub(super) fn of_role(browser: u32, role: &str) -> Result<Vec<u32>> {
    let flag = format!("--type={role}");
    let has_role = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains(&flag)
    };
    Ok(descendants(browser)?.into_iter().map(|each| each.pid).filter(has_role).collect())
}

/// A process's parent and when it started.
fn look(pid: u32) -> Option<(u32, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may have anything in it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some((fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}

pub(super) fn kill(pid: u32) -> Result<()> {
    use rustix::process::{Pid, Signal, kill_process};
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("no process has this id")?;
    Ok(kill_process(pid, Signal::KILL)?)
}

/// The profiles of the browsers that are there.
pub(super) fn profiles(pool: &Pool) -> BTreeSet<PathBuf> {
    let browsers = pool.metrics().fleet.browsers;
    browsers.into_iter().filter_map(|browser| browser.profile).map(PathBuf::from).collect()
}
