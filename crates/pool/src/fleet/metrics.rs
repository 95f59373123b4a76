//! What the fleet tells about itself.

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::Shared;
use super::history::ScalingEvent;

/// How the browsers are that the pool started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetMetrics {
    /// Browsers that are kept running.
    pub min: usize,
    /// Browsers that may run.
    pub max: usize,
    /// The most that ran at once.
    pub most: usize,
    /// Browsers that were started since the pool was made.
    pub started: u64,
    /// How many of them were replaced.
    pub restarts: u64,
    /// Those that are there.
    pub browsers: Vec<BrowserMetrics>,
    /// What cannot be started for the moment, and why.
    pub failing: Vec<Failing>,
    /// What was done, the oldest first; only the last are kept.
    pub events: Vec<ScalingEvent>,
}

/// How a browser is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BrowserMetrics {
    /// Its name in the fleet.
    pub name: String,
    /// Which browser it is; empty while it is looked for.
    pub kind: String,
    /// Its version.
    pub version: String,
    /// The process id of its main process; `None` before it runs.
    pub process: Option<u32>,
    /// The folder where it keeps its data.
    pub profile: Option<String>,
    /// Memory of its processes, where it can be told.
    pub memory_bytes: Option<u64>,
    /// Memory that they may take.
    pub memory_limit_bytes: Option<u64>,
    /// The names of its lanes that can be heard.
    pub lanes: Vec<String>,
    /// How often the browser in its place was replaced.
    pub restarts: u64,
    /// What it does.
    pub state: BrowserState,
    /// For how long it has been doing that.
    pub since_seconds: f64,
}

/// What a browser does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BrowserState {
    /// It is looked for and started.
    Starting,
    /// It runs; its page has not joined yet.
    Joining,
    /// It takes work.
    Serving,
    /// It finishes what it has.
    Draining,
    /// It is being ended.
    Closing,
}

/// Something that cannot be started for the moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failing {
    /// What.
    pub what: String,
    /// Why.
    pub reason: String,
}

impl Shared {
    pub(super) fn metrics(&self) -> FleetMetrics {
        let lanes = self.lanes.all();
        let state = self.state();
        let now = Instant::now();
        let lanes_of = |page: &str| {
            let own = lanes.iter().filter(|lane| lane.hello().page == page && lane.is_connected());
            own.map(|lane| holdfast_devices::Device::info(lane).name.clone()).collect()
        };
        let browser = |(&id, entry): (&u64, &super::state::Entry)| {
            let facts = entry.facts.as_ref();
            BrowserMetrics {
                name: state.name(id),
                kind: facts.map(|facts| facts.kind.id().to_owned()).unwrap_or_default(),
                version: facts.map(|facts| facts.version.clone()).unwrap_or_default(),
                process: facts.map(|facts| facts.pid),
                profile: facts.map(|facts| facts.profile.display().to_string()),
                memory_bytes: entry.memory,
                memory_limit_bytes: facts.map(|facts| facts.memory_limit),
                lanes: lanes_of(&entry.page),
                restarts: state.restarts.get(entry.place).copied().unwrap_or_default(),
                state: entry.state,
                since_seconds: (now - entry.since).as_secs_f64(),
            }
        };
        let failing = |record: &super::record::Record| {
            let (what, reason) = (record.source.to_string(), record.failing(now)?.to_owned());
            Some(Failing { what, reason })
        };
        FleetMetrics {
            min: self.options.min,
            max: self.options.max.max(self.options.min),
            most: state.most,
            started: state.started,
            restarts: state.restarts.iter().sum(),
            browsers: state.browsers.iter().map(browser).collect(),
            failing: state.records.iter().filter_map(failing).collect(),
            events: state.history.all(),
        }
    }
}
