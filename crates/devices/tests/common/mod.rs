//! What the engine's tests have in common.
#![allow(dead_code, reason = "each test program uses its own part")]
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_devices::cpu::{CpuEngine, CpuOptions};
use holdfast_graph::Tensor;
use holdfast_models::Store;

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
    _home: tempfile::TempDir,
}

impl Scratch {
    /// One thread for each operator, so that results do not depend on the machine.
    pub(crate) fn new() -> Scratch {
        Scratch::with(CpuOptions { threads: 1, ..CpuOptions::default() })
    }

    pub(crate) fn with(options: CpuOptions) -> Scratch {
        let home = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(home.path()).unwrap());
        let engine = CpuEngine::new(store.clone(), options).unwrap();
        Scratch { engine, store, _home: home }
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

pub(crate) fn minilm_inputs(batch: usize, tokens: usize) -> Vec<(String, Tensor)> {
    let ids: Vec<i64> = (0..batch * tokens).map(|i| 1000 + (i as i64 * 7919) % 20000).collect();
    let dims = [batch, tokens];
    let ones = vec![1i64; batch * tokens];
    let zeros = vec![0i64; batch * tokens];
    [("input_ids", ids), ("attention_mask", ones), ("token_type_ids", zeros)]
        .map(|(name, values)| (name.to_owned(), Tensor::from_slice(&dims, &values).unwrap()))
        .to_vec()
}
