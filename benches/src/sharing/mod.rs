//! The suite `sharing`: what "4 of 5" must show.
//!
//! Rows are asked for by their id (`--only H1`) or with their column (`--only H1.cpu`).

mod answers;
mod bare;
mod cases;
mod gauge;
mod home;
mod memory;
mod planning;
mod rig;
mod tensors;
mod time;

use anyhow::{Result, bail};

use crate::Only;
use crate::record::Record;
use cases::Column;
use home::Homes;

pub(crate) fn run(record: &mut Record, only: &Only) -> Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut failed = Vec::new();
    for column in Column::ALL {
        runtime.block_on(in_column(record, only, column, &mut failed))?;
    }
    if only.wants("H8") {
        note("H8", runtime.block_on(planning::run(record)), &mut failed);
        record.save()?;
    }
    if only.wants("H9") {
        tensors::run(record)?;
        record.save()?;
    }
    // What is not there says nothing about the rest, which was measured and saved.
    if !failed.is_empty() {
        bail!("these could not be measured: {}", failed.join(", "));
    }
    Ok(())
}

/// Measures a column of the table. Its stores, which are large, go with it.
async fn in_column(
    record: &mut Record,
    only: &Only,
    column: Column,
    failed: &mut Vec<String>,
) -> Result<()> {
    let mut homes = Homes::new(column);
    let id = |row: &str| format!("{row}.{}", column.name());
    let wants = |row: &str| only.wants(row) || only.names(&id(row));
    for row in memory::ROWS.iter().filter(|row| wants(row.id)) {
        note(&id(row.id), memory::run(record, &mut homes, row, column).await, failed);
        record.save()?;
    }
    if wants("H2") {
        note(&id("H2"), time::together(record, &mut homes, column).await, failed);
        record.save()?;
    }
    if wants("H3") {
        note(&id("H3"), time::second(record, &mut homes, column).await, failed);
        record.save()?;
    }
    if wants("H6") {
        note(&id("H6.time"), time::unrelated(record, &mut homes, column).await, failed);
        record.save()?;
    }
    if wants("H7") {
        note(&id("H7"), answers::families(record, &mut homes, column).await, failed);
        record.save()?;
    }
    if wants("H7") || only.names(&format!("{}.random", id("H7"))) {
        note(&id("H7.random"), answers::random_families(record, column).await, failed);
        record.save()?;
    }
    Ok(())
}

fn note(id: &str, result: Result<()>, failed: &mut Vec<String>) {
    if let Err(error) = result {
        println!("{id} could not be measured: {error:#}");
        failed.push(id.to_owned());
    }
}

/// A part of the suite that runs in a process of its own and prints one line of JSON.
pub(crate) fn child(arguments: &[String]) -> Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(memory::child(arguments))
}
