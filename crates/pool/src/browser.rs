//! The browser that the pool starts when a model wants one and none is there.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_browsers::{Browser, BrowserError, GuardCommand, Installed, Kind, Launch, at, find};
use holdfast_devices::lane::{Lane, Lanes};
use holdfast_wire::{Backend, WebGpuInfo, WebNnInfo};

use crate::pool::explain;

/// Which browser to start, and how.
#[derive(Clone, Debug)]
pub struct BrowserOptions {
    /// A program to use instead of one that is found.
    pub program: Option<PathBuf>,
    /// A kind to use; `None` for the best there is.
    pub kind: Option<Kind>,
    /// Without a window.
    pub headless: bool,
    /// Where a packaged browser is unpacked.
    pub cache: PathBuf,
    /// How the guard is started.
    pub guard: GuardCommand,
}

impl BrowserOptions {
    /// The browser to start.
    pub fn choose(&self, progress: &dyn Fn(&str)) -> Result<Installed, BrowserError> {
        match &self.program {
            Some(program) => at(program),
            None => find(&self.cache, progress).pick(self.kind).cloned(),
        }
    }
}

/// How long a browser has from its start to its first hello.
const JOIN_LIMIT: Duration = Duration::from_secs(60);

/// A browser that was started.
pub(crate) struct Started {
    browser: Browser,
    /// What its page calls itself, so that its lanes are told from those of others.
    page: String,
}

impl Started {
    pub(crate) async fn start(
        options: &BrowserOptions,
        link: &str,
        progress: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Result<Started, BrowserError> {
        let chosen = {
            let (options, progress) = (options.clone(), progress.clone());
            // Finding runs programs and may unpack one.
            let chosen =
                tokio::task::spawn_blocking(move || options.choose(&|text| progress(text)));
            chosen.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?
        };
        progress(&format!("starting {chosen}"));
        let page = holdfast_devices::Secret::random().reveal().to_owned();
        let link = format!("{link}&page={page}");
        let mut launch = Launch::new(chosen, link, options.guard.clone());
        launch.headless = options.headless;
        Ok(Started { browser: launch.start().await?, page })
    }

    /// Whether it has ended, or hung so that all its lanes are gone.
    pub(crate) async fn has_ended(&self) -> bool {
        tokio::select! {
            biased;
            _ = self.browser.exited() => true,
            () = std::future::ready(()) => false,
        }
    }

    /// Waits for its lane on a backend; the error says why there will be none.
    pub(crate) async fn lane(&self, lanes: &Lanes, backend: Backend) -> Result<Lane, String> {
        let settled = lanes.wait_for(|lane| {
            self.owns(lane)
                && lane.is_connected()
                && (lane.backend() == backend || missing(lane, backend).is_some())
        });
        let waited = tokio::time::timeout(JOIN_LIMIT, self.browser.while_running(settled)).await;
        let name = self.browser.name();
        let lane = waited
            .map_err(|_| format!("{name} did not join within {} s", JOIN_LIMIT.as_secs()))?
            .map_err(|error| explain(&error))?;
        match missing(&lane, backend) {
            Some(reason) if lane.backend() != backend => Err(reason),
            _ => Ok(lane),
        }
    }

    /// Ends its lanes and the browser itself.
    pub(crate) async fn close(&self, lanes: &Lanes) {
        for lane in lanes.all().iter().filter(|lane| self.owns(lane)) {
            lane.leave("its browser is closed", false);
        }
        // The guard ends it in any case.
        let _ = self.browser.close().await;
    }

    fn owns(&self, lane: &Lane) -> bool {
        lane.hello().page == self.page
    }
}

/// Why a browser has no such backend, by what one of its lanes said.
pub(crate) fn missing(lane: &Lane, backend: Backend) -> Option<String> {
    let hello = lane.hello();
    match (backend, &hello.webgpu, &hello.webnn) {
        (Backend::Webgpu, WebGpuInfo::Missing { reason }, _)
        | (Backend::Webnn, _, WebNnInfo::Missing { reason }) => {
            Some(format!("{} has no {}: {reason}", hello.browser.name, backend.name()))
        }
        _ => None,
    }
}
