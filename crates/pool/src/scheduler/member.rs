//! A device of the pool: what it has loaded, what it is doing, how fast it was.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use holdfast_devices::cpu::CpuEngine;
use holdfast_devices::lane::Lane;
use holdfast_devices::{Device, DeviceInfo, ErrorKind, Event, Loaded, ModelKind, SegmentId};
use tokio::sync::broadcast;
use tokio::time::Instant;

use super::queue::Wanted;
use super::turn::Used;
use crate::choice::Choice;
use crate::placement::{Load, View};
use crate::prepare::Prepared;

/// Tells devices apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MemberId(pub(crate) u64);

/// A device of which can be told whether it is there.
pub(crate) trait Host: Device {
    fn health(&self) -> Health;

    /// How much of what it could do it offers now, from 0 (nothing) to 1.
    fn share(&self) -> f64 {
        1.0
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
    /// Whether it holds a weight that two models have only once.
    pub(crate) shares_weights: bool,
    /// Whether it is as good as the program itself: what fails there fails there again.
    pub(crate) steady: bool,
    /// The browser's name.
    pub(crate) browser: Option<String>,
    /// What the browser's page calls itself.
    pub(crate) page: Option<String>,
}

/// What a session takes beside its weights, roughly.
const SESSION_BYTES: u64 = 4 << 20;

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
    pub(crate) in_flight: usize,
    pub(crate) loaded: HashMap<SegmentId, Held>,
    pub(crate) loading: Option<Loading>,
    pub(crate) health: Health,
    /// How much of what it could do it offers.
    share: f64,
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
    speeds: HashMap<SegmentId, Duration>,
    loads: HashMap<SegmentId, Duration>,
    uses: u64,
}

/// A model that is loaded.
pub(crate) struct Held {
    pub(crate) model: Arc<Prepared>,
    pub(crate) loaded: Arc<Loaded>,
    pub(crate) at: Instant,
    pub(crate) in_use: usize,
    used: u64,
}

/// A load that is under way.
pub(crate) struct Loading {
    pub(crate) model: Arc<Prepared>,
    pub(crate) since: Instant,
    expected: Duration,
}

impl Member {
    pub(crate) fn new(device: Arc<dyn Host>, options: MemberOptions) -> Member {
        let info = device.info();
        Member {
            kind: format!("{}, {}, {}", info.backend, info.engine, info.adapter).into(),
            events: device.events(),
            health: device.health(),
            share: device.share(),
            withdrawn: false,
            answered: 0,
            used_at: Instant::now(),
            device,
            info,
            options,
            in_flight: 0,
            loaded: HashMap::new(),
            loading: None,
            failures: 0,
            paused_until: None,
            speeds: HashMap::new(),
            loads: HashMap::new(),
            uses: 0,
        }
    }

    /// Takes note of what happened to the device.
    pub(crate) fn refresh(&mut self) {
        loop {
            match self.events.try_recv() {
                // Whether it is there is asked for below; what was missed may have been a loss.
                Ok(Event::Lost { .. }) | Err(broadcast::error::TryRecvError::Lagged(_)) => {
                    self.loaded.clear();
                }
                Ok(Event::Disconnected { .. } | Event::Reconnected | Event::Gone { .. }) => {}
                Err(
                    broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed,
                ) => break,
            }
        }
        self.health = self.device.health();
        self.share = self.device.share();
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
    }

    /// Whether it can take work right now.
    pub(crate) fn is_free(&self, now: Instant) -> bool {
        self.in_flight < self.slots()
            && !self.withdrawn
            && self.health == Health::Ready
            && self.paused_until.is_none_or(|until| until <= now)
    }

    /// What it looks like for requests of a model.
    pub(crate) fn view(
        &self,
        model: &Prepared,
        avoided: bool,
        waits: impl Fn(&SegmentId) -> bool,
        now: Instant,
    ) -> View {
        let load = match &self.loading {
            _ if self.loaded.contains_key(&model.id) => Load::Ready,
            Some(loading) if loading.model.id == model.id => {
                Load::Coming(loading.expected.saturating_sub(now - loading.since))
            }
            _ if model.bytes + SESSION_BYTES > self.options.memory_bytes => Load::TooLarge,
            // One at a time: the device would do one after the other in any case.
            Some(_) => Load::NoRoom,
            None if self.victims(model, waits, now).is_none() => Load::NoRoom,
            None => Load::Needed(self.expected_load(model)),
        };
        View {
            load,
            run: self.speeds.get(&model.id).copied(),
            free: self.is_free(now),
            in_flight: self.in_flight,
            parallel: self.options.parallel,
            favoured: favours(model.segment.kind, self.options.browser.as_deref()),
            avoided,
        }
    }

    /// What has to go for a model to fit, least recently used first; `None` if that is not
    /// possible now, because too much of it is in use or has just been loaded for those who wait.
    fn victims(
        &self,
        model: &Prepared,
        waits: impl Fn(&SegmentId) -> bool,
        now: Instant,
    ) -> Option<Vec<SegmentId>> {
        let mut staying: Vec<(&SegmentId, &Held)> = self.loaded.iter().collect();
        staying.sort_by_key(|(_, held)| std::cmp::Reverse(held.used));
        let mut victims = Vec::new();
        let fits = |staying: &[(&SegmentId, &Held)]| {
            let models = staying.iter().map(|(_, held)| held.model.as_ref());
            self.bytes_of(models.chain([model])) <= self.options.memory_bytes
        };
        while !fits(&staying) {
            // A model for which others wait stays until its load was worth it.
            let worth = |held: &Held| now - held.at >= held.loaded.took * 2;
            let may_go =
                |(id, held): &(&SegmentId, &Held)| held.in_use == 0 && (!waits(id) || worth(held));
            let oldest = staying.iter().rposition(may_go)?;
            victims.push(*staying.remove(oldest).0);
        }
        Some(victims)
    }

    /// Whether there would be room if what is in use were not: then nothing more is to be started
    /// here, or the model would never get in.
    pub(crate) fn should_drain_for(
        &self,
        model: &Prepared,
        waits: impl Fn(&SegmentId) -> bool,
        now: Instant,
    ) -> bool {
        let worth =
            |(id, held): (&SegmentId, &Held)| !waits(id) || now - held.at >= held.loaded.took * 2;
        self.loading.is_none()
            && !self.loaded.contains_key(&model.id)
            && model.bytes + SESSION_BYTES <= self.options.memory_bytes
            && self.loaded.iter().all(worth)
    }

    /// Makes room and notes that a load begins. What has to be unloaded.
    pub(crate) fn begin_load(
        &mut self,
        model: &Arc<Prepared>,
        waits: impl Fn(&SegmentId) -> bool,
        now: Instant,
    ) -> Vec<SegmentId> {
        let victims = self.victims(model, waits, now).unwrap_or_default();
        victims.iter().for_each(|id| drop(self.loaded.remove(id)));
        let expected = self.expected_load(model);
        self.loading = Some(Loading { model: model.clone(), since: now, expected });
        victims
    }

    /// Notes that a load ended well.
    pub(crate) fn end_load(&mut self, loaded: Loaded, now: Instant) {
        let Some(Loading { model, since, .. }) = self.loading.take() else { return };
        remember(&mut self.loads, model.id, now - since);
        self.uses += 1;
        let held = Held {
            model: model.clone(),
            loaded: Arc::new(loaded),
            at: now,
            in_use: 0,
            used: self.uses,
        };
        self.used_at = now;
        self.loaded.insert(model.id, held);
        self.failures = 0;
    }

    /// Takes a slot for a model that is loaded.
    pub(crate) fn take(&mut self, segment: &SegmentId, now: Instant) -> Option<&Held> {
        let held = self.loaded.get_mut(segment)?;
        self.used_at = now;
        self.uses += 1;
        held.used = self.uses;
        held.in_use += 1;
        self.in_flight += 1;
        Some(held)
    }

    /// Gives a slot back.
    pub(crate) fn give_back(
        &mut self,
        segment: &SegmentId,
        loaded_at: Instant,
        used: &Used,
        now: Instant,
    ) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.used_at = now;
        if let Some(held) = self.loaded.get_mut(segment)
            // It may have been loaded anew since.
            && held.at == loaded_at
        {
            held.in_use = held.in_use.saturating_sub(1);
            if matches!(used, Used::Badly(ErrorKind::StateLost)) {
                self.loaded.remove(segment);
            }
        }
        match used {
            Used::Well { requests, busy } => {
                self.failures = 0;
                self.answered += *requests as u64;
                remember(&mut self.speeds, *segment, *busy / (*requests).max(1) as u32);
            }
            Used::Badly(kind) => self.failed(*kind, now),
            Used::NotToSay => {}
        }
    }

    /// Leaves the device alone for a while: 2ⁿ, at most 15 s.
    pub(crate) fn failed(&mut self, kind: ErrorKind, now: Instant) {
        self.failures += 1;
        // What was lost is loaded again at once, the first time.
        let before = self.failures - u32::from(kind == ErrorKind::StateLost);
        if before > 0 {
            let pause = FIRST_PAUSE.saturating_mul(1 << (before - 1).min(16));
            self.paused_until = Some(now + pause.min(LONGEST_PAUSE));
        }
    }

    /// Bytes of all that is loaded.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes_of(self.loaded.values().map(|held| held.model.as_ref()))
    }

    fn bytes_of<'a>(&self, models: impl Iterator<Item = &'a Prepared>) -> u64 {
        let mut seen = HashSet::new();
        let mut bytes = 0;
        for model in models {
            bytes += SESSION_BYTES;
            if !self.options.shares_weights {
                bytes += model.bytes;
                continue;
            }
            let weights = model.segment.graph.weights.iter();
            let new = weights.filter(|weight| seen.insert(weight.content));
            bytes += new.map(|weight| weight.bytes).sum::<u64>();
        }
        bytes
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

/// Slots of a device that offers only a part of what it could do: at least one, unless that is
/// nothing.
fn shared(slots: usize, share: f64) -> usize {
    // What is no number offers nothing.
    (slots as f64 * share.clamp(0.0, 1.0)).ceil() as usize
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
    fn a_share_lowers_the_slots_and_nothing_is_nothing() {
        let cases =
            [(2, 1.0, 2), (2, 0.5, 1), (2, 0.1, 1), (2, 0.0, 0), (4, 0.5, 2), (2, f64::NAN, 0)];
        for (slots, share, expected) in cases {
            assert_eq!(shared(slots, share), expected, "{slots} slots, a share of {share}");
        }
    }
}
