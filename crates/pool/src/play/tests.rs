//! Plans on devices that come, go and compute something else, over the real engine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use holdfast_devices::cpu::{CpuEngine, CpuOptions};
use holdfast_devices::{
    Device, DeviceError, DeviceInfo, ErrorKind, Event, Loaded, ModelKind, Outcome, Program,
    RequestId, Segment, SegmentId, Stats, TensorId,
};
use holdfast_graph::share::Prices;
use holdfast_graph::{DataType, Tensor, encode};
use holdfast_models::{ImportOptions, Store};
use holdfast_testkit::synth::{Options, synth};
use tempfile::TempDir;
use tokio::sync::broadcast;

use super::prove::difference;
use super::{Means, Plays, Target};
use crate::carry::{Patience, Ways, carry};
use crate::choice::{Choice, Choices};
use crate::ledger::Sighting;
use crate::prepare::{Preparer, Unprepared};
use crate::request::{Answer, Priority, Request, RunError};
use crate::route::Prepared;
use crate::scheduler::Scheduler;
use crate::scheduler::member::{Health, Host, Member, MemberOptions};
use crate::scheduler::queue::Wanted;

/// What an engine does to programs of more than one step, which only shared models have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ToShared {
    Keep,
    /// The last bit of what they give is another one.
    FlipABit,
    /// The same for one model only: the first that comes.
    FlipABitOfOne,
    Fail,
}

/// The real engine by another name.
#[derive(Clone)]
struct Disguised {
    engine: CpuEngine,
    info: Arc<DeviceInfo>,
    shared: Arc<Mutex<ToShared>>,
    /// The head of the first model that came.
    first: Arc<OnceLock<SegmentId>>,
    gone: Arc<AtomicBool>,
}

impl Disguised {
    fn new(engine: CpuEngine, name: &str, shared: ToShared) -> Disguised {
        let (name, adapter) = (name.to_owned(), format!("the kind of {name}"));
        let info = Arc::new(DeviceInfo { name, adapter, ..engine.info().as_ref().clone() });
        let (first, gone) = Default::default();
        Disguised { engine, info, shared: Arc::new(Mutex::new(shared)), first, gone }
    }

    fn turn(&self, shared: ToShared) {
        *self.shared.lock().unwrap() = shared;
    }

    fn be_there(&self, there: bool) {
        self.gone.store(!there, Ordering::SeqCst);
    }
}

impl Host for Disguised {
    fn health(&self) -> Health {
        Health::Ready
    }

    fn share(&self) -> f64 {
        if self.gone.load(Ordering::SeqCst) { 0.0 } else { 1.0 }
    }
}

#[async_trait]
impl Device for Disguised {
    fn info(&self) -> Arc<DeviceInfo> {
        self.info.clone()
    }

    async fn load(&self, segment: Segment) -> Result<Loaded, DeviceError> {
        self.engine.load(segment).await
    }

    async fn unload(&self, segment: SegmentId) -> Result<(), DeviceError> {
        self.engine.unload(segment).await
    }

    async fn put(&self, id: TensorId, tensor: Tensor) -> Result<(), DeviceError> {
        self.engine.put(id, tensor).await
    }

    async fn get(&self, id: &TensorId) -> Result<Tensor, DeviceError> {
        self.engine.get(id).await
    }

    async fn drop_tensor(&self, id: &TensorId) -> Result<(), DeviceError> {
        self.engine.drop_tensor(id).await
    }

    async fn run(&self, program: Program) -> Result<Outcome, DeviceError> {
        let head = program.steps.last().filter(|_| program.steps.len() > 1);
        let flips = match (*self.shared.lock().unwrap(), head.map(|step| step.segment)) {
            (ToShared::Fail, Some(_)) => {
                return Err(DeviceError::new(ErrorKind::Device, "a test says so"));
            }
            (ToShared::FlipABit, Some(_)) => true,
            (ToShared::FlipABitOfOne, Some(head)) => *self.first.get_or_init(|| head) == head,
            (_, _) => false,
        };
        let mut outcome = self.engine.run(program).await?;
        if flips {
            for returned in &mut outcome.outputs {
                returned.tensor = flipped(&returned.tensor);
            }
        }
        Ok(outcome)
    }

    fn cancel(&self, request: &RequestId) -> bool {
        self.engine.cancel(request)
    }

    async fn stats(&self) -> Result<Stats, DeviceError> {
        self.engine.stats().await
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        self.engine.events()
    }
}

/// The same but for one bit.
fn flipped(tensor: &Tensor) -> Tensor {
    let mut bytes = tensor.bytes().to_vec();
    bytes[0] ^= 1;
    Tensor::new(tensor.dtype(), tensor.dims().to_vec(), bytes.into()).unwrap()
}

/// Models with a trunk in common, and what runs them.
struct Scene {
    store: Arc<Store>,
    scheduler: Scheduler,
    plays: Plays,
    preparer: Preparer,
    requests: Vec<Request>,
    folder: TempDir,
}

impl Scene {
    fn new(devices: &[(&str, ToShared)]) -> (Scene, Vec<Disguised>) {
        Scene::of(2, devices)
    }

    fn of(count: usize, devices: &[(&str, ToShared)]) -> (Scene, Vec<Disguised>) {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(folder.path().join("home")).unwrap());
        let options = Options { count, ..Options::default() };
        let mut requests = Vec::new();
        for (number, member) in
            synth("heads".parse().unwrap(), &options).unwrap().into_iter().enumerate()
        {
            let path = folder.path().join(format!("{number}.onnx"));
            std::fs::write(&path, encode(&member.model)).unwrap();
            let imported = store.import(&path, &ImportOptions::default(), &mut |_| ()).unwrap();
            let ids = |value: i64| Tensor::from_slice(&[1, 8], &[value; 8]).unwrap();
            let inputs = [("input_ids", 5), ("attention_mask", 1), ("token_type_ids", 0)];
            requests.push(Request {
                model: "test".to_owned(),
                graph: imported.manifest.components[0].graph.clone(),
                kind: ModelKind::Text,
                inputs: inputs.map(|(name, value)| (name.to_owned(), ids(value))).into(),
                choices: Choices::Ordered(vec![Choice::Cpu]),
                priority: Priority::Normal,
                share: true,
                namespace: String::new(),
                deadline: None,
            });
        }
        Scene::over(store, folder, requests, devices)
    }

    /// A new process over what is there.
    fn over(
        store: Arc<Store>,
        folder: TempDir,
        requests: Vec<Request>,
        devices: &[(&str, ToShared)],
    ) -> (Scene, Vec<Disguised>) {
        let engine = CpuEngine::new(store.clone(), CpuOptions::default()).unwrap();
        let progress: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(|_| ());
        let scheduler = Scheduler::new(1, progress.clone());
        let preparer = Preparer::new(engine, store.clone());
        let means = Means { prices: Prices::default(), lane_bytes: u64::MAX };
        let plays = Plays::new(store.clone(), scheduler.clone(), means, progress);
        let scene = Scene { store, scheduler, plays, preparer, requests, folder };
        let attach = |(name, shared): &(&str, ToShared)| scene.attach(name, *shared);
        let devices = devices.iter().map(attach).collect();
        (scene, devices)
    }

    fn attach(&self, name: &str, shared: ToShared) -> Disguised {
        let engine = CpuEngine::new(self.store.clone(), CpuOptions::default()).unwrap();
        let device = Disguised::new(engine, name, shared);
        let options = MemberOptions {
            choice: Choice::Cpu,
            slots: 1,
            parallel: 1,
            memory_bytes: u64::MAX,
            cache_bytes: 0,
            shares_weights: true,
            steady: true,
            browser: None,
            page: None,
        };
        self.scheduler.attach(Arc::new(device.clone()), options);
        device
    }

    /// Has all models asked for, and waits for the plan that follows.
    async fn ask(&self) {
        self.ask_for(&self.requests).await;
    }

    async fn ask_for(&self, requests: &[Request]) {
        let gathering = self.plays.gather();
        for request in requests {
            self.prepare(request, Choice::Cpu).await.ok().unwrap();
        }
        drop(gathering);
        self.plays.settled().await;
    }

    /// Whether the models have routes, and the kinds of devices on which these may be used.
    async fn shares_on(&self, devices: &[&Disguised]) -> Vec<bool> {
        let prepared = self.prepare(&self.requests[0], Choice::Cpu).await.ok().unwrap();
        let kind = |device: &Disguised| Member::kind_of(&device.info);
        let is_shared = prepared.shared.is_some();
        devices.iter().map(|device| is_shared && prepared.may_run_on(&kind(device))).collect()
    }

    /// How many models go by a route on a device.
    async fn sharing_on(&self, device: &Disguised) -> usize {
        let mut sharing = 0;
        for request in &self.requests {
            let prepared = self.prepare(request, Choice::Cpu).await.ok().unwrap();
            let goes = prepared.may_run_on(&Member::kind_of(&device.info));
            sharing += usize::from(prepared.shared.is_some() && goes);
        }
        sharing
    }

    /// Waits until no route is loaded.
    async fn no_route_is_loaded(&self) {
        let has_none = || {
            let state = self.scheduler.state();
            let mut loaded = state.members.values().flat_map(|member| member.loaded.values());
            loaded.all(|held| held.model.shared.is_none())
        };
        let wait = async {
            while !has_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let limit = Duration::from_secs(20);
        tokio::time::timeout(limit, wait).await.expect("a route stays loaded that nobody uses");
    }

    async fn run(&self, request: &Request) -> Result<Answer, RunError> {
        carry(&self.scheduler, self, request, self.scheduler.arrival()).await
    }

    fn refused(&self) -> Vec<String> {
        self.scheduler.state().account.refused_plans.iter().cloned().collect()
    }
}

impl Ways for Scene {
    async fn ensure(&self, _: Wanted, _: Patience) -> Result<(), String> {
        Ok(())
    }

    async fn prepare(&self, request: &Request, _: Choice) -> Result<Arc<Prepared>, Unprepared> {
        let whole = self.preparer.prepare(request, Target::Cpu, || ()).await?;
        Ok(match request.share {
            true => self.plays.route(request, Target::Cpu, whole),
            false => whole,
        })
    }

    fn saw(&self, _: Sighting) {}
}

#[tokio::test]
async fn a_plan_that_differs_is_refused_with_its_cut_and_the_models_run_on_their_own() {
    let (scene, devices) = Scene::new(&[("wrong", ToShared::FlipABit)]);
    scene.ask().await;
    assert_eq!(scene.shares_on(&[&devices[0]]).await, [false]);
    let [refused] = &scene.refused()[..] else { panic!("one plan, one kind of device") };
    for said in ["output `logits` of model", "differs", "cut at ", "the kind of wrong"] {
        assert!(refused.contains(said), "`{said}` is not in: {refused}");
    }
    for request in &scene.requests {
        let answer = scene.run(request).await.unwrap();
        let alone = Request { share: false, ..request.clone() };
        let alone = scene.run(&alone).await.unwrap();
        assert_eq!(difference(&answer.outcome.outputs, &alone.outcome.outputs), None);
        assert_eq!(answer.outcome.steps.len(), 1, "it ran on its own");
    }
}

#[tokio::test]
async fn a_model_that_differs_is_left_out_and_the_others_share() {
    let (scene, devices) = Scene::of(3, &[("odd", ToShared::FlipABitOfOne)]);
    scene.ask().await;
    assert_eq!(scene.sharing_on(&devices[0]).await, 2);
    let [refused] = &scene.refused()[..] else { panic!("one plan, one kind of device") };
    assert!(refused.contains("differs") && refused.contains("1 of 3 models run on their own"));
    for request in &scene.requests {
        let answer = scene.run(request).await.unwrap();
        let alone = scene.run(&Request { share: false, ..request.clone() }).await.unwrap();
        assert_eq!(difference(&answer.outcome.outputs, &alone.outcome.outputs), None);
    }
    // The next process knows it, and tries nothing.
    let Scene { store, folder, requests, .. } = scene;
    let (scene, devices) = Scene::over(store, folder, requests, &[("odd", ToShared::FlipABit)]);
    scene.ask().await;
    assert_eq!(scene.sharing_on(&devices[0]).await, 2);
}

#[tokio::test]
async fn a_plan_that_is_refused_does_not_take_the_place_of_one_that_is_proven() {
    let (scene, devices) = Scene::of(3, &[("moody", ToShared::Keep)]);
    scene.ask_for(&scene.requests[..2]).await;
    assert_eq!(scene.shares_on(&[&devices[0]]).await, [true]);
    devices[0].turn(ToShared::FlipABit);
    scene.ask().await;
    assert_eq!(scene.refused().len(), 1);
    assert_eq!(scene.sharing_on(&devices[0]).await, 2, "as before");
}

#[tokio::test]
async fn what_cannot_be_had_by_way_of_the_plan_is_found_out_once_and_nothing_of_it_stays() {
    for wrong in [ToShared::Fail, ToShared::FlipABit] {
        let (scene, _devices) = Scene::new(&[("wrong", wrong)]);
        scene.ask().await;
        let [refused] = &scene.refused()[..] else { panic!("{wrong:?}: it is an answer") };
        let says_so = refused.contains("cannot be had by way of the plan: device failed");
        assert_eq!(says_so, wrong == ToShared::Fail, "{refused}");
        scene.no_route_is_loaded().await;
    }
}

#[tokio::test]
async fn a_plan_that_keeps_every_bit_is_used() {
    let (scene, devices) = Scene::new(&[("right", ToShared::Keep)]);
    scene.ask().await;
    assert_eq!(scene.shares_on(&[&devices[0]]).await, [true]);
    assert_eq!(scene.refused(), [""; 0]);
    assert_eq!(scene.run(&scene.requests[0]).await.unwrap().outcome.steps.len(), 2);
}

#[tokio::test]
async fn what_one_kind_of_device_refuses_or_fails_at_another_may_do() {
    for wrong in [ToShared::FlipABit, ToShared::Fail] {
        let (scene, devices) = Scene::new(&[("wrong", wrong), ("right", ToShared::Keep)]);
        scene.ask().await;
        assert_eq!(scene.shares_on(&[&devices[0], &devices[1]]).await, [false, true], "{wrong:?}");
    }
}

#[tokio::test]
async fn a_kind_of_device_that_was_away_is_tried_when_it_is_back() {
    let (scene, devices) = Scene::new(&[("first", ToShared::Keep), ("second", ToShared::Keep)]);
    devices[1].be_there(false);
    scene.scheduler.refresh();
    scene.ask().await;
    assert_eq!(scene.shares_on(&[&devices[0], &devices[1]]).await, [true, false]);
    devices[1].be_there(true);
    scene.scheduler.refresh();
    scene.ask().await;
    assert_eq!(scene.shares_on(&[&devices[0], &devices[1]]).await, [true, true]);
}

#[tokio::test]
async fn without_a_device_a_proven_plan_stays_and_a_new_one_waits() {
    let (scene, devices) = Scene::new(&[("only", ToShared::Keep)]);
    devices[0].be_there(false);
    scene.scheduler.refresh();
    scene.ask().await;
    assert_eq!(scene.shares_on(&[&devices[0]]).await, [false]);
    devices[0].be_there(true);
    scene.scheduler.refresh();
    scene.ask().await;
    assert_eq!(scene.shares_on(&[&devices[0]]).await, [true], "found out once it could be");
    devices[0].be_there(false);
    scene.scheduler.refresh();
    scene.ask().await;
    assert_eq!(scene.shares_on(&[&devices[0]]).await, [true]);
}

#[test]
fn outputs_differ_by_a_bit_a_type_or_if_one_is_missing() {
    let of = |name: &str, tensor: Tensor| holdfast_devices::Returned {
        step: 0,
        name: name.to_owned(),
        tensor,
    };
    let zero = || Tensor::from_slice(&[1], &[0f32]).unwrap();
    let expected = [of("x", zero()), of("y", zero())];
    let other_type = Tensor::new(DataType::I32, vec![1], vec![0; 4].into()).unwrap();
    let minus = Tensor::from_slice(&[1], &[-0f32]).unwrap();
    for (found, name) in [
        (vec![of("y", zero()), of("x", zero())], None),
        (vec![of("x", zero()), of("y", flipped(&zero()))], Some("y")),
        (vec![of("x", zero()), of("y", minus)], Some("y")),
        (vec![of("x", zero()), of("y", other_type)], Some("y")),
        (vec![of("y", zero())], Some("x")),
    ] {
        assert_eq!(difference(&expected, &found).as_deref(), name);
    }
}
