//! Keeps requests in flight and counts what comes of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdfast_devices::DeviceInfo;
use holdfast_pool::{Answer, Choices, PassedOver, Request};
use tokio::task::JoinSet;

use super::class::class;
use super::latencies::Latencies;
use crate::output::{self, Spinner};
use crate::place::Place;

/// After an error the next request waits so long, so that one that always fails is not asked for
/// thousands of times.
const AFTER_ERROR: Duration = Duration::from_millis(100);
/// How often progress is told.
const PROGRESS: Duration = Duration::from_millis(200);

/// How to measure.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) concurrent: usize,
    pub(super) warm_up: Duration,
    pub(super) duration: Duration,
}

/// What was measured in one setting.
pub(super) struct Measured {
    /// How long answers were counted.
    pub(super) elapsed: Duration,
    /// As many as were asked for, in their order.
    pub(super) models: Vec<ModelMeasured>,
}

/// What was measured of one model.
#[derive(Default)]
pub(super) struct ModelMeasured {
    /// The first request, with all that it took to load the model.
    pub(super) first: Option<Duration>,
    /// What would have been preferred.
    pub(super) passed_over: Vec<PassedOver>,
    /// Why it was not measured.
    pub(super) problem: Option<String>,
    pub(super) tally: Tally,
}

/// Answers by device, and errors by class.
#[derive(Clone, Default)]
pub(super) struct Tally {
    pub(super) devices: BTreeMap<String, OnDevice>,
    pub(super) errors: BTreeMap<&'static str, Errors>,
    /// Answers that came after a device had failed.
    pub(super) failovers: u64,
}

/// Answers of one device.
#[derive(Clone)]
pub(super) struct OnDevice {
    pub(super) info: Arc<DeviceInfo>,
    pub(super) latencies: Latencies,
    /// Rows that ran in one go, summed over the answers.
    pub(super) rows: u64,
}

/// Errors of one class.
#[derive(Clone)]
pub(super) struct Errors {
    pub(super) count: u64,
    /// What the first one said.
    pub(super) first: String,
}

/// Runs each of these requests once, then keeps some of those that succeeded in flight.
pub(super) async fn measure(
    place: &Arc<Place>,
    requests: &[Request],
    choices: &Choices,
    load: Load,
    spinner: &Spinner,
) -> Measured {
    let mut models = Vec::new();
    let mut ready = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        let request = Request { choices: choices.clone(), ..request.clone() };
        let started = Instant::now();
        let mut model = ModelMeasured::default();
        match place.run(&request).await {
            Ok(answer) => {
                model.first = Some(started.elapsed());
                model.passed_over = answer.passed_over;
                ready.push((index, request));
            }
            Err(error) => {
                model.tally.error(&error);
                model.problem = Some(output::message(&error));
            }
        }
        models.push(model);
    }
    let mut elapsed = Duration::ZERO;
    if !ready.is_empty() {
        let counted = ready.iter().map(|_| AtomicU64::new(0)).collect();
        let drive = Arc::new(Drive { requests: ready, phase: AtomicU8::new(WARMING), counted });
        let tallies;
        (elapsed, tallies) = drive.run(place, load, spinner).await;
        for (index, tally) in tallies {
            models[index].tally.merge(tally);
        }
    }
    Measured { elapsed, models }
}

/// Requests that are kept in flight.
struct Drive {
    /// Each with the model that it is of.
    requests: Vec<(usize, Request)>,
    phase: AtomicU8,
    /// What was counted, by request.
    counted: Vec<AtomicU64>,
}

/// Nothing is counted yet.
const WARMING: u8 = 0;
/// What is answered counts.
const MEASURING: u8 = 1;
/// Nothing new is asked, and what is still answered does not count: fewer and fewer are in flight.
const ENDED: u8 = 2;

impl Drive {
    /// Runs until the time is over and every model had an answer or an error. Gives how long that
    /// took without the warm-up, and what was counted.
    async fn run(
        self: &Arc<Drive>,
        place: &Arc<Place>,
        load: Load,
        spinner: &Spinner,
    ) -> (Duration, BTreeMap<usize, Tally>) {
        let mut callers = JoinSet::new();
        for caller in 0..load.concurrent {
            callers.spawn(self.clone().call(place.clone(), caller));
        }
        let mut ticks = tokio::time::interval(PROGRESS);
        let started = Instant::now();
        while started.elapsed() < load.warm_up {
            spinner.say(progress("warming up", started.elapsed(), load.warm_up));
            tokio::time::timeout_at((started + load.warm_up).into(), ticks.tick()).await.ok();
        }
        self.phase.store(MEASURING, Ordering::Relaxed);
        let started = Instant::now();
        let counts = || self.counted.iter().map(|count| count.load(Ordering::Relaxed));
        while started.elapsed() < load.duration || counts().any(|count| count == 0) {
            let so_far = progress("measuring", started.elapsed(), load.duration);
            spinner.say(format!("{so_far}, {} answered", counts().sum::<u64>()));
            let end = (started + load.duration).max(Instant::now() + PROGRESS / 10);
            tokio::time::timeout_at(end.into(), ticks.tick()).await.ok();
        }
        self.phase.store(ENDED, Ordering::Relaxed);
        let elapsed = started.elapsed();
        spinner.say("waiting for what is under way");
        let mut all: BTreeMap<usize, Tally> = BTreeMap::new();
        while let Some(tallies) = callers.join_next().await {
            let tallies =
                tallies.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
            for (index, tally) in tallies {
                all.entry(index).or_default().merge(tally);
            }
        }
        (elapsed, all)
    }

    /// One who asks, and asks again when answered.
    async fn call(self: Arc<Drive>, place: Arc<Place>, caller: usize) -> BTreeMap<usize, Tally> {
        let mut tallies: BTreeMap<usize, Tally> = BTreeMap::new();
        // Each starts with another model, then takes them in turn.
        let requests = self.requests.iter().zip(&self.counted).cycle();
        for ((index, request), counted) in requests.skip(caller % self.requests.len()) {
            if self.phase.load(Ordering::Relaxed) == ENDED {
                break;
            }
            let asked = Instant::now();
            let result = place.run(request).await;
            let took = asked.elapsed();
            if self.phase.load(Ordering::Relaxed) == MEASURING {
                let tally = tallies.entry(*index).or_default();
                match &result {
                    Ok(answer) => tally.answer(answer, took),
                    Err(error) => tally.error(error),
                }
                counted.fetch_add(1, Ordering::Relaxed);
            }
            if result.is_err() {
                tokio::time::sleep(AFTER_ERROR).await;
            }
        }
        tallies
    }
}

fn progress(doing: &str, so_far: Duration, whole: Duration) -> String {
    format!("{doing}: {:.1} of {:.1} s", so_far.as_secs_f64(), whole.as_secs_f64())
}

impl Tally {
    fn answer(&mut self, answer: &Answer, took: Duration) {
        let info = &answer.outcome.device;
        let device = self.devices.entry(info.name.clone()).or_insert_with(|| OnDevice {
            info: info.clone(),
            latencies: Latencies::default(),
            rows: 0,
        });
        device.latencies.add(took);
        device.rows += answer.batch_rows as u64;
        self.failovers += u64::from(!answer.failed_on.is_empty());
    }

    fn error(&mut self, error: &anyhow::Error) {
        let first = || Errors { count: 0, first: output::message(error) };
        self.errors.entry(class(error)).or_insert_with(first).count += 1;
    }

    fn merge(&mut self, other: Tally) {
        for (name, theirs) in other.devices {
            let ours = self.devices.entry(name).or_insert_with(|| OnDevice {
                info: theirs.info.clone(),
                latencies: Latencies::default(),
                rows: 0,
            });
            ours.latencies.merge(theirs.latencies);
            ours.rows += theirs.rows;
        }
        for (class, theirs) in other.errors {
            let first = || Errors { count: 0, first: theirs.first.clone() };
            self.errors.entry(class).or_insert_with(first).count += theirs.count;
        }
        self.failovers += other.failovers;
    }
}
