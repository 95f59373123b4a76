//! The suite `predict`: what "5 of 5" must show.
//!
//! Rows are asked for by their id (`--only P3`) or with their column (`--only P3.wasm`). P1, P2, P4
//! and P5 are measured together, so either of them asks for all four (`--only mixes.cpu`).

mod cost;
mod drift;
mod lab;
mod memory;
mod mixes;
mod models;
mod unseen;

use anyhow::{Result, bail};

use crate::Only;
use crate::record::Record;
use models::Column;

pub(crate) fn run(record: &mut Record, only: &Only) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut failed = Vec::new();
    for column in Column::ALL {
        let wants = |rows: &[&str]| {
            rows.iter()
                .any(|row| only.wants(row) || only.names(&format!("{row}.{}", column.name())))
        };
        let mut note = |what: &str, result: Result<()>| {
            if let Err(error) = result {
                println!("{what}.{} could not be measured: {error:#}", column.name());
                failed.push(format!("{what}.{}", column.name()));
            }
        };
        if wants(&["mixes", "P1", "P2", "P4", "P5"]) {
            note("mixes", runtime.block_on(mixes::run(record, column)));
            record.save()?;
        }
        if wants(&["P3"]) {
            note("P3", runtime.block_on(memory::run(record, column)));
            record.save()?;
        }
        if wants(&["P6"]) {
            note("P6", runtime.block_on(drift::run(record, column)));
            record.save()?;
        }
    }
    if only.wants("P7") {
        runtime.block_on(cost::run(record))?;
        record.save()?;
    }
    // What is not there says nothing about the rest, which was measured and saved.
    if !failed.is_empty() {
        bail!("these could not be measured: {}", failed.join(", "));
    }
    Ok(())
}

/// A part of the suite that runs in a process of its own and prints one line of JSON.
pub(crate) fn child(arguments: &[String]) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(memory::child(arguments))
}

/// The median of some figures.
fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// The mean of some figures.
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// How far a prediction is off, as a part of the measurement.
fn error(predicted: f64, measured: f64) -> f64 {
    (predicted / measured - 1.0).abs()
}
