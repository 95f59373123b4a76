//! The pool: the in-process engine, the lanes, and how a request finds its device.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use holdfast_devices::cpu::{CpuEngine, CpuOptions, Target};
use holdfast_devices::lane::{Lane, LaneOptions, Lanes};
use holdfast_devices::{Device, DeviceError, ErrorKind, Loaded, Program, RequestId, Segment};
use holdfast_graph::{Digest, Dim, Tensor, Value};
use holdfast_models::{Store, StoredGraph};
use holdfast_wire::Backend;

use crate::browser::{BrowserOptions, Started, missing};
use crate::choice::Choice;
use crate::request::{Answer, PassedOver, Request, RunError};

/// How a pool works.
#[derive(Clone)]
pub struct PoolOptions {
    /// The in-process engine.
    pub cpu: CpuOptions,
    /// The lanes.
    pub lanes: LaneOptions,
    /// The browser to start when none has joined; `None` to start none.
    pub browser: Option<BrowserOptions>,
    /// Is told what takes long.
    pub progress: Arc<dyn Fn(&str) + Send + Sync>,
}

/// Everything that runs models.
pub struct Pool {
    engine: CpuEngine,
    lanes: Arc<Lanes>,
    options: PoolOptions,
    store: Arc<Store>,
    /// The link by which browsers join, once there is a server.
    door: Mutex<Option<String>>,
    browser: tokio::sync::Mutex<Option<Started>>,
    /// Lanes are calibrated one at a time, so that they do not measure each other.
    calibrating: tokio::sync::Mutex<()>,
    lowered: Mutex<HashMap<LoweredKey, StoredGraph>>,
    next_request: AtomicU64,
}

type LoweredKey = (Digest, Target, BTreeMap<String, usize>);

/// Lowered graphs that are remembered. Past this all are forgotten: the store still has them.
const LOWERED_LIMIT: usize = 1024;

impl Pool {
    /// A pool over a store.
    pub fn new(store: Arc<Store>, options: PoolOptions) -> Result<Pool, DeviceError> {
        Ok(Pool {
            engine: CpuEngine::new(store.clone(), options.cpu.clone())?,
            lanes: Arc::new(Lanes::new(store.clone(), options.lanes.clone())),
            options,
            store,
            door: Mutex::default(),
            browser: tokio::sync::Mutex::default(),
            calibrating: tokio::sync::Mutex::default(),
            lowered: Mutex::default(),
            next_request: AtomicU64::new(0),
        })
    }

    /// The in-process engine.
    pub fn engine(&self) -> &CpuEngine {
        &self.engine
    }

    /// The lanes that joined, for whoever takes connections in.
    pub fn lanes(&self) -> &Arc<Lanes> {
        &self.lanes
    }

    /// Tells by which link browsers join from now on.
    pub fn open_door(&self, link: String) {
        *lock(&self.door) = Some(link);
    }

    /// Runs a model on the first of the choices that can.
    pub async fn run(&self, request: &Request) -> Result<Answer, RunError> {
        let mut passed_over = Vec::new();
        for (choice, must_accelerate) in request.choices.in_order() {
            match self.attempt(choice, must_accelerate, request).await {
                Ok((loaded, outcome, took)) => {
                    return Ok(Answer { outcome, loaded, took, passed_over });
                }
                Err(Failed::Request(error)) => return Err(error.into()),
                Err(Failed::Choice(reason)) => passed_over.push(PassedOver { choice, reason }),
            }
        }
        Err(RunError::NoDevice(passed_over))
    }

    /// A lane on a backend: one that joined, or one of a browser that is started for it.
    pub async fn lane(&self, backend: Backend) -> Result<Lane, String> {
        let lanes = self.lanes.all();
        let there = lanes.iter().find(|lane| lane.backend() == backend && lane.is_connected());
        let lane = match there {
            Some(lane) => lane.clone(),
            None => self.lane_of_started_browser(backend).await?,
        };
        let _one_at_a_time = self.calibrating.lock().await;
        if lane.info().calibration.is_none() {
            (self.options.progress)(&format!("measuring {}", lane.info().name));
            lane.calibrate()
                .await
                .map_err(|error| format!("it failed its first measurement: {}", explain(&error)))?;
        }
        Ok(lane)
    }

    /// Ends what the pool started.
    pub async fn close(&self) {
        if let Some(started) = self.browser.lock().await.take() {
            started.close(&self.lanes).await;
        }
    }

    async fn lane_of_started_browser(&self, backend: Backend) -> Result<Lane, String> {
        let mut browser = self.browser.lock().await;
        if let Some(started) = browser.as_ref()
            && started.has_ended().await
        {
            // Its lanes need not be waited for, and another one is started right away.
            started.close(&self.lanes).await;
            *browser = None;
        }
        if browser.is_none() {
            let joined = self.lanes.all();
            let told = joined.iter().find_map(|lane| missing(lane, backend));
            let Some(options) = &self.options.browser else {
                return Err(told
                    .unwrap_or_else(|| format!("no browser with {} has joined", backend.name())));
            };
            let link = lock(&self.door).clone().ok_or("there is no link to join by")?;
            let started = Started::start(options, &link, self.options.progress.clone()).await;
            *browser = Some(started.map_err(|error| explain(&error))?);
        }
        let started = browser.as_ref().ok_or("the browser is gone")?;
        (self.options.progress)(&format!("waiting for the browser's {} lane", backend.name()));
        started.lane(&self.lanes, backend).await
    }

    async fn attempt(
        &self,
        choice: Choice,
        must_accelerate: bool,
        request: &Request,
    ) -> Result<(Loaded, holdfast_devices::Outcome, std::time::Duration), Failed> {
        let (device, target): (Arc<dyn Device>, Target) = match choice {
            Choice::Cpu => (Arc::new(self.engine.clone()), Target::Cpu),
            Choice::Lane(backend) => {
                let lane = self.lane(backend).await.map_err(Failed::Choice)?;
                let info = lane.info();
                if must_accelerate && !info.accelerated {
                    return Err(Failed::Choice(format!("{} is no accelerator", info.adapter)));
                }
                let target = lane.target();
                (Arc::new(lane), target)
            }
        };
        // WebNN compiles for fixed sizes.
        let dims = match target {
            Target::WebNn => self.bind(request).map_err(Failed::Choice)?,
            Target::Cpu | Target::Wasm | Target::WebGpu => BTreeMap::new(),
        };
        (self.options.progress)(&format!("preparing the model for {choice}"));
        let graph = self.lower(&request.graph, target, &dims).await?;
        let segment = Segment { graph, dims, kind: request.kind };
        // One loss of the device's state is made good by loading again.
        let mut again = true;
        loop {
            (self.options.progress)(&format!("loading on {}", device.info().name));
            let loaded = device.load(segment.clone()).await.map_err(Failed::of)?;
            let outputs = loaded.outputs.iter().map(|output| output.name.clone());
            let program = Program::single("", loaded.id, request.inputs.clone(), outputs);
            let number = self.next_request.fetch_add(1, Ordering::Relaxed);
            let program = Program {
                request: RequestId(format!("pool-{number}")),
                deadline: request.deadline,
                ..program
            };
            (self.options.progress)(&format!("running on {}", device.info().name));
            let started = Instant::now();
            match device.run(program).await {
                Ok(outcome) => return Ok((loaded, outcome, started.elapsed())),
                Err(error) if again && error.kind() == ErrorKind::StateLost => again = false,
                // The caller's own deadline has passed, wherever else it could run.
                Err(error) if error.kind() == ErrorKind::Timeout && request.deadline.is_some() => {
                    return Err(Failed::Request(error));
                }
                Err(error) => return Err(Failed::of(error)),
            }
        }
    }

    async fn lower(
        &self,
        graph: &StoredGraph,
        target: Target,
        dims: &BTreeMap<String, usize>,
    ) -> Result<StoredGraph, Failed> {
        let key = (graph.graph, target, dims.clone());
        if let Some(known) = lock(&self.lowered).get(&key) {
            return Ok(known.clone());
        }
        let lowered = self.engine.lower(graph, target, dims).await.map_err(Failed::of)?;
        let mut known = lock(&self.lowered);
        if known.len() >= LOWERED_LIMIT {
            known.clear();
        }
        known.insert(key, lowered.clone());
        Ok(lowered)
    }

    /// The sizes of the named dimensions, by the inputs that are given.
    fn bind(&self, request: &Request) -> Result<BTreeMap<String, usize>, String> {
        let model = self.store.open_graph(&request.graph).map_err(|error| explain(&error))?;
        bindings(&model.inputs(), &request.inputs)
    }
}

fn bindings(
    declared: &[Value],
    inputs: &[(String, Tensor)],
) -> Result<BTreeMap<String, usize>, String> {
    let mut bound: BTreeMap<String, usize> = BTreeMap::new();
    for (name, tensor) in inputs {
        let dims =
            declared.iter().find(|value| value.name == *name).and_then(|value| value.dims.as_ref());
        for (dim, &size) in dims.into_iter().flatten().zip(tensor.dims()) {
            let Dim::Named(dim) = dim else { continue };
            if let Some(other) = bound.insert(dim.clone(), size)
                && other != size
            {
                return Err(format!(
                    "the inputs disagree on the dimension `{dim}`: {other} and {size}"
                ));
            }
        }
    }
    Ok(bound)
}

/// Why an attempt failed.
enum Failed {
    /// Another choice may do better.
    Choice(String),
    /// No other would.
    Request(DeviceError),
}

impl Failed {
    fn of(error: DeviceError) -> Failed {
        match error.kind() {
            ErrorKind::Caller | ErrorKind::Cancelled => Failed::Request(error),
            ErrorKind::Device
            | ErrorKind::Timeout
            | ErrorKind::Memory
            | ErrorKind::Busy
            | ErrorKind::StateLost
            | ErrorKind::Protocol => Failed::Choice(explain(&error)),
        }
    }
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code panics while holding this lock")
}

#[cfg(test)]
mod tests {
    use holdfast_devices::ModelKind;
    use holdfast_graph::{DataType, Model, encode};
    use holdfast_models::ImportOptions;
    use holdfast_testkit::{Builder, named};

    use super::*;

    fn doubling() -> Model {
        let mut builder = Builder::new("doubling", 0);
        builder.input("x", DataType::F32, &[named("n")]);
        let sum = builder.node("Add", &["x", "x"], &[]);
        builder.output("y", &sum, DataType::F32, &[named("n")]);
        builder.finish().unwrap()
    }

    /// A pool without a browser, and a request for what doubles its input.
    fn pool(folder: &std::path::Path, choices: &str) -> (Pool, Request) {
        let path = folder.join("doubling.onnx");
        std::fs::write(&path, encode(&doubling())).unwrap();
        let store = Arc::new(Store::open(folder.join("home")).unwrap());
        let imported = store.import(&path, &ImportOptions::default(), &mut |_| ()).unwrap();
        let options = PoolOptions {
            cpu: CpuOptions::default(),
            lanes: LaneOptions::default(),
            browser: None,
            progress: Arc::new(|_| ()),
        };
        let input = Tensor::from_slice(&[2], &[1f32, 2.0]).unwrap();
        let request = Request {
            graph: imported.manifest.components[0].graph.clone(),
            kind: ModelKind::Other,
            inputs: vec![("x".to_owned(), input)],
            choices: choices.parse().unwrap(),
            deadline: None,
        };
        (Pool::new(store, options).unwrap(), request)
    }

    #[tokio::test]
    async fn what_cannot_be_had_is_passed_over_and_said() {
        let folder = tempfile::tempdir().unwrap();
        for choices in ["cpu", "wasm,cpu", "auto"] {
            let (pool, request) = pool(folder.path(), choices);
            let answer = pool.run(&request).await.unwrap();
            let doubled = answer.outcome.output("y").unwrap();
            assert_eq!(doubled.to_vec::<f32>().unwrap(), [2.0, 4.0]);
            assert_eq!(answer.outcome.device.backend, "cpu");
            let passed_over: Vec<String> =
                answer.passed_over.iter().map(|passed| passed.reason.clone()).collect();
            let expected: Vec<String> = match choices {
                "cpu" => vec![],
                "wasm,cpu" => vec!["no browser with wasm has joined".to_owned()],
                _ => ["webgpu", "webnn"]
                    .map(|name| format!("no browser with {name} has joined"))
                    .to_vec(),
            };
            assert_eq!(passed_over, expected);
        }
    }

    #[tokio::test]
    async fn where_nothing_can_be_had_the_error_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let (pool, request) = pool(folder.path(), "browser");
        let error = pool.run(&request).await.unwrap_err();
        assert!(matches!(error, RunError::NoDevice(_)));
        assert!(error.to_string().contains("wasm: no browser with wasm has joined"), "{error}");
    }

    #[tokio::test]
    async fn a_wrong_request_is_not_tried_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let (pool, request) = pool(folder.path(), "cpu,wasm");
        let error = pool.run(&Request { inputs: vec![], ..request }).await.unwrap_err();
        assert!(matches!(error, RunError::Device(error) if error.kind() == ErrorKind::Caller));
    }

    #[tokio::test]
    async fn a_model_that_was_prepared_once_is_ready() {
        let folder = tempfile::tempdir().unwrap();
        let (pool, request) = pool(folder.path(), "cpu");
        assert!(pool.run(&request).await.unwrap().loaded.took > std::time::Duration::ZERO);
        assert!(pool.run(&request).await.unwrap().loaded.took.is_zero());
    }

    #[test]
    fn dimensions_are_bound_by_the_inputs() {
        let tensor = |dims: &[usize]| Tensor::zeros(DataType::F32, dims).unwrap();
        let value = |name: &str, dims: Vec<Dim>| Value {
            name: name.to_owned(),
            dtype: Some(DataType::F32),
            dims: Some(dims),
        };
        let declared = [
            value("a", vec![named("batch"), named("tokens")]),
            value("b", vec![named("batch"), Dim::Fixed(3)]),
        ];
        let inputs =
            |b: usize| vec![("a".to_owned(), tensor(&[2, 5])), ("b".to_owned(), tensor(&[b, 3]))];
        let bound = bindings(&declared, &inputs(2)).unwrap();
        assert_eq!(bound, [("batch".to_owned(), 2), ("tokens".to_owned(), 5)].into());
        assert!(bindings(&declared, &inputs(4)).unwrap_err().contains("`batch`: 2 and 4"));
    }
}
