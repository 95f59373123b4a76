//! What the pool knows of costs: it takes note of everything that ran, keeps it, and predicts.
//!
//! Notes are taken in a thread of their own, behind a bounded queue: nothing that runs waits for
//! them, and what finds no room is dropped and counted. The same thread has what was learned kept
//! from time to time, so that a process which is killed loses the last of it at most.

mod pieces;
mod profile;
mod sighting;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use holdfast_models::Store;
use holdfast_predict::{
    BackendSettings, DeviceProfile, Errors, Estimate, Goal, Inference, Kept, Measured, Mix,
    OptimizationImpact, Predictor, Recommendation, Record, Recorder, RefinementAdvice,
    RefinementRecord, Setting, SettingError, Settings, StrategyComparison, ValidationRecord,
    Validator, ValidatorOptions,
};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::pool::lock;
use crate::request::{Request, RunError};
use crate::route::Prepared;
use crate::workload::Workload;

use pieces::{Pieces, Steps};

pub(crate) use pieces::{Piece, Shapes};
pub(crate) use profile::{profile, rates};
pub(crate) use sighting::Sighting;

/// Notes that may wait to be taken.
const WAITING: usize = 4096;

/// Comparisons of strategies that settings are adapted to.
const COMPARISONS: usize = 256;

/// What is known of costs. Cheap to clone: clones are the same.
#[derive(Clone)]
pub struct Ledger {
    core: Arc<Core>,
    notes: SyncSender<Note>,
    /// Notes that found no room.
    dropped: Arc<AtomicU64>,
}

struct Core {
    pieces: Pieces,
    recorder: Option<Arc<dyn Recorder>>,
    /// Threads for one operator of the in-process engine.
    threads: usize,
    knowledge: Mutex<Knowledge>,
    /// Whether something was learned that was not kept yet.
    unsaved: AtomicBool,
    /// Whether what is learned here may replace what was kept before.
    keeps_learned: bool,
    save_every: Duration,
}

/// How a ledger works.
pub(crate) struct LedgerOptions {
    pub(crate) validation: ValidatorOptions,
    /// Threads for one operator of the in-process engine.
    pub(crate) threads: usize,
    /// How often what was learned is kept while something is.
    pub(crate) save_every: Duration,
}

struct Knowledge {
    learned: Learned,
    validator: Validator,
}

/// What was learned; the next start goes on from it.
#[derive(Default, Serialize, Deserialize)]
struct Learned {
    predictor: Predictor,
    settings: Settings,
    /// The latest comparisons of strategies, the oldest first.
    #[serde(default)]
    comparisons: Vec<StrategyComparison>,
}

/// What was known before this pool.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// What was learned, as [`Ledger::snapshot`] gave it.
    pub learned: Option<String>,
    /// Predictions that were compared with what was measured, the oldest first.
    pub validations: Vec<ValidationRecord>,
    /// When the predictor was refined last: what was validated before says nothing of it as it is.
    pub refined: Option<SystemTime>,
    /// There may be more that could not be read. What is learned now does not take its place.
    pub incomplete: bool,
}

enum Note {
    Answered(Box<Sighting>),
    Failed(Box<Inference>),
    /// Everything before it was taken.
    Settled(oneshot::Sender<()>),
}

impl Ledger {
    /// Goes on from what was known; from nothing if that cannot be read.
    pub(crate) fn new(
        store: Arc<Store>,
        recorder: Option<Arc<dyn Recorder>>,
        known: &Known,
        options: LedgerOptions,
    ) -> Ledger {
        let read = |text: &str| match serde_json::from_str(text) {
            Ok(learned) => Some(learned),
            Err(error) => {
                tracing::warn!(
                    "what was learned before cannot be read, and is begun anew: {error}"
                );
                None
            }
        };
        let learned = known.learned.as_deref().and_then(read).unwrap_or_default();
        let LedgerOptions { validation, threads, save_every } = options;
        let mut validator = Validator::new(validation);
        let is_older = |record: &&ValidationRecord| {
            known.refined.is_some_and(|refined| record.timestamp <= refined)
        };
        let (older, newer): (Vec<_>, Vec<_>) = known.validations.iter().partition(is_older);
        older.into_iter().for_each(|record| validator.add(record.clone()));
        if known.refined.is_some() {
            validator.refined();
        }
        newer.into_iter().for_each(|record| validator.add(record.clone()));
        let knowledge = Mutex::new(Knowledge { learned, validator });
        let core = Arc::new(Core {
            pieces: Pieces::new(store),
            recorder,
            threads,
            knowledge,
            unsaved: AtomicBool::new(false),
            keeps_learned: !known.incomplete,
            save_every,
        });
        let (notes, waiting) = sync_channel(WAITING);
        let taker = core.clone();
        // It ends with the last ledger, which holds the other end. Without it nothing is learned.
        let thread = std::thread::Builder::new().name("ledger".into());
        if let Err(error) = thread.spawn(move || taker.take_notes(waiting)) {
            tracing::warn!("nothing will be learned from what runs: {error}");
        }
        Ledger { core, notes, dropped: Arc::default() }
    }

    /// Takes note of a request that was answered.
    pub(crate) fn answered(&self, sighting: Sighting) {
        self.note(Note::Answered(Box::new(sighting)));
    }

    /// Takes note of a request that was not.
    pub(crate) fn failed(&self, request: &Request, error: &RunError) {
        let row = sighting::failed(request, error, SystemTime::now());
        self.note(Note::Failed(Box::new(row)));
    }

    fn note(&self, note: Note) {
        if let Err(TrySendError::Full(_)) = self.notes.try_send(note) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What became of all that was to be kept; `None` if nothing is.
    pub fn kept(&self) -> Option<Kept> {
        let kept = self.core.recorder.as_ref()?.kept();
        Some(Kept { dropped: kept.dropped + self.dropped.load(Ordering::Relaxed), ..kept })
    }

    /// Waits until note was taken of all that ran so far.
    pub async fn settled(&self) {
        let (done, settled) = oneshot::channel();
        let notes = self.notes.clone();
        // The queue may be full, and then this waits like everybody else.
        let sent = tokio::task::spawn_blocking(move || notes.send(Note::Settled(done)));
        if matches!(sent.await, Ok(Ok(()))) {
            let _ = settled.await;
        }
    }

    /// What each step of a route takes at these sizes.
    pub(crate) fn pieces(&self, route: &Prepared, shapes: &Shapes) -> Result<Steps, String> {
        self.core.pieces.of(route, shapes)
    }

    /// What a mix will take.
    pub fn estimate(&self, mix: &Mix) -> Estimate {
        lock(&self.core.knowledge).learned.predictor.estimate(mix)
    }

    /// Which of these to choose; they are one workload under several strategies. `None` for nothing.
    pub fn recommend(&self, mixes: &[Mix], goal: Goal) -> Option<Recommendation> {
        let Learned { predictor, settings, .. } = &lock(&self.core.knowledge).learned;
        predictor.recommend(mixes, goal, settings)
    }

    /// Makes a device known before anything ran on it.
    pub(crate) fn meet(&self, profile: &DeviceProfile) {
        lock(&self.core.knowledge).learned.predictor.meet(profile);
    }

    /// Learns from a workload that ran. How good the prediction was is looked at every so many times,
    /// or if it has to be.
    pub(crate) fn executed(
        &self,
        mix: &Mix,
        workload: &Workload,
        estimate: &Estimate,
        measured: &Measured,
        has_to_be_validated: bool,
    ) {
        let knowledge = &mut *self.core.learn();
        let is_due = knowledge.validator.is_due() || has_to_be_validated;
        if !is_due {
            knowledge.learned.predictor.observe_mix(mix, estimate, measured);
            return;
        }
        let (goal, now) = (workload.goal, SystemTime::now());
        let validated = knowledge.validator.validate_prediction(
            mix,
            goal,
            estimate,
            measured,
            now,
            configs(workload),
        );
        knowledge.learned.predictor.observe_mix(mix, estimate, measured);
        self.keep(Record::Validation(Box::new(validated.record)));
        for trend in validated.trends {
            self.keep(Record::Trend(Box::new(trend)));
        }
        self.follow(knowledge, &validated.recommendations);
    }

    /// Looks at past errors and changes the predictor where that helps. What was tried, and what came
    /// of it.
    pub fn refine(&self) -> Vec<RefinementRecord> {
        let knowledge = &mut *self.core.learn();
        let advised = knowledge.validator.refinement_recommendations();
        self.follow(knowledge, &advised)
    }

    fn follow(
        &self,
        knowledge: &mut Knowledge,
        advised: &[RefinementAdvice],
    ) -> Vec<RefinementRecord> {
        let Knowledge { learned, validator } = knowledge;
        let now = SystemTime::now();
        let mut records = Vec::new();
        for RefinementAdvice { metric, refinement, reason } in advised {
            let record = learned.predictor.refine(*refinement, *metric, reason, now);
            // Errors from before say nothing of it, be it changed or found to be best as it is.
            validator.refined();
            self.keep(Record::Refinement(Box::new(record.clone())));
            records.push(record);
        }
        records
    }

    /// How far predictions were off lately.
    pub fn errors(&self) -> Errors {
        lock(&self.core.knowledge).validator.errors()
    }

    /// Keeps what a strategy or sharing gained.
    pub(crate) fn compared(&self, impact: OptimizationImpact) {
        self.keep(Record::Impact(Box::new(impact)));
    }

    /// Learns from strategies that were compared how they differ, and which one to use for how many
    /// models where nothing else says. `ways` are what each of them was, and the seconds of each round.
    pub(crate) fn adapt(&self, comparison: StrategyComparison, ways: &[(&Mix, &[f64])]) {
        let Learned { predictor, settings, comparisons } = &mut self.core.learn().learned;
        predictor.observe_comparison(ways);
        let backend = comparison.backend.clone();
        let excess = (comparisons.len() + 1).saturating_sub(COMPARISONS);
        comparisons.drain(..excess);
        comparisons.push(comparison);
        for change in settings.update(&backend, comparisons, SystemTime::now()) {
            self.keep(Record::Setting(Box::new(change)));
        }
    }

    /// The settings of a backend.
    pub fn settings(&self, backend: &str) -> BackendSettings {
        lock(&self.core.knowledge).learned.settings.get(backend)
    }

    /// Sets one of them by hand.
    pub fn set(&self, backend: &str, setting: Setting, value: u64) -> Result<(), SettingError> {
        let settings = &mut self.core.learn().learned.settings;
        if let Some(change) = settings.set(backend, setting, value, SystemTime::now())? {
            self.keep(Record::Setting(Box::new(change)));
        }
        Ok(())
    }

    /// Everything that was learned, as JSON, for [`Known::learned`].
    pub fn snapshot(&self) -> String {
        self.core.snapshot()
    }

    /// Has everything that was learned kept now, which otherwise is done from time to time.
    pub fn save(&self) {
        self.core.save();
    }

    fn keep(&self, record: Record) {
        self.core.keep(record);
    }
}

impl Core {
    fn take_notes(&self, notes: Receiver<Note>) {
        let mut saved = Instant::now();
        loop {
            match notes.recv_timeout(self.save_every) {
                Ok(Note::Answered(sighting)) => self.take(&sighting),
                Ok(Note::Failed(row)) => self.keep(Record::Inference(row)),
                // Whoever does not wait any more need not be told.
                Ok(Note::Settled(done)) => drop(done.send(())),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if saved.elapsed() >= self.save_every {
                saved = Instant::now();
                if self.unsaved.load(Ordering::Relaxed) {
                    self.save();
                }
            }
        }
    }

    /// What is known, to be added to.
    fn learn(&self) -> MutexGuard<'_, Knowledge> {
        let knowledge = lock(&self.knowledge);
        self.unsaved.store(true, Ordering::Relaxed);
        knowledge
    }

    fn snapshot(&self) -> String {
        let knowledge = lock(&self.knowledge);
        self.unsaved.store(false, Ordering::Relaxed);
        // Maps have names for keys and numbers are finite, so it can always be written.
        serde_json::to_string(&knowledge.learned).unwrap_or_default()
    }

    fn save(&self) {
        if self.recorder.is_some() && self.keeps_learned {
            self.keep(Record::Predictor(self.snapshot()));
        }
    }

    fn take(&self, sighting: &Sighting) {
        // What cannot be told before it runs is kept, and teaches nothing.
        let pieces = self.pieces.of(&sighting.route, &sighting.shapes).unwrap_or_default();
        let runs = sighting.runs(&pieces, self.threads);
        {
            let predictor = &mut self.learn().learned.predictor;
            runs.iter().for_each(|run| predictor.observe_run(run));
            if let Some(load) = sighting.load(self.threads) {
                predictor.observe_load(&load);
            }
        }
        if self.recorder.is_some() {
            self.keep(Record::Inference(Box::new(sighting.inference())));
            runs.into_iter().for_each(|run| self.keep(Record::Run(Box::new(run))));
        }
    }

    fn keep(&self, record: Record) {
        if let Some(recorder) = &self.recorder {
            recorder.record(record);
        }
    }
}

/// The models of a workload with their sizes, as JSON.
fn configs(workload: &Workload) -> String {
    let config = |request: &Request| {
        let sizes = request
            .inputs
            .iter()
            .map(|(name, tensor)| (name.clone(), serde_json::json!(tensor.dims())));
        serde_json::json!({
            "model": request.model,
            "inputs": sizes.collect::<serde_json::Map<_, _>>(),
            "share": request.share,
        })
    };
    serde_json::Value::from(workload.requests.iter().map(config).collect::<Vec<_>>()).to_string()
}
