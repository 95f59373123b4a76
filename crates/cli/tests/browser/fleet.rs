//! Several browsers under one pool: they are started, killed, replaced and closed, and every request
//! is answered.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use holdfast_browsers::{GuardCommand, Kind, packaged};
use holdfast_devices::ModelKind;
use holdfast_devices::lane::{LaneOptions, Timeouts};
use holdfast_devtools::DevTools;
use holdfast_graph::{DataType, Tensor, encode};
use holdfast_models::{ImportOptions, Store, StoredGraph};
use holdfast_pool::{
    Answer, BrowserOptions, BrowserState, FleetMetrics, Pool, PoolOptions, Priority, Request,
    RunError, ScalingEvent, ScalingStep,
};
use holdfast_server::{Server, ServerOptions};
use holdfast_testkit::{Builder, fixed};

use crate::returning::{kill, try_signal};
use crate::rig::{unpacked, within};

/// A pool that starts browsers, and a model that adds an input to a large sum.
struct Scene {
    pool: Arc<Pool>,
    _server: Server,
    store: Arc<Store>,
    graph: StoredGraph,
    folder: tempfile::TempDir,
}

fn browsers() -> BrowserOptions {
    let program = env!("CARGO_BIN_EXE_holdfast").into();
    let guard = GuardCommand { program, arguments: vec!["guard".into()] };
    BrowserOptions { kinds: vec![Kind::Packaged], ..BrowserOptions::new(unpacked(), guard) }
}

impl Scene {
    async fn new(browser: BrowserOptions) -> Scene {
        Scene::with(PoolOptions { browser: Some(browser), ..PoolOptions::default() }).await
    }

    async fn with(options: PoolOptions) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(folder.path().join("home")).unwrap());
        let pool = Arc::new(Pool::new(store.clone(), options).unwrap());
        let address = (std::net::Ipv4Addr::LOCALHOST, 0).into();
        let options = ServerOptions { address, ..ServerOptions::default() };
        let server = Server::start(pool.lanes().clone(), options).await.unwrap();
        pool.open_door(server.join_link());
        let graph = import(&store, folder.path(), PRODUCTS);
        Scene { pool, _server: server, store, graph, folder }
    }

    /// Makes what is asked for take at least so long on this machine, by what it was seen to take.
    async fn slow_down_to(&mut self, wanted: Duration) {
        let mut fastest = wanted;
        for value in 0..5 {
            let answer = self.run(value, "wasm").await.unwrap();
            fastest = fastest.min(answer.outcome.steps[0].run);
        }
        let times = wanted.as_secs_f64() / fastest.as_secs_f64().max(1e-6);
        let products = (PRODUCTS as f64 * times).ceil() as usize;
        self.graph = import(&self.store, self.folder.path(), products);
    }

    fn request(&self, value: u16, choices: &str) -> Request {
        let input = Tensor::from_slice(&[SIZE, SIZE], &vec![f32::from(value); SIZE * SIZE]);
        Request {
            model: "test".to_owned(),
            graph: self.graph.clone(),
            kind: ModelKind::Other,
            inputs: vec![("x".to_owned(), input.unwrap())],
            choices: choices.parse().unwrap(),
            priority: Priority::Normal,
            share: true,
            namespace: String::new(),
            deadline: None,
        }
    }

    async fn run(&self, value: u16, choices: &str) -> Result<Answer, RunError> {
        within("an answer", self.pool.run(&self.request(value, choices))).await
    }

    /// Asks for all of these at once. All answers have to be right.
    async fn run_all(&self, values: std::ops::Range<u16>) -> Vec<Answer> {
        self.run_all_on("wasm", values).await
    }

    async fn run_all_on(&self, choices: &str, values: std::ops::Range<u16>) -> Vec<Answer> {
        let runs = values.clone().map(|value| self.run(value, choices));
        let answers: Vec<Answer> = join_all(runs).await.into_iter().map(Result::unwrap).collect();
        for (value, answer) in values.zip(&answers) {
            assert!(is_right(answer, value), "{value}");
        }
        answers
    }

    fn fleet(&self) -> FleetMetrics {
        self.pool.metrics().fleet
    }

    /// Waits until the fleet is as wanted.
    async fn until(&self, what: &str, wanted: impl Fn(&FleetMetrics) -> bool) -> FleetMetrics {
        let waiting = async {
            loop {
                let fleet = self.fleet();
                if wanted(&fleet) {
                    return fleet;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        within(what, waiting).await
    }

    /// Closes the pool; nothing may be left of the browsers that were seen.
    async fn close(self, seen: &[FleetMetrics]) {
        within("the pool to close", self.pool.close()).await;
        assert!(self.fleet().browsers.is_empty());
        for browser in seen.iter().flat_map(|fleet| &fleet.browsers) {
            let process = browser.process.unwrap();
            assert!(!Path::new(&format!("/proc/{process}")).exists(), "{}", browser.name);
            let profile = browser.profile.as_ref().unwrap();
            assert!(!Path::new(profile).exists(), "{}", browser.name);
        }
        let error = self.pool.run(&self.request(1, "wasm")).await.unwrap_err();
        assert!(error.to_string().contains("the pool is closed"), "{error}");
    }
}

const SIZE: usize = 128;
const PRODUCTS: usize = 16;

fn import(store: &Store, folder: &Path, products: usize) -> StoredGraph {
    let path = folder.join(format!("slow-{products}.onnx"));
    std::fs::write(&path, encode(&model(products))).unwrap();
    let imported = store.import(&path, &ImportOptions::default(), &mut |_| ()).unwrap();
    imported.manifest.components[0].graph.clone()
}

/// Products in a row with a matrix that changes nothing, so that it takes a while.
fn model(products: usize) -> holdfast_graph::Model {
    let mut builder = Builder::new("slow", 0);
    builder.input("x", DataType::F32, &[fixed(SIZE), fixed(SIZE)]);
    let mut identity = vec![0f32; SIZE * SIZE];
    (0..SIZE).for_each(|index| identity[index * SIZE + index] = 1.0);
    let identity = Tensor::from_slice(&[SIZE, SIZE], &identity).unwrap();
    let identity = builder.initializer("identity", &identity);
    let mut last = "x".to_owned();
    for _ in 0..products {
        last = builder.node("MatMul", &[&last, &identity], &[]);
    }
    let y = builder.node("Add", &[&last, "x"], &[]);
    builder.output("y", &y, DataType::F32, &[fixed(SIZE), fixed(SIZE)]);
    builder.finish().unwrap()
}

fn is_right(answer: &Answer, value: u16) -> bool {
    let found = answer.outcome.output("y").unwrap().to_vec::<f32>().unwrap();
    found == vec![2.0 * f32::from(value); SIZE * SIZE]
}

/// What was said when browsers were closed.
fn closings(fleet: &FleetMetrics) -> Vec<&ScalingEvent> {
    fleet.events.iter().filter(|event| event.what == ScalingStep::Close).collect()
}

fn serving(fleet: &FleetMetrics) -> usize {
    fleet.browsers.iter().filter(|browser| browser.state == BrowserState::Serving).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_that_is_killed_costs_no_answer_and_is_replaced() {
    let scene = Scene::new(BrowserOptions { min: 2, max: 2, lanes: 2, ..browsers() }).await;
    scene.until("two browsers", |fleet| serving(fleet) == 2).await;
    // Lanes take part once somebody wants what they have.
    scene.run_all(0..1).await;
    let four = async {
        while scene.pool.metrics().connections.by_backend.get("wasm") != Some(&4) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("all four lanes", four).await;
    let before = scene.fleet();
    assert!(before.browsers.iter().all(|browser| browser.kind == "packaged"));
    let answers = scene.run_all(0..4).await;
    let lane = &answers[0].outcome.device.name;
    let victim = before.browsers.iter().find(|browser| browser.lanes.contains(lane)).unwrap();
    let process = victim.process.unwrap();

    // Its pages stand still before it gets more, so what it takes is in flight when it is killed,
    // however fast the machine is.
    signal(process, "renderer", "-STOP");
    let killing = async {
        let is_at_work = || {
            let devices = scene.pool.metrics().devices;
            devices.iter().any(|device| device.in_flight > 0 && victim.lanes.contains(&device.name))
        };
        while !is_at_work() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        kill(process);
    };
    tokio::join!(scene.run_all(0..40), within("the browser to be at work", killing));
    assert!(scene.pool.metrics().failovers > 0);

    let is_replaced = |fleet: &FleetMetrics| fleet.restarts == 1 && serving(fleet) == 2;
    let after = scene.until("another browser", is_replaced).await;
    assert_eq!((after.started, after.restarts, after.most), (3, 1, 2));
    assert!(after.browsers.iter().all(|browser| browser.process != victim.process));
    let failed = after.events.iter().find(|event| event.what == ScalingStep::Fail).unwrap();
    // Its tab goes with it, and may be seen to have gone first.
    let is_told = ["signal 9", "its tab crashed"].iter().any(|why| failed.why.contains(why));
    assert!(is_told, "{}", failed.why);
    scene.run_all(0..8).await;
    scene.close(&[before, after]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fleet_grows_while_work_waits_and_shrinks_when_there_is_none() {
    let idle = Duration::from_secs(4);
    let options = BrowserOptions { max: 2, idle, ..browsers() };
    let mut scene = Scene::new(options).await;
    assert_eq!(scene.fleet().started, 0, "nobody has asked for one");
    scene.run_all(0..1).await;
    let one = scene.fleet();
    assert_eq!((one.started, serving(&one)), (1, 1), "one request is no reason for a second one");

    // So many of these wait for longer than the fleet's patience, on any machine.
    scene.slow_down_to(Duration::from_millis(20)).await;
    let load = async {
        while serving(&scene.fleet()) < 2 {
            scene.run_all(0..64).await;
        }
    };
    within("a second browser", load).await;
    let two = scene.fleet();
    // While the slow model is made, a browser may have nothing to do for so long that it is closed.
    let closed = closings(&two).len() as u64;
    assert_eq!((two.started - closed, two.restarts), (2, 0));
    let started = two.events.iter().rfind(|event| event.what == ScalingStep::Start).unwrap();
    assert!(started.why.contains("requests wait for wasm"), "{}", started.why);

    scene.until("no browser", |fleet| fleet.browsers.is_empty()).await;
    let none = scene.fleet();
    let closed = closings(&none);
    assert_eq!(closed.len() as u64, two.started);
    assert!(closed.iter().all(|event| event.why.contains("nothing to do")), "{closed:?}");
    // And it grows again.
    scene.run_all(0..2).await;
    let again = scene.fleet();
    assert_eq!(again.started, two.started + 1);
    scene.close(&[one, two, again]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_that_takes_too_much_memory_is_drained_and_replaced() {
    let limit = Some(1 << 20);
    let scene = Scene::new(BrowserOptions { min: 1, memory_limit: limit, ..browsers() }).await;
    let replaced = scene.until("a replacement", |fleet| fleet.started >= 2).await;
    assert!(replaced.restarts >= 1);
    let drained = replaced.events.iter().find(|event| event.what == ScalingStep::Drain).unwrap();
    assert!(drained.why.contains("1 MiB are allowed"), "{}", drained.why);
    // It is no failure, so nothing is held back.
    assert!(replaced.failing.is_empty());
    scene.close(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crashed_tab_is_replaced_although_its_browser_lives() {
    let scene = Scene::new(browsers()).await;
    scene.run_all(0..4).await;
    let before = scene.fleet();
    let browser = before.browsers[0].process.unwrap();
    signal(browser, "renderer", "-KILL");
    let after = scene.until("another browser", |fleet| fleet.restarts == 1).await;
    let failed = after.events.iter().find(|event| event.what == ScalingStep::Fail).unwrap();
    assert!(failed.why.contains("its tab crashed"), "{}", failed.why);
    scene.run_all(0..4).await;
    scene.close(&[before]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_gpu_costs_the_requests_that_were_on_it_no_answer() {
    let scene = Scene::new(browsers()).await;
    scene.run_all_on("webgpu", 0..1).await;
    let before = scene.fleet();
    let browser = before.browsers[0].process.unwrap();
    // Its GPU stands still before it gets more, so what it takes is in flight when that is lost.
    signal(browser, "gpu-process", "-STOP");
    let losing = async {
        let at_work = || {
            let devices = scene.pool.metrics().devices;
            devices.iter().any(|device| device.backend == "webgpu" && device.in_flight > 0)
        };
        while !at_work() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        signal(browser, "gpu-process", "-KILL");
    };
    let (answers, ()) =
        tokio::join!(scene.run_all_on("webgpu", 1..9), within("the GPU to be at work", losing));
    // There is one lane only: the very one that lost its GPU has answered.
    assert!(answers.iter().all(|answer| answer.passed_over.is_empty()));
    assert!(answers.iter().any(|answer| !answer.failed_on.is_empty()));
    let after = scene.fleet();
    assert_eq!((after.started, after.restarts), (1, 0));
    scene.close(&[before]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_that_gives_no_gpu_any_more_is_replaced() {
    let scene = Scene::new(browsers()).await;
    scene.run_all_on("webgpu", 0..1).await;
    let before = scene.fleet();
    let browser = before.browsers[0].process.unwrap();
    // Chromium gives up on a GPU whose process keeps ending. Every request is answered all the same.
    let mut value = 1;
    while scene.fleet().restarts == 0 {
        assert!(value < 20, "the browser still has a GPU: {:#?}", scene.fleet());
        send(browser, "gpu-process", "-KILL");
        scene.run_all_on("webgpu", value..value + 1).await;
        value += 1;
    }
    let after = scene.fleet();
    assert_eq!((after.started, after.restarts), (2, 1));
    let drained = after.events.iter().find(|event| event.what == ScalingStep::Drain).unwrap();
    assert!(drained.why.contains("it lost 1 of its 3 lanes"), "{}", drained.why);
    scene.close(&[before, after]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_engine_costs_the_requests_that_were_in_it_no_answer() {
    let extra_arguments = vec![holdfast_devtools::ARGUMENT.to_owned()];
    let browser = BrowserOptions { extra_arguments, ..browsers() };
    let timeouts = Timeouts { run_at_least: Duration::from_secs(3), ..Timeouts::default() };
    let lanes = LaneOptions { timeouts, ..LaneOptions::default() };
    let options = PoolOptions { browser: Some(browser), lanes, ..PoolOptions::default() };
    let scene = Scene::with(options).await;
    scene.run_all(0..1).await;
    let before = scene.fleet();
    let profile = before.browsers[0].profile.clone().unwrap();
    let devtools = DevTools::connect(Path::new(&profile)).await.unwrap();
    let engine = devtools.target("worker", "engine-worker").await.unwrap();
    devtools.start(&engine, "setTimeout(() => { for (;;) {} }, 0)");
    // What was said is on its way once something else was answered.
    devtools.target("page", "/join").await.unwrap();
    let answers = scene.run_all(1..9).await;
    assert!(answers.iter().any(|answer| !answer.failed_on.is_empty()));
    let after = scene.fleet();
    assert_eq!((after.started, after.restarts), (1, 0));
    scene.close(&[before]).await;
}

/// Sends a signal to the processes of a browser that have a role, of which there has to be one.
fn signal(browser: u32, role: &str, signal: &str) {
    assert!(send(browser, role, signal) > 0, "the browser has no process of the role {role}");
}

/// Sends a signal to the processes of a browser that have a role, and tells how many these are.
fn send(browser: u32, role: &str, signal: &str) -> usize {
    let role = format!("--type={role}");
    let mut found = 0;
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let has_role = String::from_utf8_lossy(&command).contains(&role);
        // Browsers keep renderers in store, and end them as they like.
        if has_role && descends(pid, browser) && try_signal(pid, signal) {
            found += 1;
        }
    }
    found
}

fn descends(pid: u32, ancestor: u32) -> bool {
    let parent = |pid: u32| -> Option<u32> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
    };
    std::iter::successors(parent(pid), |pid| parent(*pid)).any(|pid| pid == ancestor)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_browser_is_said_once_and_the_next_choice_is_used() {
    let program = Some("/bin/true".into());
    let scene = Scene::new(BrowserOptions { program: program.clone(), ..browsers() }).await;
    scene.run_all(0..2).await;
    let fleet = scene.fleet();
    let failed: Vec<_> =
        fleet.events.iter().filter(|event| event.what == ScalingStep::Fail).collect();
    assert_eq!(failed.len(), 1);
    assert!(failed[0].why.contains("/bin/true"), "{}", failed[0].why);
    assert_eq!(fleet.browsers[0].kind, "packaged");
    scene.close(&[fleet]).await;

    // Where there is no other choice, whoever asks is told at once.
    let scene = Scene::new(BrowserOptions { program, kinds: vec![], ..browsers() }).await;
    for _ in 0..20 {
        let error = scene.run(1, "wasm").await.unwrap_err().to_string();
        assert!(error.contains("/bin/true"), "{error}");
    }
    let fleet = scene.fleet();
    assert!(fleet.started < 20, "{} starts", fleet.started);
    assert!(fleet.browsers.is_empty());
    // And the next device is used.
    let answer = scene.run(3, "wasm,cpu").await.unwrap();
    assert!(is_right(&answer, 3) && answer.passed_over.len() == 1);
    scene.close(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_that_lost_one_of_its_lanes_is_replaced_by_one_that_has_all() {
    let extra_arguments = vec![holdfast_devtools::ARGUMENT.to_owned()];
    let browser = BrowserOptions { min: 1, lanes: 2, extra_arguments, ..browsers() };
    let grace = Duration::from_secs(1);
    let lanes = LaneOptions { grace, ..LaneOptions::default() };
    let options = PoolOptions { browser: Some(browser), lanes, ..PoolOptions::default() };
    let scene = Scene::with(options).await;
    let is_whole = |fleet: &FleetMetrics| {
        serving(fleet) == 1 && fleet.browsers.len() == 1 && fleet.browsers[0].lanes.len() == 6
    };
    let before = scene.until("two lanes of each backend", is_whole).await;
    scene.run_all(0..4).await;

    // What a worker does that ends by itself: nobody is told.
    let profile = before.browsers[0].profile.clone().unwrap();
    let devtools = DevTools::connect(Path::new(&profile)).await.unwrap();
    let worker = devtools.target("worker", "io-worker").await.unwrap();
    devtools.start(&worker, "self.close()");
    let after = async {
        loop {
            scene.run_all(0..4).await;
            let fleet = scene.fleet();
            if fleet.restarts > 0 && is_whole(&fleet) {
                return fleet;
            }
        }
    };
    let after = tokio::time::timeout(Duration::from_secs(120), after).await;
    let after = after.unwrap_or_else(|_| panic!("no whole browser: {:#?}", scene.fleet()));
    assert_eq!((after.started, after.restarts), (2, 1));
    let drained = after.events.iter().find(|event| event.what == ScalingStep::Drain).unwrap();
    assert!(drained.why.contains("it lost 1 of its 6 lanes"), "{}", drained.why);
    assert!(after.failing.is_empty());
    scene.close(&[before, after]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_browser_makes_room_for_one_with_the_backend_that_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let program = Some(without_webnn(folder.path()));
    let scene = Scene::new(BrowserOptions { min: 1, program, ..browsers() }).await;
    scene.run_all(0..2).await;
    let before = scene.fleet();
    assert_eq!(before.browsers[0].kind, "chromium");

    // There is only one place, and the browser in it has no WebNN.
    let answer = scene.run(3, "webnn").await.unwrap();
    assert!(is_right(&answer, 3));
    assert_eq!(answer.outcome.device.backend, "webnn");
    let after = scene.fleet();
    assert_eq!((after.started, after.restarts, after.most), (2, 0, 1));
    assert_eq!(after.browsers[0].kind, "packaged");
    let closed = after.events.iter().find(|event| event.what == ScalingStep::Close).unwrap();
    assert!(closed.why.contains("webnn is wanted"), "{}", closed.why);

    // The one that is there now has what the other one had.
    scene.run_all(0..2).await;
    assert_eq!(scene.fleet().started, 2);
    scene.close(&[before, after]).await;
}

/// The packaged browser as a program of its own, without WebNN.
fn without_webnn(folder: &Path) -> PathBuf {
    let installed = packaged(&unpacked(), &|_| ()).unwrap();
    let libraries = installed.libraries.unwrap_or_default();
    let script = format!(
        "#!/bin/sh\n\
         [ \"$1\" = --version ] && echo 'Chromium {}' && exit\n\
         export LD_LIBRARY_PATH='{}'\n\
         exec '{}' --disable-features=WebMachineLearningNeuralNetwork \"$@\"\n",
        installed.version,
        libraries.display(),
        installed.program.display(),
    );
    let path = folder.join("without-webnn");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    path
}
