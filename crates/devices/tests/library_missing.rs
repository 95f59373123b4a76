//! Without ONNX Runtime's library there is no engine, and the error says what to do. A test
//! program of its own, because a process loads the library once.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::path::PathBuf;
use std::sync::Arc;

use holdfast_devices::ErrorKind;
use holdfast_devices::cpu::{CpuEngine, CpuOptions};
use holdfast_models::Store;

#[test]
fn a_library_that_is_not_there_is_named() {
    let home = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(home.path()).unwrap());
    let library = Some(PathBuf::from("no/such/libonnxruntime.so"));
    let options = CpuOptions { library, ..CpuOptions::default() };
    let error = CpuEngine::new(store, options).err().expect("there is no such library");
    assert_eq!(error.kind(), ErrorKind::Device);
    let text = error.to_string();
    assert!(text.contains("no/such/libonnxruntime.so"), "{text}");
    assert!(text.contains("cargo xtask setup") && text.contains("--onnxruntime"), "{text}");
}
