//! Files of other versions, and files that are none.

use holdfast_history::{History, HistoryError};

use crate::samples::*;

/// What version 1 made, with a row in it. Never changed: files like this are out there.
const VERSION_1: &str = include_str!("version-1.sql");

fn made(folder: &std::path::Path, sql: &str) -> std::path::PathBuf {
    let path = folder.join("history.duckdb");
    duckdb::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    path
}

#[test]
fn a_file_of_version_1_is_read_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = made(folder.path(), VERSION_1);
    let history = History::open(&path).unwrap();
    assert_eq!(history.overview(10).unwrap().validations, [validation(0)]);
    assert_eq!(history.predictor().unwrap().as_deref(), Some("{}"));
    let writer = holdfast_history::Writer::start(history.clone(), Default::default());
    holdfast_predict::Recorder::record(
        &writer,
        holdfast_predict::Record::Validation(Box::new(validation(1))),
    );
    writer.flush().unwrap();
    assert_eq!(history.overview(10).unwrap().validations, [validation(0), validation(1)]);
}

#[test]
fn a_file_of_a_newer_version_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let newer = "INSERT INTO holdfast_schema VALUES (999, now()::TIMESTAMP)";
    let path = made(folder.path(), &format!("{VERSION_1};{newer}"));
    let error = History::open(&path).unwrap_err();
    assert!(matches!(error, HistoryError::Newer { found: 999, .. }), "{error}");
    assert!(error.to_string().contains("newer Holdfast"), "{error}");
}

#[test]
fn what_is_no_history_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.duckdb");
    std::fs::write(&path, vec![7; 20_000]).unwrap();
    let error = History::open(&path).unwrap_err();
    assert!(matches!(error, HistoryError::Open { .. }), "{error}");
    assert!(error.to_string().contains("history.duckdb") && !error.is_held(), "{error}");
}
