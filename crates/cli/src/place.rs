//! Where models run: in this process, or in a server that runs already.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use holdfast_browsers::GuardCommand;
use holdfast_devices::cpu::CpuOptions;
use holdfast_devices::lane::LaneOptions;
use holdfast_models::Store;
use holdfast_pool::{Answer, BrowserOptions, Pool, PoolOptions, Request};
use holdfast_server::{Server, ServerFile, ServerOptions};

use crate::args::{BrowserArgs, Global, Patience};

/// Runs requests.
pub(crate) enum Place {
    /// In this process; the server is there for its browser, if one may be needed.
    Here { pool: Arc<Pool>, server: Option<Server> },
    /// In a server that runs on the same store.
    There(ServerFile),
}

impl Place {
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
        Ok(Place::Here { pool, server })
    }

    /// Runs a model.
    pub(crate) async fn run(&self, request: &Request) -> anyhow::Result<Answer> {
        Ok(match self {
            Place::Here { pool, .. } => pool.run(request).await?,
            Place::There(server) => server.run(request).await?,
        })
    }

    /// Ends what was started for it.
    pub(crate) async fn close(self) {
        if let Place::Here { pool, server } = self {
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
    browser: Option<&BrowserArgs>,
    threads: Option<u16>,
    progress: Arc<dyn Fn(&str) + Send + Sync>,
) -> anyhow::Result<PoolOptions> {
    let mut cpu = CpuOptions { library: global.onnxruntime.clone(), ..CpuOptions::default() };
    if let Some(threads) = threads {
        cpu.threads = threads.into();
    }
    let mut lanes = LaneOptions::default();
    for &(what, factor) in browser.iter().flat_map(|args| &args.patience) {
        match what {
            Patience::Kind(kind) => drop(lanes.timeouts.kinds.insert(kind, factor)),
            Patience::LargeInputs => lanes.timeouts.large_input = factor,
        }
    }
    let browser = browser.map(|args| browser_options(global, args)).transpose()?;
    Ok(PoolOptions { cpu, lanes, browser, progress })
}

/// The browser that the command line asks for.
pub(crate) fn browser_options(
    global: &Global,
    args: &BrowserArgs,
) -> anyhow::Result<BrowserOptions> {
    Ok(BrowserOptions {
        program: args.browser_program.clone(),
        kind: args.browser,
        headless: !args.window,
        cache: global.home()?.join("browsers"),
        guard: GuardCommand::this_program(["guard"]).context("cannot find this program's path")?,
    })
}
