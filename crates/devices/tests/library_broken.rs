//! A file that is not ONNX Runtime is refused, and the error says so. A test program of its own,
//! because a process loads the library once.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::sync::Arc;

use holdfast_devices::ErrorKind;
use holdfast_devices::cpu::{CpuEngine, CpuOptions};
use holdfast_models::Store;

#[test]
fn a_file_that_is_no_library_is_refused_by_name() {
    let home = tempfile::tempdir().unwrap();
    let library = home.path().join("libonnxruntime.so.1");
    std::fs::write(&library, b"not a library").unwrap();
    let store = Arc::new(Store::open(home.path()).unwrap());
    let options = CpuOptions { library: Some(library.clone()), ..CpuOptions::default() };
    let error = CpuEngine::new(store, options).err().expect("it is no library");
    assert_eq!(error.kind(), ErrorKind::Device);
    let text = error.to_string();
    assert!(text.contains(&library.display().to_string()), "{text}");
    assert!(text.contains("1.30"), "{text}");
}
