//! Everything that the fleet's lock guards.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use holdfast_browsers::Kind;
use holdfast_devices::lane::{Lane, Lanes};
use holdfast_wire::Backend;
use tokio::sync::watch;
use tokio::time::Instant;

use super::decide::{BrowserView, Picture, SourceView, Stage};
use super::history::{History, ScalingEvent, ScalingStep};
use super::metrics::BrowserState;
use super::options::BrowserOptions;
use super::record::Record;
use crate::measurements::Measurements;
use crate::scheduler::Scheduler;

pub(super) struct State {
    since: Instant,
    /// The link by which browsers join, once there is a server.
    pub(super) door: Option<String>,
    pub(super) closed: bool,
    /// What can be started, the preferred one first.
    pub(super) records: Vec<Record>,
    pub(super) browsers: BTreeMap<u64, Entry>,
    /// Backends that somebody waits for.
    pub(super) needs: Vec<Backend>,
    pub(super) history: History,
    /// How often a browser was replaced, by the place that it has in the fleet.
    pub(super) restarts: Vec<u64>,
    /// Browsers that were started.
    pub(super) started: u64,
    pub(super) most: usize,
}

/// A browser that was started, or is about to be.
pub(super) struct Entry {
    /// What of the records it is.
    pub(super) source: usize,
    /// The lowest that was free.
    pub(super) place: usize,
    /// What its page calls itself, so that its lanes are told from those of others.
    pub(super) page: String,
    pub(super) state: BrowserState,
    /// Since when it is in this state.
    pub(super) since: Instant,
    pub(super) facts: Option<Facts>,
    pub(super) memory: Option<u64>,
    pub(super) lacks: Vec<(Backend, String)>,
    pub(super) order: watch::Sender<Order>,
}

/// What is known of a browser once it runs.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) kind: Kind,
    pub(super) version: String,
    pub(super) pid: u32,
    pub(super) profile: PathBuf,
    pub(super) memory_limit: u64,
}

/// What a browser's task is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// To go on.
    Stay,
    /// To finish what there is and end.
    Leave(String),
    /// To end at once.
    End,
}

/// What a page may have lanes on.
pub(super) const BACKENDS: [Backend; 3] = [Backend::Webgpu, Backend::Webnn, Backend::Wasm];

/// How long a browser that joined has until it shows what it does for those who wait: its lanes
/// are measured, and load models.
const SETTLING: Duration = Duration::from_secs(3);

impl State {
    pub(super) fn new(options: &BrowserOptions) -> State {
        State {
            since: Instant::now(),
            door: None,
            closed: false,
            records: options.sources().into_iter().map(Record::new).collect(),
            browsers: BTreeMap::new(),
            needs: Vec::new(),
            history: History::default(),
            restarts: Vec::new(),
            started: 0,
            most: 0,
        }
    }

    /// What decisions are made by.
    pub(super) fn picture(
        &self,
        options: &BrowserOptions,
        scheduler: &Scheduler,
        lanes: &Lanes,
        measurements: &Measurements,
    ) -> Picture {
        let asked: Vec<Lane> = lanes.all();
        let is_asked =
            |page: &str| asked.iter().any(|lane| lane.hello().page == page && lane.in_flight() > 0);
        let now = Instant::now();
        // What failed its measurements is as good as not there, and the next browser of the same
        // source is no better as long as this one shows it.
        let useless = |entry: &Entry| {
            let own = asked.iter().filter(|lane| lane.hello().page == entry.page);
            let useless = |backend| Some((backend, measurements.useless(own.clone(), backend)?));
            BACKENDS.into_iter().filter_map(useless).collect::<Vec<_>>()
        };
        let source = |(number, record): (usize, &Record)| {
            let own = self.browsers.values().filter(|entry| entry.source == number);
            SourceView {
                failing: record.failing(now).map(str::to_owned),
                lacks: record.lacks(now).iter().cloned().chain(own.flat_map(&useless)).collect(),
                plain: record.plain(now),
            }
        };
        let browser = |(&id, entry): (&u64, &Entry)| BrowserView {
            id,
            source: entry.source,
            stage: entry.stage(now),
            lacks: entry.lacks.iter().cloned().chain(useless(entry)).collect(),
            // A lane may also be asked by others than the scheduler, to be measured.
            idle: entry.idle(scheduler, now).filter(|_| !is_asked(&entry.page)),
        };
        Picture {
            min: options.min,
            max: options.max,
            idle_limit: options.idle,
            sources: self.records.iter().enumerate().map(source).collect(),
            browsers: self.browsers.iter().map(browser).collect(),
            demands: scheduler.demand(),
            needs: self.needs.clone(),
        }
    }

    pub(super) fn note(&mut self, what: ScalingStep, id: u64, why: &str) {
        let (browser, why) = (self.name(id), why.to_owned());
        let at_seconds = self.since.elapsed().as_secs_f64();
        self.history.add(ScalingEvent { at_seconds, what, browser, why });
    }

    /// What a browser is called.
    pub(super) fn name(&self, id: u64) -> String {
        let entry = self.browsers.get(&id);
        let facts = entry.and_then(|entry| entry.facts.as_ref());
        let kind = match (facts, entry) {
            (Some(facts), _) => facts.kind.id().to_owned(),
            (None, Some(entry)) => self.records[entry.source].source.to_string(),
            (None, None) => "browser".to_owned(),
        };
        format!("{kind} #{id}")
    }

    pub(super) fn set(&mut self, id: u64, state: BrowserState) {
        if let Some(entry) = self.browsers.get_mut(&id) {
            (entry.state, entry.since) = (state, Instant::now());
        }
    }

    /// The browser of a place has to be replaced.
    pub(super) fn count_restart(&mut self, place: usize) {
        if self.restarts.len() <= place {
            self.restarts.resize(place + 1, 0);
        }
        self.restarts[place] += 1;
    }

    /// The lowest place that is free.
    pub(super) fn free_place(&self) -> usize {
        let is_free = |place: &usize| self.browsers.values().all(|entry| entry.place != *place);
        (0..).find(is_free).unwrap_or_default()
    }
}

impl Entry {
    fn stage(&self, now: Instant) -> Stage {
        match self.state {
            BrowserState::Starting | BrowserState::Joining => Stage::Coming,
            BrowserState::Serving if now - self.since < SETTLING => Stage::Coming,
            BrowserState::Serving => Stage::Serving,
            BrowserState::Draining | BrowserState::Closing => Stage::Leaving,
        }
    }

    fn idle(&self, scheduler: &Scheduler, now: Instant) -> Option<Duration> {
        let crew = scheduler.crew(&self.page);
        let since = crew.used.map_or(self.since, |used| used.max(self.since));
        (crew.busy == 0).then(|| now.saturating_duration_since(since))
    }
}
