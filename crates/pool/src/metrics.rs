//! What the pool tells about itself.

use std::collections::BTreeMap;

use holdfast_predict::Kept;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::fleet::metrics::FleetMetrics;
pub use crate::histogram::Times;
use crate::request::Priority;
use crate::scheduler::member::{Health, Member};
use crate::scheduler::state::State;

/// How the pool is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// How long the pool has been there.
    pub uptime_seconds: f64,
    /// What it runs on.
    pub devices: Vec<DeviceMetrics>,
    /// The browsers that the pool started.
    pub fleet: FleetMetrics,
    /// The devices in numbers.
    pub connections: Connections,
    /// What waits.
    pub queue: QueueMetrics,
    /// How long answers took.
    pub times: TimesMetrics,
    /// What was answered.
    pub throughput: Throughput,
    /// Requests that ran together.
    pub batches: Batches,
    /// Models that came and went.
    pub models: ModelMetrics,
    /// Requests that went on after a device failed under them.
    pub failovers: u64,
    /// Requests that failed, by class.
    pub errors: BTreeMap<String, u64>,
    /// Plans to share that are not used because they would have changed answers, and where.
    #[serde(default)]
    pub refused_plans: Vec<String>,
    /// What became of what was to be recorded; `None` where nothing is.
    #[serde(default)]
    pub recorded: Option<Kept>,
}

/// How a device is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceMetrics {
    /// Its name.
    pub name: String,
    /// What it computes on.
    pub backend: String,
    /// The engine, and the browser that it is in.
    pub engine: String,
    /// What the hardware calls itself.
    pub adapter: String,
    /// Whether it is an accelerator.
    pub accelerated: bool,
    /// Whether it can be heard.
    pub connected: bool,
    /// How much of what it could do it offers now, from 0 to 1: less on a battery that runs low, and
    /// in a page that is hidden.
    pub share: f64,
    /// Programs that it is given at the same time.
    pub slots: usize,
    /// Those that it has.
    pub in_flight: usize,
    /// Models that it has loaded.
    pub models: Vec<LoadedModel>,
    /// The segment of the model that it is loading.
    pub loading: Option<String>,
    /// The graph of that model, as it was imported.
    pub loading_graph: Option<String>,
    /// Bytes of the models, each weight once where the device holds it once, sessions included.
    pub model_bytes: u64,
    /// Bytes of their weights alone.
    pub weight_bytes: u64,
    /// Bytes that it may hold.
    pub model_bytes_limit: u64,
    /// What it has kept of what it computed.
    pub kept: KeptMetrics,
}

/// What a device has kept of what it computed, for other models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptMetrics {
    /// Tensors.
    pub tensors: usize,
    /// Their bytes.
    pub bytes: u64,
    /// How often one was there when it was looked for.
    pub hits: u64,
    /// How often not.
    pub misses: u64,
}

/// A model that a device has loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadedModel {
    /// Its segment.
    pub segment: String,
    /// Its graph, as it was imported: by that the store knows it.
    pub graph: String,
    /// Whether it runs by way of what it shares with others.
    #[serde(default)]
    pub shared: bool,
    /// The sizes that it was made for; those that are not named are free.
    pub dims: BTreeMap<String, usize>,
    /// Bytes of its weights.
    pub bytes: u64,
    /// Programs that use it right now.
    pub in_use: usize,
}

/// The devices in numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Connections {
    /// Those that are there.
    pub current: usize,
    /// The most that were there at once.
    pub max: usize,
    /// Those that have something to do.
    pub active: usize,
    /// Those that have not.
    pub idle: usize,
    /// The share of all slots that is in use.
    pub utilisation: f64,
    /// By browser; the in-process engine is `none`.
    pub by_browser: BTreeMap<String, usize>,
    /// By what they compute on.
    pub by_backend: BTreeMap<String, usize>,
    /// Those that have gone.
    pub gone: u64,
}

/// What waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueMetrics {
    /// Requests that wait for their turn.
    pub length: usize,
    /// By priority.
    pub by_priority: BTreeMap<String, usize>,
    /// Requests that were accepted and not answered yet.
    pub accepted: usize,
    /// How many may be.
    pub limit: usize,
    /// How long the oldest of those that are next has waited.
    pub oldest_ms: f64,
}

/// How long answers took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimesMetrics {
    /// Waiting for their turn.
    pub queue: Times,
    /// On the way to the device and back.
    pub transfer: Times,
    /// In the engine.
    pub compute: Times,
    /// Off the device.
    pub readback: Times,
}

/// What was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Since the start.
    pub answered: u64,
    /// Over the last minute.
    pub per_second: f64,
}

/// Requests that ran together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Batches {
    /// How many batches.
    pub count: u64,
    /// How many requests were in them.
    pub requests: u64,
    /// How many rows.
    pub rows: u64,
    /// Kinds of batches that were proven to keep the bits of every row.
    pub proven: usize,
    /// Kinds of batches that were found not to, and are not used.
    pub refuted: usize,
}

/// Models that came and went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelMetrics {
    /// Loads that succeeded.
    pub loads: u64,
    /// Loads that failed.
    pub failed_loads: u64,
    /// Models that had to make room for others.
    pub unloads: u64,
}

impl Metrics {
    pub(crate) fn of(state: &State, accepted: usize, limit: usize, fleet: FleetMetrics) -> Metrics {
        let account = &state.account;
        let lengths = state.queue.lengths();
        let (proven, refuted) = state.proofs.counts();
        let waited = |since: Instant| since.elapsed().as_secs_f64() * 1e3;
        Metrics {
            uptime_seconds: account.since.elapsed().as_secs_f64(),
            devices: state.members.values().map(DeviceMetrics::of).collect(),
            fleet,
            connections: Connections::of(state),
            queue: QueueMetrics {
                length: lengths.iter().sum(),
                by_priority: Priority::ALL.iter().map(ToString::to_string).zip(lengths).collect(),
                accepted,
                limit,
                oldest_ms: state.queue.oldest().map_or(0.0, waited),
            },
            times: TimesMetrics {
                queue: account.queue.summary(),
                transfer: account.transfer.summary(),
                compute: account.compute.summary(),
                readback: account.readback.summary(),
            },
            throughput: Throughput { answered: account.answered, per_second: account.throughput() },
            batches: Batches {
                count: account.batches,
                requests: account.requests_in_batches,
                rows: account.rows_in_batches,
                proven,
                refuted,
            },
            models: ModelMetrics {
                loads: account.loads.succeeded,
                failed_loads: account.loads.failed,
                unloads: account.unloads,
            },
            failovers: account.failovers,
            errors: account
                .errors
                .iter()
                .map(|(class, count)| ((*class).to_owned(), *count))
                .collect(),
            refused_plans: account.refused_plans.iter().cloned().collect(),
            recorded: None,
        }
    }
}

impl DeviceMetrics {
    fn of(member: &Member) -> DeviceMetrics {
        let info = &member.info;
        let model =
            |(id, held): (&holdfast_devices::SegmentId, &crate::scheduler::member::Held)| {
                let first = held.model.segments.first();
                LoadedModel {
                    segment: id.to_string(),
                    graph: held.model.original.to_string(),
                    dims: first.map(|(_, segment)| segment.dims.clone()).unwrap_or_default(),
                    shared: held.model.shared.is_some(),
                    bytes: held.model.bytes,
                    in_use: held.in_use,
                }
            };
        let mut models: Vec<LoadedModel> = member.loaded.iter().map(model).collect();
        models.sort_by(|a, b| a.segment.cmp(&b.segment));
        let loading = member.loading.as_ref().and_then(|loading| loading.model.as_ref());
        DeviceMetrics {
            name: info.name.clone(),
            backend: info.backend.clone(),
            engine: info.engine.clone(),
            adapter: info.adapter.clone(),
            accelerated: info.accelerated,
            connected: member.health == Health::Ready,
            share: member.share,
            slots: member.slots(),
            in_flight: member.in_flight(),
            models,
            loading: loading.map(|model| model.id.to_string()),
            loading_graph: loading.map(|model| model.original.to_string()),
            model_bytes: member.bytes(),
            weight_bytes: member.weight_bytes(),
            model_bytes_limit: member.options.memory_bytes,
            kept: member.cache.stats(),
        }
    }
}

impl Connections {
    fn of(state: &State) -> Connections {
        let members = || state.members.values();
        let slots: usize = members().map(Member::slots).sum();
        let in_flight: usize = members().map(|member| member.in_flight()).sum();
        let is_active = |member: &&Member| member.in_flight() > 0 || member.loading.is_some();
        let active = members().filter(is_active).count();
        let mut by_browser = BTreeMap::new();
        let mut by_backend = BTreeMap::new();
        for member in members() {
            let browser = member.options.browser.clone().unwrap_or_else(|| "none".to_owned());
            *by_browser.entry(browser).or_default() += 1;
            *by_backend.entry(member.info.backend.clone()).or_default() += 1;
        }
        Connections {
            current: state.members.len(),
            max: state.account.most_devices,
            active,
            idle: state.members.len() - active,
            utilisation: if slots > 0 { in_flight as f64 / slots as f64 } else { 0.0 },
            by_browser,
            by_backend,
            gone: state.account.devices_gone,
        }
    }
}
