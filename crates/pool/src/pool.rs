//! The pool: the in-process engine, the lanes, and the door for requests.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::join_all;
use holdfast_devices::cpu::{CpuEngine, CpuOptions, Target};
use holdfast_devices::lane::{Lane, LaneOptions, Lanes};
use holdfast_devices::{Device, DeviceError, SegmentId};
use holdfast_graph::Digest;
use holdfast_graph::share::Prices;
use holdfast_models::Store;
use holdfast_models::tensors::SavedLimits;
use holdfast_predict::{DeviceProfile, Rates, Recorder, ValidatorOptions};
use holdfast_tensors::Limits;
use holdfast_wire::Backend;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::batch::Inputs;
use crate::carry::{Patience, Ways, carry};
use crate::choice::Choice;
use crate::fleet::{BrowserOptions, Fleet, missing, there};
use crate::joining::Joining;
use crate::ledger::{self, Known, Ledger, LedgerOptions, Sighting};
use crate::measurements::{MEASUREMENTS, Measurements};
use crate::metrics::Metrics;
use crate::play::{Means, Plays};
use crate::prepare::{Preparer, Unprepared};
use crate::request::{Answer, Request, RunError};
use crate::route::{Prepared, Step};
use crate::scheduler::Scheduler;
use crate::scheduler::member::MemberOptions;
use crate::scheduler::proof::{Claim, Fit};
use crate::scheduler::queue::Wanted;
use crate::tensors::SharedTensors;
use crate::values::Values;
use crate::workload::Resident;

/// How a pool works.
#[derive(Clone)]
pub struct PoolOptions {
    /// The in-process engine.
    pub cpu: CpuOptions,
    /// The lanes.
    pub lanes: LaneOptions,
    /// The browsers to start when none has joined; `None` to start none.
    pub browser: Option<BrowserOptions>,
    /// What may wait.
    pub queue: QueueOptions,
    /// Rows of requests for one model that may run together; one for none.
    pub max_batch: usize,
    /// Bytes of models that the in-process engine may hold.
    pub cpu_model_bytes: u64,
    /// Bytes of models that a lane may hold.
    pub lane_model_bytes: u64,
    /// Bytes of what a device computed that it may keep for other models.
    pub cache_bytes: u64,
    /// Bytes of shared tensors in this process, and on each device.
    pub shared_tensor_bytes: u64,
    /// How long a shared tensor stays that nothing holds and nobody uses; `None` for as long as there
    /// is room.
    pub shared_tensor_age: Option<Duration>,
    /// What shared tensors that are saved may take on disk, and for how long they stay there.
    pub saved_tensors: SavedLimits,
    /// By which it is decided what models have in common is worth sharing.
    pub prices: Prices,
    /// Keeps what was measured and learned; `None` to keep nothing.
    pub recorder: Option<Arc<dyn Recorder>>,
    /// What was learned before.
    pub known: Known,
    /// How often predictions are compared with what was measured.
    pub validation: ValidatorOptions,
    /// How often what was learned is kept while something is: that much is lost at most with a process
    /// that is killed.
    pub save_every: Duration,
    /// Is told what takes long.
    pub progress: Arc<dyn Fn(&str) + Send + Sync>,
}

/// What may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// Requests that may be accepted and not answered yet.
    pub limit: usize,
    /// What happens to one more.
    pub when_full: WhenFull,
}

/// What happens to a request when the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It is refused.
    Refuse,
    /// It waits until there is room, for as long as its deadline allows.
    Wait,
}

impl Default for QueueOptions {
    fn default() -> QueueOptions {
        QueueOptions { limit: 16_384, when_full: WhenFull::Refuse }
    }
}

impl Default for PoolOptions {
    /// The in-process engine, and browsers that join; none is started.
    fn default() -> PoolOptions {
        PoolOptions {
            cpu: CpuOptions::default(),
            lanes: LaneOptions::default(),
            browser: None,
            queue: QueueOptions::default(),
            max_batch: 16,
            cpu_model_bytes: machine_bytes().map_or(UNKNOWN_MACHINE, |bytes| bytes / 2),
            lane_model_bytes: 2 << 30,
            cache_bytes: 256 << 20,
            shared_tensor_bytes: 1 << 30,
            shared_tensor_age: None,
            saved_tensors: SavedLimits { max_bytes: 8 << 30, max_age: Some(SAVED_FOR) },
            prices: Prices::default(),
            recorder: None,
            known: Known::default(),
            validation: ValidatorOptions::default(),
            save_every: Duration::from_secs(15),
            progress: Arc::new(|_| ()),
        }
    }
}

impl PoolOptions {
    /// Bytes of tensors that the pool may want a lane to keep. A lane that kept less would refuse to
    /// run whatever keeps anything. What a program has just kept comes on top until the oldest went.
    fn lane_tensor_bytes(&self) -> u64 {
        self.shared_tensor_bytes.saturating_add(self.cache_bytes.saturating_mul(2))
    }
}

/// How long saved tensors stay on disk.
const SAVED_FOR: Duration = Duration::from_secs(30 * 24 * 3600);

/// What the in-process engine may hold where the machine does not tell how much memory it has.
const UNKNOWN_MACHINE: u64 = 4 << 30;

/// Everything that runs models.
pub struct Pool {
    engine: CpuEngine,
    joining: Arc<Joining>,
    options: PoolOptions,
    scheduler: Scheduler,
    preparer: Preparer,
    plays: Plays,
    tensors: SharedTensors,
    ledger: Ledger,
    /// What the in-process engine was measured to do, once somebody wanted to know.
    cpu_rates: tokio::sync::OnceCell<Rates>,
    /// Room for requests that were accepted and not answered yet.
    room: Semaphore,
    /// The browsers that it starts.
    fleet: Option<Fleet>,
}

impl Pool {
    /// A pool over a store.
    pub fn new(store: Arc<Store>, options: PoolOptions) -> Result<Pool, DeviceError> {
        let engine = CpuEngine::new(store.clone(), options.cpu.clone())?;
        let tensors_folder = store.home().join("tensors");
        let scheduler = Scheduler::new(options.max_batch, options.progress.clone());
        let slots = options.cpu.concurrency.max(1);
        let member = MemberOptions {
            choice: Choice::Cpu,
            slots,
            parallel: slots,
            memory_bytes: options.cpu_model_bytes,
            cache_bytes: options.cache_bytes,
            shares_weights: true,
            steady: true,
            browser: None,
            page: None,
        };
        scheduler.attach(Arc::new(engine.clone()), member);
        let mut lanes = options.lanes.clone();
        lanes.tensor_bytes = lanes.tensor_bytes.max(options.lane_tensor_bytes());
        let lanes = Arc::new(Lanes::new(store.clone(), lanes));
        let measurements = Arc::new(Measurements::default());
        let fleet = options.browser.clone().map(|browser| {
            let (lanes, scheduler) = (lanes.clone(), scheduler.clone());
            Fleet::new(browser, lanes, scheduler, measurements.clone(), options.progress.clone())
        });
        Ok(Pool {
            fleet,
            joining: Arc::new(Joining::new(
                lanes,
                scheduler.clone(),
                measurements,
                options.clone(),
            )),
            preparer: Preparer::new(engine.clone(), store.clone()),
            ledger: Ledger::new(
                store.clone(),
                options.recorder.clone(),
                &options.known,
                LedgerOptions {
                    validation: options.validation,
                    threads: options.cpu.threads,
                    save_every: options.save_every,
                },
            ),
            cpu_rates: tokio::sync::OnceCell::new(),
            plays: Plays::new(
                store,
                scheduler.clone(),
                Means { prices: options.prices, lane_bytes: options.lane_model_bytes },
                options.progress.clone(),
            ),
            tensors: SharedTensors::new(
                scheduler.clone(),
                Limits {
                    max_age: options.shared_tensor_age,
                    ..Limits::budget(options.shared_tensor_bytes)
                },
                tensors_folder,
                options.saved_tensors.clone(),
            ),
            engine,
            scheduler,
            room: Semaphore::new(options.queue.limit.min(Semaphore::MAX_PERMITS)),
            options,
        })
    }

    /// The in-process engine.
    pub fn engine(&self) -> &CpuEngine {
        &self.engine
    }

    /// The lanes that joined, for whoever takes connections in.
    pub fn lanes(&self) -> &Arc<Lanes> {
        &self.joining.lanes
    }

    /// Tells by which link browsers join from now on. Those that are to be there in any case are
    /// started.
    pub fn open_door(&self, link: String) {
        if let Some(fleet) = &self.fleet {
            fleet.open_door(link);
        }
    }

    /// Runs a model. Dropping the future cancels it.
    pub async fn run(&self, request: &Request) -> Result<Answer, RunError> {
        let result = self.admit_and_carry(request).await;
        if let Err(error) = &result {
            self.ledger.failed(request, error);
        }
        let account = &mut self.scheduler.state().account;
        match &result {
            Ok(answer) => account.answer(answer),
            Err(error) => account.error(error),
        }
        result
    }

    /// Brings the models of these requests into play, and waits until it is known what they share.
    /// Without this, models run on their own until that was found out beside the work. What is
    /// wrong with a request is told when it is run.
    pub async fn bring_together(&self, requests: &[Request]) {
        let gathering = self.plays.gather();
        let mut seen = HashSet::new();
        for request in requests.iter().filter(|request| request.share) {
            if !seen.insert((request.graph.graph, request.choices.to_string())) {
                continue;
            }
            for (choice, accelerated) in request.choices.in_order() {
                let wanted = Wanted::new(choice, accelerated);
                if self.ensure(wanted, Patience::Fresh).await.is_ok()
                    && self.prepare(request, choice).await.is_ok()
                {
                    break;
                }
            }
        }
        drop(gathering);
        if seen.len() > 1 {
            self.plays.settled().await;
        }
    }

    /// Forgets which models are in play: those that come after share nothing with those that were.
    /// What they had loaded goes once nobody uses it.
    pub async fn forget_models(&self) {
        self.plays.forget().await;
    }

    /// Runs all of these at once. The answers are in the order of the requests.
    pub async fn run_concurrent(&self, requests: &[Request]) -> Vec<Result<Answer, RunError>> {
        self.bring_together(requests).await;
        self.run_at_once(requests).await
    }

    /// The same with models of which is known what they share, or that are to run as they are.
    pub(crate) async fn run_at_once<'a>(
        &self,
        requests: impl IntoIterator<Item = &'a Request>,
    ) -> Vec<Result<Answer, RunError>> {
        let mut hold = Some(self.scheduler.hold());
        let all = join_all(requests.into_iter().map(|request| self.run(request)));
        tokio::pin!(all);
        std::future::poll_fn(|context| {
            let polled = all.as_mut().poll(context);
            // All that can be in the queue by now is: what fits together can go together.
            hold.take();
            polled
        })
        .await
    }

    /// What is known of costs.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The tensors that callers share by name, here and on the devices.
    pub fn tensors(&self) -> &SharedTensors {
        &self.tensors
    }

    /// How the pool is.
    pub fn metrics(&self) -> Metrics {
        let limit = self.options.queue.limit;
        let accepted = limit.saturating_sub(self.room.available_permits());
        let fleet = self.fleet.as_ref().map(Fleet::metrics).unwrap_or_default();
        let metrics = Metrics::of(&self.scheduler.state(), accepted, limit, fleet);
        Metrics { recorded: self.ledger.kept(), ..metrics }
    }

    async fn admit_and_carry(&self, request: &Request) -> Result<Answer, RunError> {
        let arrival = self.scheduler.arrival();
        let _room = self.admit(request).await?;
        carry(&self.scheduler, self, request, arrival).await
    }

    /// Makes room for a request.
    async fn admit(&self, request: &Request) -> Result<SemaphorePermit<'_>, RunError> {
        let full = || RunError::Full { limit: self.options.queue.limit };
        if let Ok(room) = self.room.try_acquire() {
            return Ok(room);
        }
        if self.options.queue.when_full == WhenFull::Refuse {
            return Err(full());
        }
        let arrived = Instant::now();
        let room = self.room.acquire();
        let room = match request.deadline {
            Some(deadline) => tokio::time::timeout(deadline, room)
                .await
                .map_err(|_| RunError::Expired(arrived.elapsed()))?,
            None => room.await,
        };
        // It is never closed.
        room.map_err(|_| full())
    }

    /// A lane on a backend: one that joined, or one of a browser that is started for it.
    pub async fn lane(&self, backend: Backend) -> Result<Lane, String> {
        self.lane_with(backend, Patience::Fresh).await
    }

    async fn lane_with(&self, backend: Backend, patience: Patience) -> Result<Lane, String> {
        let mut failed = Vec::new();
        let measurements = &self.joining.measurements;
        let others = self.lanes().all().iter().filter(|lane| lane.backend() == backend).count();
        // Each that is there may fail once, and what comes in their place as often as any.
        let tries = others + MEASUREMENTS;
        loop {
            // Whoever saw one fail has lost a device as well.
            let patience = if failed.is_empty() { patience } else { Patience::Bereft };
            let there = there(self.lanes(), &self.scheduler, measurements, backend);
            let lane = match (there, &self.fleet) {
                (Some(lane), _) => lane,
                (None, Some(fleet)) => fleet.lane(backend, patience).await?,
                (None, None) => {
                    let lanes = self.lanes().all();
                    let told = measurements.useless(&lanes, backend).or(failed.pop());
                    let told = told.or_else(|| lanes.iter().find_map(|l| missing(l, backend)));
                    let nobody = || format!("no browser with {} has joined", backend.name());
                    return Err(told.unwrap_or_else(nobody));
                }
            };
            match self.joining.take_in(&lane).await {
                Ok(()) => return Ok(lane),
                Err(reason) => failed.push(reason),
            }
            if failed.len() >= tries {
                return Err(failed.join("; "));
            }
        }
    }

    /// How many of these requests for one model of one shape, each with its rows, a device of a choice
    /// would run in one go.
    pub(crate) fn fit(
        &self,
        choice: Choice,
        segment: SegmentId,
        shape: Arc<[usize]>,
        requests: Vec<(usize, &Inputs)>,
    ) -> Option<Fit> {
        let state = self.scheduler.state();
        let wanted = Wanted::new(choice, false);
        let kind = state.members.values().find(|member| member.serves(wanted))?.kind.clone();
        let of = Claim { segment, shape, rows: 0, kind };
        state.proofs.fit(&of, requests.into_iter(), self.options.max_batch)
    }

    /// What is known of the devices of a choice, which are there.
    pub(crate) async fn profile(&self, choice: Choice) -> Result<Arc<DeviceProfile>, String> {
        let rates = match choice {
            Choice::Cpu => Some(self.cpu_rates().await?),
            Choice::Lane(_) => None,
        };
        let state = self.scheduler.state();
        let mut members =
            state.members.values().filter(|member| member.serves(Wanted::new(choice, false)));
        let first = members.next().ok_or_else(|| format!("no device with {choice} is there"))?;
        let info = first.device.info();
        let alike = members.filter(|member| member.kind_id == first.kind_id);
        let slots =
            first.options.parallel + alike.map(|member| member.options.parallel).sum::<usize>();
        let rates = rates.or_else(|| info.calibration.as_ref().map(ledger::rates));
        let profile = ledger::profile(&info, self.options.cpu.threads, slots, rates);
        drop(state);
        self.ledger.meet(&profile);
        Ok(Arc::new(profile))
    }

    async fn cpu_rates(&self) -> Result<Rates, String> {
        let measure = || async {
            (self.options.progress)("measuring the processor");
            let measured = self.engine.calibrate().await.map_err(|error| explain(&error))?;
            Ok(ledger::rates(&measured))
        };
        self.cpu_rates.get_or_try_init(measure).await.copied()
    }

    /// What devices of a choice have loaded.
    pub(crate) fn resident(&self, choice: Choice) -> Resident {
        let state = self.scheduler.state();
        let (mut segments, mut weights) = (HashSet::new(), HashSet::new());
        let members = state.members.values().filter(|member| member.options.choice == choice);
        for member in members {
            let models = member.loaded.values().flat_map(|held| &held.model.segments);
            for (id, segment) in models {
                segments.insert(*id);
                if member.options.shares_weights {
                    weights.extend(segment.graph.weights.iter().map(|weight| weight.content));
                }
            }
        }
        Resident { segments, weights }
    }

    /// Which of what requests compute on these routes the devices of a choice have kept.
    pub(crate) fn kept(
        &self,
        choice: Choice,
        routes: &[Arc<Prepared>],
        values: &[Option<Values>],
    ) -> HashSet<Digest> {
        let now = Instant::now();
        let mut state = self.scheduler.state();
        let members = state.members.values_mut().filter(|member| member.options.choice == choice);
        let mut kept = HashSet::new();
        for member in members {
            member.cache.tidy(now);
            for (route, values) in routes.iter().zip(values) {
                let values = values.iter().flat_map(|values| &values.steps);
                let steps = route.steps.iter().zip(values).filter(|(step, _)| step.trunk);
                let has = |(step, value): (&Step, &Option<Digest>)| {
                    value.filter(|value| member.cache.has(value, step.outputs.len()))
                };
                kept.extend(steps.filter_map(has));
            }
        }
        kept
    }

    /// Bytes of memory that models may take on the devices of a choice; `None` if there are none.
    pub(crate) fn memory_for_models(&self, choice: Choice) -> Option<u64> {
        let state = self.scheduler.state();
        let members = state.members.values().filter(|member| member.options.choice == choice);
        members.map(|member| member.options.memory_bytes).reduce(u64::saturating_add)
    }

    /// Bytes of memory of the browsers that were started from here; `None` if there are none, if
    /// others take part as well, or if the system does not tell.
    pub(crate) async fn browser_memory(&self) -> Option<u64> {
        let fleet = self.fleet.as_ref()?;
        let pages = self.lanes().all().into_iter().map(|lane| lane.hello().page.clone());
        fleet.memory(&pages.collect()).await
    }

    /// A model on its own, ready for a choice.
    pub(crate) async fn prepare_whole(
        &self,
        request: &Request,
        choice: Choice,
    ) -> Result<Arc<Prepared>, Unprepared> {
        let progress = || (self.options.progress)(&format!("preparing the model for {choice}"));
        self.preparer.prepare(request, target(choice), progress).await
    }

    /// How models would run together, by the graphs that they were imported as.
    pub(crate) async fn preview(
        &self,
        choice: Choice,
        models: Vec<(Arc<Prepared>, Arc<Inputs>)>,
    ) -> HashMap<Digest, Arc<Prepared>> {
        self.plays.preview(target(choice), models).await
    }

    /// Makes sure that there is a device; the error says why there is none.
    pub(crate) async fn make_sure(&self, wanted: Wanted) -> Result<(), String> {
        self.ensure(wanted, Patience::Fresh).await
    }

    /// Ends what the pool started. Returns when no process and no profile of it is left.
    pub async fn close(&self) {
        if let Some(fleet) = &self.fleet {
            fleet.close().await;
        }
    }
}

impl Ways for Pool {
    async fn ensure(&self, wanted: Wanted, patience: Patience) -> Result<(), String> {
        if self.scheduler.serves(wanted) {
            return Ok(());
        }
        match wanted.choice {
            Choice::Cpu => Ok(()),
            Choice::Lane(backend) => {
                // All that are there, or come, take part, whatever is wrong with the first of them.
                self.joining.want(backend);
                // No browser is started to find out the same again.
                let known = || self.fleet.as_ref()?.no_accelerator(backend);
                if let Some(reason) = wanted.accelerated.then(known).flatten() {
                    return Err(reason);
                }
                let lane = self.lane_with(backend, patience).await?;
                let info = lane.info();
                let plain = || format!("{} is no accelerator", info.adapter);
                let plain = (!info.accelerated).then(plain);
                if let Some(fleet) = &self.fleet {
                    fleet.measured(&lane, plain.clone());
                }
                plain.filter(|_| wanted.accelerated).map_or(Ok(()), Err)
            }
        }
    }

    async fn prepare(
        &self,
        request: &Request,
        choice: Choice,
    ) -> Result<Arc<Prepared>, Unprepared> {
        let whole = self.prepare_whole(request, choice).await?;
        Ok(match request.share {
            true => self.plays.route(request, target(choice), whole),
            false => whole,
        })
    }

    fn saw(&self, mut sighting: Sighting) {
        sighting.memory_bytes = match (&sighting.page, &self.fleet) {
            (Some(page), Some(fleet)) => fleet.last_memory(page),
            (Some(_), None) => None,
            (None, _) => crate::workload::private_bytes(),
        };
        self.ledger.answered(sighting);
    }
}

/// What models are lowered for to run on a choice.
fn target(choice: Choice) -> Target {
    match choice {
        Choice::Cpu => Target::Cpu,
        Choice::Lane(Backend::Wasm) => Target::Wasm,
        Choice::Lane(Backend::Webgpu) => Target::WebGpu,
        Choice::Lane(Backend::Webnn) => Target::WebNn,
    }
}

/// How much memory this machine has.
fn machine_bytes() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// An error and its causes in one line.
pub fn explain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code panics while holding this lock")
}

#[cfg(test)]
mod tests;
