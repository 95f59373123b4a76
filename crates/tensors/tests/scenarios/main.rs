//! Runs the scenarios of `spec/tensor-sharing/` against the Rust implementation. Each file is a
//! test of its own; a failure names the file and the step. Their README explains the format.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests may")]

mod perform;
mod values;

use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_tensors::{Limits, TensorSharingManager};
use perform::{Outcome, Performer};
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/tensor-sharing")
}

/// One test for each file, so that a failure shows which; `every_file_has_a_test` keeps the list
/// complete.
macro_rules! scenarios {
    ($($test:ident: $file:literal,)*) => {
        $(#[test]
        fn $test() {
            run($file);
        })*
        const FILES: &[&str] = &[$($file),*];
    };
}

scenarios! {
    budget: "budget.json",
    counting: "counting.json",
    declared: "declared.json",
    dtypes: "dtypes.json",
    expiry: "expiry.json",
    families: "families.json",
    limits: "limits.json",
    names: "names.json",
    namespaces: "namespaces.json",
    pins: "pins.json",
    sharing: "sharing.json",
    statistics: "statistics.json",
    transfers: "transfers.json",
    usage: "usage.json",
    versions: "versions.json",
    views: "views.json",
    views_keep_tensors: "views-keep-tensors.json",
    views_of_packed: "views-of-packed.json",
}

#[test]
fn every_file_has_a_test() {
    let entries = std::fs::read_dir(folder()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<String> = names.filter(|name| name.ends_with(".json")).collect();
    found.sort();
    let mut expected = FILES.to_vec();
    expected.sort();
    assert_eq!(found, expected);
}

fn run(file: &str) {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    let scenario: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{file}: {e}"));
    let mut performer =
        Performer::new(TensorSharingManager::new(parse_limits(&scenario["limits"])));
    for (index, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
        let place =
            format!("{file}, step {} ({})", index + 1, serde_json::to_string(step).unwrap());
        check_keys(step, &place);
        let outcome = performer.perform(step, &place);
        check(step, outcome, &place);
    }
}

fn parse_limits(given: &Value) -> Limits {
    let mut limits = Limits::budget(given["budget_bytes"].as_u64().unwrap_or(1 << 20));
    if let Some(entries) = given["max_entries"].as_u64() {
        limits.max_entries = entries as usize;
    }
    limits.max_age = given["max_age_ms"].as_u64().map(Duration::from_millis);
    limits
}

/// A misspelt key would be a test that tests nothing.
fn check_keys(step: &Value, place: &str) {
    const KEYS: &[&str] = &[
        "do",
        "why",
        "as",
        "name",
        "namespace",
        "handle",
        "expect",
        "error",
        "dtype",
        "dims",
        "values",
        "bytes",
        "device",
        "storage",
        "device_tensor",
        "producer",
        "consumers",
        "model",
        "from",
        "to",
        "spans",
        "to_name",
        "to_device",
        "to_storage",
        "transfer",
        "to_ms",
    ];
    for key in step.as_object().unwrap().keys() {
        assert!(KEYS.contains(&key.as_str()), "{place}: there is no key `{key}`");
    }
}

fn check(step: &Value, outcome: Outcome, place: &str) {
    match (outcome, step.get("error")) {
        (Err(error), Some(expected)) => {
            let (kind, subset) = match expected {
                Value::String(kind) => (kind.as_str(), &Value::Null),
                detailed => (detailed["kind"].as_str().unwrap(), detailed),
            };
            assert_eq!(error.kind(), kind, "{place}: {error}");
            if !subset.is_null() {
                assert_subset(subset, &perform::error_details(&error), place);
            }
        }
        (Err(error), None) => panic!("{place}: failed: {error}"),
        (Ok(found), Some(expected)) => panic!("{place}: gave {found}, not the error {expected}"),
        (Ok(found), None) => {
            if let Some(expected) = step.get("expect") {
                assert_subset(expected, &found, place);
            }
        }
    }
}

/// Whatever is expected has to be there; objects may have more.
fn assert_subset(expected: &Value, found: &Value, place: &str) {
    match (expected, found) {
        (Value::Object(expected), Value::Object(fields)) => {
            for (key, value) in expected {
                let there =
                    fields.get(key).unwrap_or_else(|| panic!("{place}: no `{key}` in {found}"));
                assert_subset(value, there, &format!("{place}, {key}"));
            }
        }
        (Value::Number(a), Value::Number(b)) => {
            assert_eq!(a.as_f64(), b.as_f64(), "{place}: expected {expected}, found {found}");
        }
        _ => assert_eq!(expected, found, "{place}"),
    }
}
