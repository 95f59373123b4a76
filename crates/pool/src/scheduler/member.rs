//! A device of the pool: what it has loaded, what it is doing, how fast it was.

mod room;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use holdfast_devices::cpu::CpuEngine;
use holdfast_devices::lane::Lane;
use holdfast_devices::{Device, DeviceInfo, Event, Loaded, ModelKind, SegmentId};
use holdfast_graph::Digest;
use tokio::sync::broadcast;
use tokio::time::Instant;

use super::fault::Fault;
use super::kind::Kind;
use super::queue::Wanted;
use super::turn::{Granted, Used};
use crate::cache::Cache;
use crate::choice::Choice;
use crate::placement::{Load, View};
use crate::program::{Kept, There};
use crate::route::Prepared;
use crate::tensors::storage_of;
use crate::values::Values;

/// Tells devices apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MemberId(pub(crate) u64);

/// Tells kinds of devices apart: those of one kind compute the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KindId(pub(crate) usize);

/// A device of which can be told whether it is there.
pub(crate) trait Host: Device {
    fn health(&self) -> Health;

    /// How much of what it could do it offers now, from 0 (nothing) to 1.
    fn share(&self) -> f64 {
        1.0
    }

    /// What it has in common with devices that compute the same bits.
    fn kind(&self) -> Kind {
        Kind::of(&self.info())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Ready,
    /// It cannot be heard, but may come back.
    Away,
    /// It will not come back.
    Gone,
}

impl Host for CpuEngine {
    fn health(&self) -> Health {
        Health::Ready
    }
}

impl Host for Lane {
    fn health(&self) -> Health {
        match (self.gone(), self.is_connected()) {
            (Some(_), _) => Health::Gone,
            (None, true) => Health::Ready,
            (None, false) => Health::Away,
        }
    }

    fn share(&self) -> f64 {
        self.power().share
    }

    fn kind(&self) -> Kind {
        Kind::of_lane(&self.info(), self.hello())
    }
}

/// What there is to know about a device before it is used.
#[derive(Clone, Debug)]
pub(crate) struct MemberOptions {
    pub(crate) choice: Choice,
    /// Programs that it is given at the same time.
    pub(crate) slots: usize,
    /// How many of them it really runs at once.
    pub(crate) parallel: usize,
    /// Bytes of models that it may hold.
    pub(crate) memory_bytes: u64,
    /// Bytes of what it computed that it may keep for others.
    pub(crate) cache_bytes: u64,
    /// Whether it holds a weight that two models have only once.
    pub(crate) shares_weights: bool,
    /// Whether it is as good as the program itself: what fails there fails there again.
    pub(crate) steady: bool,
    /// The browser's name.
    pub(crate) browser: Option<String>,
    /// What the browser's page calls itself.
    pub(crate) page: Option<String>,
}

/// Whoever runs a program holds what it uses.
const USER: &str = "a running program";

/// What a session takes beside its weights, roughly.
pub(crate) const SESSION_BYTES: u64 = 4 << 20;

/// Models of which is remembered how fast they were. Past this all are forgotten.
const REMEMBERED: usize = 4096;

/// How much the last measurement counts.
const NEWEST: f64 = 0.3;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

pub(crate) struct Member {
    pub(crate) device: Arc<dyn Host>,
    pub(crate) info: Arc<DeviceInfo>,
    pub(crate) options: MemberOptions,
    /// What computes there: equal for devices that compute the same bits.
    pub(crate) kind: Arc<str>,
    pub(crate) kind_id: KindId,
    /// What it computed and still has.
    pub(crate) cache: Cache,
    /// How often it has lost all that it had.
    pub(crate) losses: u64,
    /// What it is computing that other requests may need, by how many programs.
    computing: HashMap<Digest, usize>,
    /// Since when the slots are taken that are, by their numbers.
    running: BTreeMap<u64, Instant>,
    pub(crate) loaded: HashMap<SegmentId, Held>,
    pub(crate) loading: Option<Loading>,
    pub(crate) health: Health,
    /// How much of what it could do it offers.
    pub(crate) share: f64,
    /// Whether it is given nothing more, because it is about to be closed.
    pub(crate) withdrawn: bool,
    /// Requests that it answered.
    pub(crate) answered: u64,
    /// When it was given something, or gave it back, last.
    pub(crate) used_at: Instant,
    events: broadcast::Receiver<Event>,
    /// Failures in a row, and until when it is left alone for them.
    failures: u32,
    paused_until: Option<Instant>,
    /// How long a segment takes for one request.
    speeds: HashMap<SegmentId, Duration>,
    /// How long the way there and back takes for one request of a route.
    transfers: HashMap<SegmentId, Duration>,
    /// How long a route takes to load.
    loads: HashMap<SegmentId, Duration>,
    uses: u64,
}

/// A model that is loaded.
pub(crate) struct Held {
    pub(crate) model: Arc<Prepared>,
    pub(crate) loaded: Arc<Loaded>,
    /// When its load began.
    pub(crate) began: Instant,
    pub(crate) at: Instant,
    pub(crate) in_use: usize,
    used: u64,
}

/// A load that is under way, or just a letting go.
pub(crate) struct Loading {
    pub(crate) model: Option<Arc<Prepared>>,
    pub(crate) since: Instant,
    expected: Duration,
}

impl Member {
    pub(crate) fn new(
        device: Arc<dyn Host>,
        options: MemberOptions,
        kind_id: KindId,
        kind: Arc<str>,
    ) -> Member {
        let info = device.info();
        let storage = storage_of(options.choice);
        Member {
            kind,
            kind_id,
            cache: Cache::new(&info.name, storage, options.cache_bytes),
            losses: 0,
            computing: HashMap::new(),
            events: device.events(),
            health: device.health(),
            share: offered(device.as_ref()),
            withdrawn: false,
            answered: 0,
            used_at: Instant::now(),
            device,
            info,
            options,
            running: BTreeMap::new(),
            loaded: HashMap::new(),
            loading: None,
            failures: 0,
            paused_until: None,
            speeds: HashMap::new(),
            transfers: HashMap::new(),
            loads: HashMap::new(),
            uses: 0,
        }
    }

    /// What a device is, apart from its name.
    pub(crate) fn kind_of(info: &DeviceInfo) -> Arc<str> {
        format!("{}, {}, {}", info.backend, info.engine, info.adapter).into()
    }

    /// Takes note of what happened to the device.
    pub(crate) fn refresh(&mut self) {
        loop {
            match self.events.try_recv() {
                // Whether it is there is asked for below; what was missed may have been a loss.
                Ok(Event::Lost { .. }) | Err(broadcast::error::TryRecvError::Lagged(_)) => {
                    self.losses += 1;
                    self.loaded.clear();
                    self.cache.lose();
                }
                Ok(Event::Disconnected { .. } | Event::Reconnected | Event::Gone { .. }) => {}
                Err(
                    broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed,
                ) => break,
            }
        }
        self.health = self.device.health();
        self.share = offered(self.device.as_ref());
    }

    /// Whether it is in this page.
    pub(crate) fn is_of(&self, page: &str) -> bool {
        self.options.page.as_deref() == Some(page)
    }

    /// Programs that it is given at the same time, by how much it offers.
    pub(crate) fn slots(&self) -> usize {
        shared(self.options.slots, self.share)
    }

    /// Whether it is not what it was when it was chosen. A request that is sent to a device that
    /// has just gone would count it as one that failed under it.
    pub(crate) fn has_changed(&mut self) -> bool {
        let before = (self.health, self.loaded.len(), self.slots());
        self.refresh();
        (self.health, self.loaded.len(), self.slots()) != before
    }

    pub(crate) fn serves(&self, wanted: Wanted) -> bool {
        self.health != Health::Gone
            && !self.withdrawn
            && self.slots() > 0
            && self.options.choice == wanted.choice
            && (self.info.accelerated || !wanted.accelerated)
            && wanted.kind.is_none_or(|kind| kind == self.kind_id)
    }

    /// Whether it serves this with a model: one that shares with others only where that was proven
    /// to keep its bits, unless this is about proving it.
    pub(crate) fn runs(&self, wanted: Wanted, model: &Prepared) -> bool {
        self.serves(wanted) && (wanted.kind.is_some() || model.may_run_on(&self.kind))
    }

    /// How many programs it has.
    pub(crate) fn in_flight(&self) -> usize {
        self.running.len()
    }

    /// In how long it takes work again; `None` if it cannot be heard.
    fn ready_in(&self, now: Instant) -> Option<Duration> {
        let pause = self.paused_until.map(|until| until.saturating_duration_since(now));
        (self.health == Health::Ready).then_some(pause.unwrap_or_default())
    }

    /// Whether it can take work right now.
    pub(crate) fn is_free(&self, now: Instant) -> bool {
        self.in_flight() < self.slots()
            && !self.withdrawn
            && self.health == Health::Ready
            && self.paused_until.is_none_or(|until| until <= now)
    }

    /// What it looks like for requests of a model.
    pub(crate) fn view(
        &self,
        model: &Prepared,
        values: Option<&Values>,
        avoided: bool,
        waits: impl Fn(&SegmentId) -> bool,
        now: Instant,
    ) -> View {
        let load = match &self.loading {
            _ if self.loaded.contains_key(&model.id) => Load::Ready,
            Some(loading) if loading.model.as_ref().is_some_and(|m| m.id == model.id) => {
                Load::Coming(loading.expected.saturating_sub(now - loading.since))
            }
            _ if !self.may_hold(model) => Load::Refused,
            // One at a time: the device would do one after the other in any case.
            Some(_) => Load::NoRoom,
            None if self.victims(model, waits, now).is_none() => Load::NoRoom,
            None => Load::Needed(self.expected_load(model)),
        };
        View {
            load,
            run: self.expected_run(model, values),
            free: self.is_free(now),
            ready_in: self.ready_in(now),
            in_flight: self.in_flight(),
            // The numbers of slots only grow.
            oldest: self.running.values().next().map_or(Duration::ZERO, |since| now - *since),
            parallel: self.options.parallel,
            share: self.share,
            favoured: favours(model.kind, self.options.browser.as_deref()),
            avoided,
        }
    }

    /// When it began to load a route, and when that was done: now at the latest. `None` if it has not.
    pub(crate) fn load_of(&self, route: &SegmentId, now: Instant) -> Option<(Instant, Instant)> {
        if let Some(held) = self.loaded.get(route) {
            return Some((held.began, held.at));
        }
        let loading = self.loading.as_ref()?;
        let is_it = loading.model.as_ref().is_some_and(|model| model.id == *route);
        is_it.then_some((loading.since, now))
    }

    /// Notes that a load ended well.
    pub(crate) fn end_load(&mut self, loaded: Loaded, now: Instant) {
        let Some(Loading { model: Some(model), since, .. }) = self.loading.take() else { return };
        remember(&mut self.loads, model.id, now - since);
        self.uses += 1;
        let held = Held {
            model: model.clone(),
            loaded: Arc::new(loaded),
            began: since,
            at: now,
            in_use: 0,
            used: self.uses,
        };
        self.used_at = now;
        self.loaded.insert(model.id, held);
        self.failures = 0;
    }

    /// Takes a slot, by its number, for a model that is loaded.
    pub(crate) fn take(&mut self, segment: &SegmentId, slot: u64, now: Instant) -> Option<&Held> {
        let held = self.loaded.get_mut(segment)?;
        self.used_at = now;
        self.uses += 1;
        held.used = self.uses;
        held.in_use += 1;
        self.running.insert(slot, now);
        Some(held)
    }

    /// What it has of what a request computes, kept until the slot is given back. The rest is from
    /// now on being computed.
    pub(crate) fn engage(&mut self, model: &Prepared, values: &Values, now: Instant) -> There {
        let mut there = There::default();
        for (step, value) in values.of_trunks(model) {
            match self.cache.acquire(value, &step.outputs, USER, now) {
                Some(mut kept) => {
                    let segment = model.segment_of(step);
                    kept.takes = self.speeds.get(&segment).copied().unwrap_or_default();
                    there.values.insert(*value, kept);
                }
                None => *self.computing.entry(*value).or_default() += 1,
            }
        }
        there
    }

    fn disengage(&mut self, granted: &Granted) {
        let Some(values) = &granted.values else { return };
        for (step, value) in values.of_trunks(&granted.model) {
            if granted.there.values.contains_key(value) {
                self.cache.release(value, step.outputs.len(), USER);
            } else if let Some(count) = self.computing.get_mut(value) {
                *count -= 1;
                if *count == 0 {
                    self.computing.remove(value);
                }
            }
        }
    }

    /// Whether it is computing what a request needs.
    pub(crate) fn is_computing(&self, value: &Digest) -> bool {
        self.computing.contains_key(value)
    }

    /// Whether it has what a step of a request gives.
    pub(crate) fn has_value(&self, model: &Prepared, value: &Digest, values: &Values) -> bool {
        let step = values.of_trunks(model).find(|(_, other)| *other == value);
        step.is_some_and(|(step, _)| self.cache.has(value, step.outputs.len()))
    }

    /// Gives a slot back.
    pub(crate) fn give_back(
        &mut self,
        granted: &Granted,
        used: &Used,
        kept: &[Kept],
        now: Instant,
    ) {
        self.running.remove(&granted.number);
        self.used_at = now;
        self.disengage(granted);
        let id = &granted.model.id;
        if let Some(held) = self.loaded.get_mut(id)
            // It may have been loaded anew since.
            && held.at == granted.loaded_at
        {
            held.in_use = held.in_use.saturating_sub(1);
        }
        // What was lost since is not there.
        if self.losses == granted.losses {
            kept.iter().for_each(|kept| self.cache.add(kept, now));
        }
        match used {
            Used::Well { requests, steps, transfer } => {
                self.failures = 0;
                self.answered += *requests as u64;
                let share = (*requests).max(1) as u32;
                for (segment, took) in steps {
                    remember(&mut self.speeds, *segment, *took / share);
                }
                if let Some(transfer) = transfer {
                    remember(&mut self.transfers, *id, *transfer / share);
                }
            }
            Used::Badly(fault) => self.failed(*fault, now),
            Used::NotToSay => {}
        }
    }

    /// How long a request takes, with what is there for it and the way there and back; `None` before
    /// anything was measured.
    fn expected_run(&self, model: &Prepared, values: Option<&Values>) -> Option<Duration> {
        let mut total = self.transfers.get(&model.id).copied().unwrap_or_default();
        for (number, step) in model.steps.iter().enumerate() {
            let values = values.filter(|_| step.trunk);
            let value = values.and_then(|values| values.steps[number].as_ref());
            if value.is_none_or(|value| !self.cache.has(value, step.outputs.len())) {
                total += *self.speeds.get(&model.segment_of(step))?;
            }
        }
        Some(total)
    }

    /// How long one request for a graph takes, if it has that loaded and has run it.
    pub(crate) fn measured(&self, graph: Digest) -> Option<Duration> {
        let models = self.loaded.values().map(|held| &held.model);
        let own = models.filter(|model| model.original == graph);
        own.filter_map(|model| self.expected_run(model, None)).min()
    }

    /// Leaves the device alone for a while: 2ⁿ, at most 15 s.
    pub(crate) fn failed(&mut self, fault: Fault, now: Instant) {
        self.failures += 1;
        // What was lost is loaded again at once, the first time.
        let before = self.failures - u32::from(fault == Fault::NotBegun);
        if before > 0 {
            let pause = FIRST_PAUSE.saturating_mul(1 << (before - 1).min(16));
            self.paused_until = Some(now + pause.min(LONGEST_PAUSE));
        }
    }

    /// How long a load takes: as it did, or by its bytes.
    fn expected_load(&self, model: &Prepared) -> Duration {
        let by_bytes = || {
            let (base, bytes_per_second) = match self.options.choice {
                Choice::Cpu => (0.02, 500e6),
                Choice::Lane(_) => (0.5, 100e6),
            };
            Duration::from_secs_f64(base + model.bytes as f64 / bytes_per_second)
        };
        self.loads.get(&model.id).copied().unwrap_or_else(by_bytes)
    }
}

/// How much of what it could do a device offers. What is no number offers nothing.
fn offered(device: &dyn Host) -> f64 {
    let share = device.share();
    if share > 0.0 { share.min(1.0) } else { 0.0 }
}

/// Slots of a device that offers only a part of what it could do: at least one, unless that is
/// nothing.
fn shared(slots: usize, share: f64) -> usize {
    (slots as f64 * share).ceil() as usize
}

/// A moving average.
fn remember(times: &mut HashMap<SegmentId, Duration>, segment: SegmentId, took: Duration) {
    if times.len() >= REMEMBERED && !times.contains_key(&segment) {
        times.clear();
    }
    let average = times.entry(segment).or_insert(took);
    *average = average.mul_f64(1.0 - NEWEST) + took.mul_f64(NEWEST);
}

/// What models of a kind usually run best on. Only breaks ties before anything was measured.
fn favours(kind: ModelKind, browser: Option<&str>) -> bool {
    let Some(browser) = browser.map(str::to_lowercase) else { return false };
    let favourite = match kind {
        ModelKind::Audio => "firefox",
        ModelKind::Text => "edge",
        ModelKind::Vision | ModelKind::Generation | ModelKind::Multimodal => "chrom",
        ModelKind::Other => return false,
    };
    browser.contains(favourite)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_model_favours_the_browsers_that_it_usually_runs_best_on() {
        use ModelKind::{Audio, Generation, Multimodal, Other, Text, Vision};
        let favoured_by = |browser| {
            let all = [Audio, Text, Vision, Generation, Multimodal, Other];
            all.into_iter().filter(|&kind| favours(kind, browser)).collect::<Vec<_>>()
        };
        // As browsers call themselves.
        assert_eq!(favoured_by(Some("Firefox")), [Audio]);
        assert_eq!(favoured_by(Some("Microsoft Edge")), [Text]);
        for chromium in ["Google Chrome", "Chrome", "Chromium"] {
            assert_eq!(favoured_by(Some(chromium)), [Vision, Generation, Multimodal], "{chromium}");
        }
        for other in [Some("WebKitGTK"), Some("Safari"), Some(""), None] {
            assert!(favoured_by(other).is_empty(), "{other:?}");
        }
    }

    #[test]
    fn a_share_lowers_the_slots_and_nothing_is_nothing() {
        let cases = [
            (2, 1.0, 2),
            (2, 0.5, 1),
            (2, 0.1, 1),
            (2, 0.0, 0),
            (4, 0.5, 2),
            (2, 7.0, 2),
            (2, -1.0, 0),
            (2, f64::NAN, 0),
        ];
        for (slots, share, expected) in cases {
            let device = crate::scripted::Scripted::new("a");
            device.offers(share);
            assert_eq!(
                shared(slots, offered(&device)),
                expected,
                "{slots} slots, a share of {share}"
            );
        }
    }
}
