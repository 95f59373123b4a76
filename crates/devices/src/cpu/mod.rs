//! The in-process CPU engine: ONNX Runtime behind the [`Device`] trait.

mod cores;
mod execute;
mod fault;
mod helpers;
mod kept;
mod lower;
mod processor;
mod runtime;
mod session;
mod thread;
mod value;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use holdfast_graph::{Digest, Tensor};
use holdfast_models::{Store, StoredGraph};
use ort::session::builder::PrepackedWeights;
use tokio::sync::{Semaphore, broadcast};

pub use lower::{Level, Target};

use crate::calibration::{Calibration, calibrate};
use crate::device::{Device, DeviceInfo, Event, Loaded, Stats};
use crate::error::{DeviceError, ErrorKind};
use crate::program::{Outcome, Program, RequestId, TensorId};
use crate::segment::{Segment, SegmentId};
use cores::Cores;
use execute::{Kept, Stop};
use kept::KeptTensors;
use runtime::Runtime;
use session::LoadedSession;

/// How a CPU engine works.
#[derive(Clone, Debug)]
pub struct CpuOptions {
    /// The ONNX Runtime library; `None` to find it.
    pub library: Option<PathBuf>,
    /// Threads for one operator.
    pub threads: usize,
    /// Programs that run at the same time.
    pub concurrency: usize,
    /// Programs that may wait for their turn; one more is refused.
    pub queue: usize,
    /// Bytes of tensors that may be kept.
    pub tensor_bytes: u64,
}

impl Default for CpuOptions {
    fn default() -> CpuOptions {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        CpuOptions {
            library: None,
            threads: cores,
            concurrency: cores,
            queue: 256,
            tensor_bytes: 4 << 30,
        }
    }
}

/// Runs programs on this machine's processor. Cheap to clone: clones are the same engine.
#[derive(Clone)]
pub struct CpuEngine {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<Store>,
    runtime: &'static Runtime,
    options: CpuOptions,
    info: Arc<DeviceInfo>,
    turns: Arc<Semaphore>,
    cores: Cores,
    events: broadcast::Sender<Event>,
    /// Never held while the engine works or anything is awaited.
    state: Mutex<State>,
    /// Segments load one at a time, so that two callers do not load one segment twice.
    loading: tokio::sync::Mutex<()>,
}

struct State {
    sessions: HashMap<SegmentId, Arc<LoadedSession>>,
    /// Packed copies of weights, for all sessions. The library never takes one out, so the
    /// container is replaced when nothing is loaded.
    packed: PrepackedWeights,
    tensors: KeptTensors,
    running: HashMap<RequestId, Arc<Stop>>,
    succeeded: u64,
    failed: u64,
}

impl CpuEngine {
    /// Starts an engine over a store.
    pub fn new(store: Arc<Store>, options: CpuOptions) -> Result<CpuEngine, DeviceError> {
        let runtime = runtime::runtime(options.library.as_deref())?;
        let info = DeviceInfo {
            name: "cpu".to_owned(),
            backend: "cpu".to_owned(),
            engine: runtime.engine.clone(),
            adapter: processor::name(),
            accelerated: false,
            calibration: None,
        };
        let state = State {
            sessions: HashMap::new(),
            packed: PrepackedWeights::new(),
            tensors: KeptTensors::default(),
            running: HashMap::new(),
            succeeded: 0,
            failed: 0,
        };
        let shared = Shared {
            store,
            runtime,
            info: Arc::new(info),
            turns: Arc::new(Semaphore::new(options.concurrency.max(1))),
            cores: Cores::new(),
            options,
            events: broadcast::channel(16).0,
            state: Mutex::new(state),
            loading: tokio::sync::Mutex::new(()),
        };
        Ok(CpuEngine { shared: Arc::new(shared) })
    }

    /// Lowers a stored graph for a target, or finds that it was done before. `dims` fixes named
    /// dimensions, which lets more be folded; leave it empty to keep them free.
    pub async fn lower(
        &self,
        original: &StoredGraph,
        target: Target,
        dims: &BTreeMap<String, usize>,
    ) -> Result<StoredGraph, DeviceError> {
        let (shared, original, dims) = (self.shared.clone(), original.clone(), dims.clone());
        blocking(move || lower::lower(shared.runtime, &shared.store, &original, target, &dims))
            .await?
    }

    /// Measures what the engine does here. It takes a moment, and says nothing while other work runs.
    pub async fn calibrate(&self) -> Result<Calibration, DeviceError> {
        calibrate(self, &self.shared.store).await
    }

    /// The library that is in use.
    pub fn library(&self) -> &Path {
        &self.shared.runtime.library
    }

    /// The library's environment. A process has only one, so whoever wants a bare session beside
    /// the engine, as tests and benchmarks do for comparison, makes it from this.
    pub fn environment(&self) -> &ort::environment::Environment {
        &self.shared.runtime.environment
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("no code panics while holding this lock")
    }
}

#[async_trait]
impl Device for CpuEngine {
    fn info(&self) -> Arc<DeviceInfo> {
        self.shared.info.clone()
    }

    async fn load(&self, segment: Segment) -> Result<Loaded, DeviceError> {
        if let Some(lifted) = segment.lifted.first() {
            let message = format!(
                "input `{}` is a lifted weight, which this engine does not feed: its sessions share \
                 weights by themselves. Load the graph with its weights inside",
                lifted.input
            );
            return Err(DeviceError::new(ErrorKind::Device, message));
        }
        let id = segment.id();
        let _one_at_a_time = self.shared.loading.lock().await;
        let (there, packed, held) = {
            let state = self.state();
            (state.sessions.get(&id).cloned(), state.packed.clone(), state.weights())
        };
        if let Some(session) = there {
            return Ok(describe(id, &session, &held, Duration::ZERO));
        }
        let shared = self.shared.clone();
        let session = blocking(move || {
            let threads = shared.options.threads;
            let session = session::load(shared.runtime, &shared.store, &segment, threads, &packed);
            crate::memory::give_back();
            session
        })
        .await??;
        let loaded = describe(id, &session, &held, session.took);
        self.state().sessions.insert(id, Arc::new(session));
        Ok(loaded)
    }

    async fn unload(&self, segment: SegmentId) -> Result<(), DeviceError> {
        let _no_loading = self.shared.loading.lock().await;
        let (session, packed) = {
            let mut state = self.state();
            let session = state.sessions.remove(&segment).ok_or_else(|| not_loaded(segment))?;
            let none_left = state.sessions.is_empty();
            let packed =
                none_left.then(|| std::mem::replace(&mut state.packed, PrepackedWeights::new()));
            (session, packed)
        };
        let shared = self.shared.clone();
        blocking(move || {
            let none_left = packed.is_some();
            drop((session, packed));
            if none_left {
                let failed = |error| fault::engine_error("cannot free the engine's memory", error);
                shared.runtime.renew_arena().map_err(failed)?;
            }
            crate::memory::give_back();
            Ok(())
        })
        .await?
    }

    async fn put(&self, id: TensorId, tensor: Tensor) -> Result<(), DeviceError> {
        let kept = HashMap::from([(id, Arc::new(Kept::from_tensor(&tensor)?))]);
        self.state().tensors.keep(kept, self.shared.options.tensor_bytes)
    }

    async fn get(&self, id: &TensorId) -> Result<Tensor, DeviceError> {
        let kept = self.state().tensors.get(id)?;
        kept.to_tensor()
    }

    async fn drop_tensor(&self, id: &TensorId) -> Result<(), DeviceError> {
        let removed = self.state().tensors.remove(id);
        removed.map(drop)
    }

    async fn run(&self, program: Program) -> Result<Outcome, DeviceError> {
        let arrived = Instant::now();
        let request = program.request.clone();
        let deadline = program.deadline;
        let guard = self.admit(&request)?;
        let stop = guard.stop.clone();

        let work = self.work(program, &stop, arrived);
        let outcome = match deadline {
            None => work.await,
            Some(deadline) => {
                tokio::pin!(work);
                match tokio::time::timeout(deadline, &mut work).await {
                    Ok(outcome) => outcome,
                    // The engine is told to stop and waited for, so that it is free again when
                    // the caller hears of the timeout.
                    Err(_) => {
                        stop.stop(ErrorKind::Timeout);
                        work.await
                    }
                }
            }
        };
        let mut state = self.state();
        match &outcome {
            Ok(_) => state.succeeded += 1,
            Err(_) => state.failed += 1,
        }
        outcome
    }

    fn cancel(&self, request: &RequestId) -> bool {
        let stop = self.state().running.get(request).cloned();
        stop.map(|stop| stop.stop(ErrorKind::Cancelled)).is_some()
    }

    async fn stats(&self) -> Result<Stats, DeviceError> {
        let state = self.state();
        Ok(Stats {
            segments: state.sessions.len(),
            weight_bytes: state.weights().values().sum(),
            lifted_bytes: 0,
            device_tensor_bytes: 0,
            tensors: state.tensors.len(),
            tensor_bytes: state.tensors.byte_len(),
            in_flight: state.running.len(),
            succeeded: state.succeeded,
            failed: state.failed,
        })
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.events.subscribe()
    }
}

impl CpuEngine {
    /// Takes a request in, unless there are too many or it is here already.
    fn admit(&self, request: &RequestId) -> Result<Admitted<'_>, DeviceError> {
        let options = &self.shared.options;
        let mut state = self.state();
        if state.running.len() >= options.concurrency.max(1) + options.queue {
            let message = format!("{} programs are running or waiting", state.running.len());
            return Err(DeviceError::new(ErrorKind::Busy, message));
        }
        if state.running.contains_key(request) {
            return Err(DeviceError::caller(format!("request `{request}` is running already")));
        }
        let stop = Arc::new(Stop::new()?);
        state.running.insert(request.clone(), stop.clone());
        Ok(Admitted { engine: self, request: request.clone(), stop })
    }

    /// Waits for a turn and runs the steps on a thread that may block.
    async fn work(
        &self,
        program: Program,
        stop: &Arc<Stop>,
        arrived: Instant,
    ) -> Result<Outcome, DeviceError> {
        let turns = self.shared.turns.clone();
        let turn = tokio::select! {
            biased;
            reason = stop.stopped() => return Err(stop.error(reason)),
            turn = turns.acquire_owned() => turn.expect("the semaphore is never closed"),
        };
        let queued = arrived.elapsed();
        // Timers are no finer than a millisecond, in which a small program would be done.
        if program.deadline.is_some_and(|deadline| queued >= deadline) {
            return Err(stop.error(ErrorKind::Timeout));
        }
        let prepared = {
            let state = self.state();
            execute::prepare(&program, &state.sessions, &state.tensors)?
        };
        let (shared, thread_stop) = (self.shared.clone(), stop.clone());
        let done = blocking(move || {
            let _turn = turn;
            execute::execute(&prepared, &shared.cores, &thread_stop)
        })
        .await??;
        let kept = done.kept.iter().map(|(kept, _)| kept.clone()).collect();
        let values = done.kept.into_iter().map(|(kept, value)| (kept.id, value)).collect();
        self.state().tensors.keep(values, self.shared.options.tensor_bytes)?;
        let (outputs, steps) = (done.returned, done.steps);
        Ok(Outcome { outputs, kept, steps, queued, device: self.info() })
    }
}

/// A request that was taken in. However its future ends, the engine is told to stop and the
/// request is forgotten.
struct Admitted<'a> {
    engine: &'a CpuEngine,
    request: RequestId,
    stop: Arc<Stop>,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.stop.stop(ErrorKind::Cancelled);
        self.engine.state().running.remove(&self.request);
    }
}

impl State {
    /// The large weights of all sessions, each once.
    fn weights(&self) -> HashMap<Digest, u64> {
        self.sessions.values().flat_map(|session| session.contents.iter().copied()).collect()
    }
}

fn describe(
    id: SegmentId,
    session: &LoadedSession,
    held: &HashMap<Digest, u64>,
    took: Duration,
) -> Loaded {
    let new = session.contents.iter().filter(|(digest, _)| !held.contains_key(digest));
    Loaded {
        id,
        inputs: session.inputs.clone(),
        outputs: session.outputs.clone(),
        weight_bytes: session.contents.iter().map(|(_, bytes)| bytes).sum(),
        new_weight_bytes: new.map(|(_, bytes)| bytes).sum(),
        downloaded_bytes: 0,
        took,
        first_run: None,
        first_run_error: None,
        placement: None,
    }
}

fn not_loaded(segment: SegmentId) -> DeviceError {
    DeviceError::caller(format!("segment {segment} is not loaded on this device"))
}

/// Runs what blocks on a thread made for that.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, DeviceError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| DeviceError::caused(ErrorKind::Device, "the engine's thread ended", error))
}
