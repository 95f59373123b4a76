//! A device for tests that does what it is told: answers, fails, loses its state, hangs, goes.
//!
//! It computes `y = x + 1`, so that every answer can be checked against its own request.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use holdfast_devices::{
    Device, DeviceError, DeviceInfo, ErrorKind, Event, Input, KeptTensor, Loaded, ModelKind,
    Outcome, Output, Program, RequestId, Returned, Segment, SegmentId, Stats, StepTiming, TensorId,
    Window,
};
use holdfast_graph::{DataType, Digest, Dim, Tensor, Value};
use holdfast_models::StoredGraph;
use holdfast_wire::Backend;
use tokio::sync::{Notify, broadcast};

use crate::carry::{Patience, Ways, carry};
use crate::choice::{Choice, Choices};
use crate::prepare::Unprepared;
use crate::request::{Answer, Priority, Request, RunError};
use crate::route::Prepared;
use crate::scheduler::Scheduler;
use crate::scheduler::member::{Health, Host, MemberOptions};
use crate::scheduler::queue::Wanted;

/// What happens to one run or load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// It succeeds.
    Succeed,
    /// It fails, and the device is still there.
    Fail(ErrorKind),
    /// The device loses its engine under it, and is still there.
    LoseEngine,
    /// The device goes under it.
    Go,
    /// It waits until the device is let go on.
    Hang,
}

#[derive(Clone)]
pub(crate) struct Scripted {
    shared: Arc<Shared>,
}

struct Shared {
    info: Arc<DeviceInfo>,
    events: broadcast::Sender<Event>,
    go_on: Notify,
    /// Whether rows of a batch come out as they would alone.
    keeps_bits: bool,
    /// How long a run takes on the test's clock.
    takes: Duration,
    /// How much of that is the way there and back.
    way: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    health: Option<Health>,
    share: Option<f64>,
    loaded: HashSet<SegmentId>,
    runs: VecDeque<Deed>,
    loads: VecDeque<Deed>,
    puts: VecDeque<Deed>,
    tensors: HashMap<TensorId, Tensor>,
    log: Vec<String>,
    running: usize,
    most_running: usize,
}

impl Scripted {
    pub(crate) fn new(name: &str) -> Scripted {
        Scripted::with(name, true, Duration::ZERO)
    }

    /// One that is far away: all that a run takes is the way there and back.
    pub(crate) fn far(name: &str, way: Duration) -> Scripted {
        Scripted::build(name, true, way, way)
    }

    pub(crate) fn with(name: &str, keeps_bits: bool, takes: Duration) -> Scripted {
        Scripted::build(name, keeps_bits, takes, Duration::ZERO)
    }

    fn build(name: &str, keeps_bits: bool, takes: Duration, way: Duration) -> Scripted {
        let info = DeviceInfo {
            name: name.to_owned(),
            backend: "wasm".to_owned(),
            engine: "scripted".to_owned(),
            adapter: "none".to_owned(),
            accelerated: false,
            calibration: None,
        };
        let shared = Shared {
            info: Arc::new(info),
            events: broadcast::channel(64).0,
            go_on: Notify::new(),
            keeps_bits,
            takes,
            way,
            state: Mutex::default(),
        };
        Scripted { shared: Arc::new(shared) }
    }

    /// What happens to the next runs; those after them succeed.
    pub(crate) fn runs(self, deeds: impl IntoIterator<Item = Deed>) -> Scripted {
        self.state().runs.extend(deeds);
        self
    }

    /// It cannot be heard, and may come back.
    pub(crate) fn away(self) -> Scripted {
        self.state().health = Some(Health::Away);
        self
    }

    pub(crate) fn loads(self, deeds: impl IntoIterator<Item = Deed>) -> Scripted {
        self.state().loads.extend(deeds);
        self
    }

    pub(crate) fn puts(self, deeds: impl IntoIterator<Item = Deed>) -> Scripted {
        self.state().puts.extend(deeds);
        self
    }

    /// How many tensors it keeps.
    pub(crate) fn kept(&self) -> usize {
        self.state().tensors.len()
    }

    /// Lets one that hangs go on.
    pub(crate) fn go_on(&self) {
        self.shared.go_on.notify_one();
    }

    /// What was asked of it, in order.
    pub(crate) fn log(&self) -> Vec<String> {
        self.state().log.clone()
    }

    pub(crate) fn running(&self) -> (usize, usize) {
        let state = self.state();
        (state.running, state.most_running)
    }

    pub(crate) fn go(&self) {
        self.state().health = Some(Health::Gone);
        let _ = self.shared.events.send(Event::Gone { reason: "it was told to".to_owned() });
    }

    /// Offers so much of what it could do.
    pub(crate) fn offers(&self, share: f64) {
        self.state().share = Some(share);
    }

    pub(crate) fn lose(&self) {
        let mut state = self.state();
        state.loaded.clear();
        state.tensors.clear();
        drop(state);
        let _ = self.shared.events.send(Event::Lost { reason: "it was told to".to_owned() });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap()
    }

    async fn act(&self, deed: Deed) -> Result<(), DeviceError> {
        tokio::time::sleep(self.shared.takes).await;
        match deed {
            Deed::Succeed => Ok(()),
            Deed::Fail(kind) => {
                if kind == ErrorKind::StateLost {
                    self.lose();
                }
                Err(DeviceError::new(kind, "it was told to fail"))
            }
            Deed::LoseEngine => {
                self.lose();
                Err(DeviceError::new(ErrorKind::Device, "it was told to lose its engine"))
            }
            Deed::Go => {
                self.go();
                Err(DeviceError::new(ErrorKind::Device, "it was told to go"))
            }
            Deed::Hang => {
                self.shared.go_on.notified().await;
                Ok(())
            }
        }
    }
}

impl Host for Scripted {
    fn health(&self) -> Health {
        self.state().health.unwrap_or(Health::Ready)
    }

    fn share(&self) -> f64 {
        self.state().share.unwrap_or(1.0)
    }
}

#[async_trait]
impl Device for Scripted {
    fn info(&self) -> Arc<DeviceInfo> {
        self.shared.info.clone()
    }

    async fn load(&self, segment: Segment) -> Result<Loaded, DeviceError> {
        let deed = {
            let mut state = self.state();
            state.log.push(format!("load {}", segment.id()));
            state.loads.pop_front().unwrap_or(Deed::Succeed)
        };
        self.act(deed).await?;
        self.state().loaded.insert(segment.id());
        Ok(Loaded {
            id: segment.id(),
            inputs: vec![x()],
            outputs: vec![y()],
            weight_bytes: 0,
            new_weight_bytes: 0,
            downloaded_bytes: 0,
            took: Duration::from_nanos(1),
            first_run: None,
            first_run_error: None,
            placement: None,
        })
    }

    async fn unload(&self, segment: SegmentId) -> Result<(), DeviceError> {
        let mut state = self.state();
        state.log.push(format!("unload {segment}"));
        state.loaded.remove(&segment);
        Ok(())
    }

    async fn run(&self, program: Program) -> Result<Outcome, DeviceError> {
        let step = &program.steps[0];
        let (_, Input::Inline(tensor)) = &step.inputs[0] else { panic!("an inline input") };
        let values = tensor.to_vec::<f32>().unwrap();
        let deed = {
            let mut state = self.state();
            state.log.push(format!("run {values:?}"));
            if !state.loaded.contains(&step.segment) {
                return Err(DeviceError::new(ErrorKind::StateLost, "it is not loaded"));
            }
            state.running += 1;
            state.most_running = state.most_running.max(state.running);
            state.runs.pop_front().unwrap_or(Deed::Succeed)
        };
        let running = Running(self);
        self.act(deed).await?;
        drop(running);
        let rows = tensor.dims()[0];
        let error = if rows > 1 && !self.shared.keeps_bits { 1e-3 } else { 0.0 };
        let result: Vec<f32> = values.iter().map(|value| value + 1.0 + error).collect();
        let tensor = Tensor::from_slice(tensor.dims(), &result).unwrap();
        let run = (self.shared.takes - self.shared.way).max(Duration::from_millis(1));
        let keep = |(_, to): &(String, Output)| {
            let id = to.kept_as()?.clone();
            self.state().tensors.insert(id.clone(), tensor.clone());
            Some(KeptTensor { id, dtype: tensor.dtype(), dims: tensor.dims().to_vec() })
        };
        let kept = step.outputs.iter().filter_map(keep).collect();
        Ok(Outcome {
            kept,
            outputs: vec![Returned { step: 0, name: "y".to_owned(), tensor }],
            steps: vec![StepTiming { run, readback: Duration::ZERO }],
            queued: Duration::ZERO,
            device: self.info(),
        })
    }

    async fn put(&self, id: TensorId, tensor: Tensor) -> Result<(), DeviceError> {
        let deed = {
            let mut state = self.state();
            state.log.push(format!("put {id}"));
            state.tensors.insert(id, tensor);
            state.puts.pop_front().unwrap_or(Deed::Succeed)
        };
        self.act(deed).await
    }

    async fn get(&self, id: &TensorId) -> Result<Tensor, DeviceError> {
        let kept = self.state().tensors.get(id).cloned();
        kept.ok_or_else(|| DeviceError::new(ErrorKind::StateLost, "it is not there"))
    }

    async fn copy(
        &self,
        id: &TensorId,
        window: Option<&Window>,
        to: TensorId,
    ) -> Result<(), DeviceError> {
        let tensor = self.get(id).await?;
        let tensor = window.map_or(Ok(tensor.clone()), |window| window.of(&tensor))?;
        let mut state = self.state();
        state.log.push(format!("copy {id}"));
        state.tensors.insert(to, tensor);
        Ok(())
    }

    async fn drop_tensor(&self, id: &TensorId) -> Result<(), DeviceError> {
        let mut state = self.state();
        state.log.push(format!("drop {id}"));
        state.tensors.remove(id);
        Ok(())
    }

    fn cancel(&self, _: &RequestId) -> bool {
        false
    }

    async fn stats(&self) -> Result<Stats, DeviceError> {
        Ok(Stats::default())
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.events.subscribe()
    }
}

struct Running<'a>(&'a Scripted);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state().running -= 1;
    }
}

fn rows() -> Vec<Dim> {
    vec![Dim::Named("n".to_owned())]
}

pub(crate) fn x() -> Value {
    Value { name: "x".to_owned(), dtype: Some(DataType::F32), dims: Some(rows()) }
}

pub(crate) fn y() -> Value {
    Value { name: "y".to_owned(), dtype: Some(DataType::F32), dims: Some(rows()) }
}

/// A scheduler with scripted devices, and a door for requests.
pub(crate) struct Scene {
    pub(crate) scheduler: Scheduler,
    arrivals: std::sync::atomic::AtomicU64,
    memory_bytes: u64,
    /// Whether devices that went are followed by others, for those who wait.
    restarts: bool,
}

/// What the scripted devices are.
pub(crate) const CHOICE: Choice = Choice::Lane(Backend::Wasm);

impl Scene {
    pub(crate) fn new(devices: &[&Scripted]) -> Scene {
        Scene::with(devices, 1, u64::MAX)
    }

    pub(crate) fn with(devices: &[&Scripted], max_batch: usize, memory_bytes: u64) -> Scene {
        let scheduler = Scheduler::new(max_batch, Arc::new(|_| ()));
        let arrivals = Default::default();
        let scene = Scene { scheduler, arrivals, memory_bytes, restarts: false };
        devices.iter().for_each(|device| scene.attach(device, 1));
        scene
    }

    /// Whoever lost a device waits until another one is attached.
    pub(crate) fn restarting(self) -> Scene {
        Scene { restarts: true, ..self }
    }

    pub(crate) fn attach(&self, device: &Scripted, slots: usize) {
        self.attach_as(CHOICE, device, slots);
    }

    pub(crate) fn attach_as(&self, choice: Choice, device: &Scripted, slots: usize) {
        let options = MemberOptions {
            choice,
            slots,
            parallel: 1,
            memory_bytes: self.memory_bytes,
            cache_bytes: 0,
            shares_weights: false,
            steady: false,
            browser: None,
            page: Some(device.info().name.clone()),
        };
        self.scheduler.attach(Arc::new(device.clone()), options);
    }

    pub(crate) fn run<'a>(
        &'a self,
        request: &'a Request,
    ) -> impl Future<Output = Result<Answer, RunError>> + 'a {
        let arrival = self.arrivals.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        carry(&self.scheduler, self, request, arrival)
    }

    /// Waits until so many requests are in the queue.
    pub(crate) async fn queued(&self, count: usize) {
        while self.scheduler.state().queue.lengths().iter().sum::<usize>() != count {
            tokio::task::yield_now().await;
        }
    }

    /// Whether nothing is left of anything.
    pub(crate) fn is_clean(&self) -> bool {
        let state = self.scheduler.state();
        state.queue.is_empty()
            && state.members.values().all(|member| {
                member.in_flight() == 0 && member.loaded.values().all(|held| held.in_use == 0)
            })
    }
}

impl Ways for Scene {
    fn saw(&self, _sighting: crate::ledger::Sighting) {}

    async fn ensure(&self, wanted: Wanted, patience: Patience) -> Result<(), String> {
        while !self.scheduler.serves(wanted) {
            if patience == Patience::Fresh || !self.restarts {
                return Err("no device is left".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    async fn prepare(&self, request: &Request, _: Choice) -> Result<Arc<Prepared>, Unprepared> {
        let segment = Segment::new(request.graph.clone());
        Ok(Arc::new(Prepared::whole(request.graph.graph, segment, &[x()], &[y()])))
    }
}

/// A request for a model, told apart by its number, with one value.
pub(crate) fn request(model: u8, value: f32) -> Request {
    let graph = StoredGraph { graph: Digest::of(&[model]), weights: Vec::new() };
    Request {
        model: "test".to_owned(),
        graph,
        kind: ModelKind::Other,
        inputs: vec![("x".to_owned(), Tensor::from_slice(&[1], &[value]).unwrap())],
        choices: Choices::Ordered(vec![CHOICE]),
        priority: Priority::Normal,
        share: false,
        namespace: String::new(),
        deadline: None,
    }
}

/// Whether an answer is the one to its request.
pub(crate) fn is_right(answer: &Answer, value: f32) -> bool {
    let found = answer.outcome.output("y").unwrap().to_vec::<f32>().unwrap();
    found == [value + 1.0]
}
