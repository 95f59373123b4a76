//! The fleet: the browsers that the pool starts, watches, replaces and closes.
//!
//! A [`Fleet`] is the pool's hold on a supervisor task, which alone decides what is started and
//! closed ([`decide`]). Each browser has a task of its own that starts it, watches over it
//! ([`health`]) and ends it. They share what is known behind one short lock.

mod decide;
mod health;
pub(crate) mod history;
pub(crate) mod metrics;
mod options;
mod record;
mod started;
mod state;
mod supervisor;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use holdfast_devices::lane::{Lane, Lanes};
use holdfast_wire::{Backend, WebGpuInfo, WebNnInfo};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub use options::BrowserOptions;

use crate::carry::Patience;
use crate::measurements::Measurements;
use crate::pool::lock;
use crate::scheduler::Scheduler;
use decide::Picture;
use metrics::FleetMetrics;
use state::State;

/// The pool's hold on its browsers. When it goes, so do they.
pub(crate) struct Fleet {
    shared: Arc<Shared>,
    shutdown: watch::Sender<bool>,
    supervisor: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    options: BrowserOptions,
    lanes: Arc<Lanes>,
    scheduler: Scheduler,
    measurements: Arc<Measurements>,
    progress: Arc<dyn Fn(&str) + Send + Sync>,
    /// There is something to decide.
    poke: Notify,
    /// Changes whenever those who wait for a lane should look again.
    changes: watch::Sender<u64>,
    /// Never held while anything is awaited.
    state: Mutex<State>,
}

/// How long a request waits for a lane at most. A browser that does not join is given up sooner;
/// this is for a lane that a browser said it would have.
const LANE_LIMIT: Duration = Duration::from_secs(120);

impl Fleet {
    /// No browsers yet: they are started once there is a link to join by.
    pub(crate) fn new(
        options: BrowserOptions,
        lanes: Arc<Lanes>,
        scheduler: Scheduler,
        measurements: Arc<Measurements>,
        progress: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Fleet {
        let state = Mutex::new(State::new(&options));
        let (poke, changes) = (Notify::new(), watch::channel(0).0);
        let shared =
            Shared { options, lanes, scheduler, measurements, progress, poke, changes, state };
        let supervisor = Mutex::default();
        Fleet { shared: Arc::new(shared), shutdown: watch::channel(false).0, supervisor }
    }

    /// Tells by which link browsers join from now on.
    pub(crate) fn open_door(&self, link: String) {
        self.shared.state().door = Some(link);
        self.supervise();
        self.shared.poke.notify_one();
    }

    /// Waits for a lane on a backend, for which browsers are started. The error says why there
    /// will be none.
    pub(crate) async fn lane(&self, backend: Backend, patience: Patience) -> Result<Lane, String> {
        self.supervise();
        let shared = &self.shared;
        let (mut changes, mut joins) = (shared.changes.subscribe(), shared.lanes.changes());
        let _need = Need::new(shared.clone(), backend);
        let until = Instant::now() + LANE_LIMIT;
        loop {
            changes.mark_unchanged();
            joins.mark_unchanged();
            let (scheduler, measurements) = (&shared.scheduler, &shared.measurements);
            if let Some(lane) = there(&shared.lanes, scheduler, measurements, backend) {
                return Ok(lane);
            }
            if let Some(reason) = shared.refusal(backend, patience) {
                return Err(reason);
            }
            tokio::select! {
                _ = changes.changed() => {}
                _ = joins.changed() => {}
                () = tokio::time::sleep_until(until) => {
                    let (name, seconds) = (backend.name(), LANE_LIMIT.as_secs());
                    return Err(format!("no lane on {name} has joined within {seconds} s"));
                }
            }
        }
    }

    /// A lane was measured; if it is no accelerator, with the reason.
    pub(crate) fn measured(&self, lane: &Lane, plain: Option<String>) {
        let mut state = self.shared.state();
        let own = state.browsers.values().find(|entry| entry.page == lane.hello().page);
        if let Some(source) = own.map(|entry| entry.source) {
            state.records[source].measured(lane.backend(), plain, Instant::now());
        }
    }

    /// Why its browsers have no accelerator on a backend, if that was found out.
    pub(crate) fn no_accelerator(&self, backend: Backend) -> Option<String> {
        let state = self.shared.state();
        decide::no_accelerator(&self.shared.picture(&state), backend)
    }

    /// How the fleet is.
    pub(crate) fn metrics(&self) -> FleetMetrics {
        self.shared.metrics()
    }

    /// Bytes of memory that all its browsers take now; `None` where that cannot be told, and where
    /// one of these pages is in another browser.
    pub(crate) async fn memory(&self, pages: &HashSet<String>) -> Option<u64> {
        let processes: Vec<u32> = {
            let state = self.shared.state();
            let own = |page: &String| state.browsers.values().any(|entry| entry.page == *page);
            if !pages.iter().all(own) {
                return None;
            }
            state.browsers.values().filter_map(|entry| Some(entry.facts.as_ref()?.pid)).collect()
        };
        let measure = move || {
            let each = processes.into_iter().map(holdfast_browsers::tree_memory);
            each.sum::<Option<u64>>().filter(|bytes| *bytes > 0)
        };
        tokio::task::spawn_blocking(measure).await.ok().flatten()
    }

    /// Bytes of memory of the browser that a page is in, when it was looked at last.
    pub(crate) fn last_memory(&self, page: &str) -> Option<u64> {
        self.shared.state().browsers.values().find(|entry| entry.page == page)?.memory
    }

    /// Ends all browsers, and starts none from now on. Returns when their processes are gone and
    /// their profiles removed.
    pub(crate) async fn close(&self) {
        self.shared.state().closed = true;
        self.shared.changed();
        self.shutdown.send_replace(true);
        let supervisor = lock(&self.supervisor).take();
        if let Some(supervisor) = supervisor {
            // It only ends early if it panicked, and then its browsers went with it.
            let _ = supervisor.await;
        }
    }

    /// Starts the supervisor, if it is not there. Outside of a runtime it has to wait.
    fn supervise(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut supervisor = lock(&self.supervisor);
        if supervisor.is_none() && !self.shared.state().closed {
            let run = supervisor::run(self.shared.clone(), self.shutdown.subscribe());
            *supervisor = Some(runtime.spawn(run));
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Has those who wait look again.
    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Why there will be no lane on a backend.
    fn refusal(&self, backend: Backend, patience: Patience) -> Option<String> {
        let state = self.state();
        if state.closed {
            return Some("the pool is closed".to_owned());
        }
        if state.door.is_none() {
            return Some("there is no link to join by".to_owned());
        }
        decide::refusal(&self.picture(&state), backend, patience)
    }

    /// What decisions are made by.
    fn picture(&self, state: &State) -> Picture {
        state.picture(&self.options, &self.scheduler, &self.lanes, &self.measurements)
    }
}

/// Somebody waits for a lane.
struct Need {
    shared: Arc<Shared>,
    backend: Backend,
}

impl Need {
    fn new(shared: Arc<Shared>, backend: Backend) -> Need {
        shared.state().needs.push(backend);
        shared.poke.notify_one();
        Need { shared, backend }
    }
}

impl Drop for Need {
    fn drop(&mut self) {
        let needs = &mut self.shared.state().needs;
        if let Some(position) = needs.iter().position(|backend| *backend == self.backend) {
            needs.swap_remove(position);
        }
    }
}

/// A lane on a backend that takes work now: the first of those that failed least.
pub(crate) fn there(
    lanes: &Lanes,
    scheduler: &Scheduler,
    measurements: &Measurements,
    backend: Backend,
) -> Option<Lane> {
    let takes_work = |lane: &Lane| {
        lane.backend() == backend
            && lane.is_connected()
            && lane.power().share > 0.0
            && !scheduler.is_withdrawn(&lane.hello().page)
            && measurements.given_up(lane).is_none()
    };
    let taking = lanes.all().into_iter().filter(takes_work);
    taking.min_by_key(|lane| measurements.failures(lane))
}

/// Why a browser has no such backend, by what one of its lanes said.
pub(crate) fn missing(lane: &Lane, backend: Backend) -> Option<String> {
    let hello = lane.hello();
    match (backend, &hello.webgpu, &hello.webnn) {
        (Backend::Webgpu, WebGpuInfo::Missing { reason }, _)
        | (Backend::Webnn, _, WebNnInfo::Missing { reason }) => {
            let name = &hello.browser.name;
            // Most reasons name the browser themselves.
            Some(if reason.contains(name) { reason.clone() } else { format!("{name}: {reason}") })
        }
        _ => None,
    }
}
