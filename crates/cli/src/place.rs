//! Where models run: in this process, or in a server that runs already.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use holdfast_browsers::GuardCommand;
use holdfast_devices::cpu::CpuOptions;
use holdfast_devices::lane::LaneOptions;
use holdfast_models::Store;
use holdfast_pool::{Answer, BrowserOptions, Execution, Pool, PoolOptions, Request, Workload};
use holdfast_predict::Strategy;
use holdfast_server::{Server, ServerFile, ServerOptions};

use crate::args::{BrowserArgs, Browsers, DbArgs, FleetArgs, Global, Patience};
use crate::chronicle::Recording;
use crate::output::{self, Spinner};

/// Runs requests.
pub(crate) enum Place {
    /// In this process; the server is there for its browser, if one may be needed.
    Here { pool: Arc<Pool>, server: Option<Server>, recording: Option<Recording> },
    /// In a server that runs on the same store.
    There(ServerFile),
}

/// What a command wants of its place.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) fleet: &'a FleetArgs,
    pub(crate) threads: Option<u16>,
    /// Whether a browser may be needed.
    pub(crate) with_browser: bool,
}

impl Place {
    /// The server that runs already, unless an engine of one's own is wanted; else this process.
    pub(crate) async fn find(
        global: &Global,
        store: &Arc<Store>,
        wanted: Wanted<'_>,
        spinner: Arc<Spinner>,
    ) -> anyhow::Result<Place> {
        let own_engine = wanted.threads.is_some() || global.onnxruntime.is_some();
        if !own_engine && let Some(server) = ServerFile::find(&global.home()?) {
            if wanted.fleet.is_set() {
                output::warn("a server runs, so what was said about the browser does not count");
            }
            return Ok(Place::There(server));
        }
        let progress = Arc::new(move |text: &str| spinner.say(text.to_owned()));
        let options = pool_options(global, Some(wanted.fleet), wanted.threads, progress)?;
        let recording = Recording::start(global, &DbArgs::default())?;
        let options = recording.of_pool(options);
        let mut place = Place::here(store.clone(), options, wanted.with_browser).await?;
        if let Place::Here { recording: kept, .. } = &mut place {
            *kept = Some(recording);
        }
        Ok(place)
    }

    /// This process, with a door for browsers if `with_browser`.
    pub(crate) async fn here(
        store: Arc<Store>,
        options: PoolOptions,
        with_browser: bool,
    ) -> anyhow::Result<Place> {
        let pool = Arc::new(Pool::new(store, options)?);
        let server = match with_browser {
            true => {
                let address = (std::net::Ipv4Addr::LOCALHOST, 0).into();
                let options = ServerOptions { address, ..ServerOptions::default() };
                let server = Server::start(pool.lanes().clone(), options).await?;
                pool.open_door(server.join_link());
                Some(server)
            }
            false => None,
        };
        Ok(Place::Here { pool, server, recording: None })
    }

    /// Runs a model.
    pub(crate) async fn run(&self, request: &Request) -> anyhow::Result<Answer> {
        Ok(match self {
            Place::Here { pool, .. } => pool.run(request).await?,
            Place::There(server) => server.run(request).await?,
        })
    }

    /// Runs a workload, by the strategy that is given or by the one that is recommended.
    pub(crate) async fn execute(
        &self,
        workload: &Workload,
        strategy: Option<Strategy>,
    ) -> anyhow::Result<Execution> {
        Ok(match self {
            Place::Here { pool, .. } => pool.execute(workload, strategy).await?,
            Place::There(server) => server.execute(workload, strategy).await?,
        })
    }

    /// Brings models into play together, so that what they share is known before they run. A server
    /// finds that out by itself.
    pub(crate) async fn bring_together(&self, requests: &[Request]) {
        if let Place::Here { pool, .. } = self {
            pool.bring_together(requests).await;
        }
    }

    /// Bytes of weights that the devices hold; `None` where others use them too.
    pub(crate) fn held(&self) -> Option<u64> {
        match self {
            Place::Here { pool, .. } => {
                Some(pool.metrics().devices.iter().map(|device| device.weight_bytes).sum())
            }
            Place::There(_) => None,
        }
    }

    /// Whether this is the place and no lane has joined.
    pub(crate) fn has_no_lanes(&self) -> bool {
        match self {
            Place::Here { pool, .. } => pool.lanes().all().is_empty(),
            Place::There(_) => false,
        }
    }

    /// Ends what was started for it.
    pub(crate) async fn close(self) {
        if let Place::Here { pool, server, recording } = self {
            if let Some(recording) = recording {
                pool.ledger().settled().await;
                pool.ledger().save();
                recording.finish();
            }
            pool.close().await;
            if let Some(server) = server {
                server.stop(Duration::ZERO).await;
            }
        }
    }
}

/// A pool as the command line asks for it.
pub(crate) fn pool_options(
    global: &Global,
    fleet: Option<&FleetArgs>,
    threads: Option<u16>,
    progress: Arc<dyn Fn(&str) + Send + Sync>,
) -> anyhow::Result<PoolOptions> {
    let mut cpu = CpuOptions { library: global.onnxruntime.clone(), ..CpuOptions::default() };
    if let Some(threads) = threads {
        cpu.threads = threads.into();
    }
    let mut lanes = LaneOptions::default();
    for &(what, factor) in fleet.iter().flat_map(|fleet| &fleet.browser.patience) {
        match what {
            Patience::Kind(kind) => drop(lanes.timeouts.kinds.insert(kind, factor)),
            Patience::LargeInputs => lanes.timeouts.large_input = factor,
        }
    }
    let browser = fleet.map(|fleet| fleet_options(global, fleet)).transpose()?;
    Ok(PoolOptions { cpu, lanes, browser, progress, ..PoolOptions::default() })
}

/// The browsers that the command line asks for.
fn fleet_options(global: &Global, fleet: &FleetArgs) -> anyhow::Result<BrowserOptions> {
    let options = browser_options(global, &fleet.browser)?;
    let Browsers { min, max } =
        fleet.browsers.unwrap_or(Browsers { min: options.min, max: options.max });
    let lanes = fleet.lanes.map_or(options.lanes, usize::from);
    Ok(BrowserOptions { min, max, lanes, ..options })
}

/// The browser that the command line asks for.
pub(crate) fn browser_options(
    global: &Global,
    args: &BrowserArgs,
) -> anyhow::Result<BrowserOptions> {
    let guard = GuardCommand::this_program(["guard"]).context("cannot find this program's path")?;
    Ok(BrowserOptions {
        program: args.program(),
        kinds: args.browser.clone(),
        headless: !args.window,
        ..BrowserOptions::new(global.home()?.join("browsers"), guard)
    })
}
