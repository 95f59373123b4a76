//! The suite `spine`: what "1 of 5" must show.

pub(crate) mod cases;
mod correctness;
mod memory;
mod reading;
mod robustness;
mod speed;

use anyhow::{Result, bail};

use crate::Only;
use crate::record::Record;

pub(crate) fn run(record: &mut Record, only: &Only) -> Result<()> {
    if only.wants("S1") {
        correctness::run(record)?;
    }
    if only.wants("S2") {
        speed::run(record)?;
    }
    if only.wants("S3") {
        memory::run(record)?;
    }
    if only.wants("S4") {
        reading::run(record)?;
    }
    if only.wants("S5") {
        reading::import(record)?;
    }
    if only.wants("S6") {
        robustness::kills(record)?;
    }
    // Half an hour of fuzzing, with a nightly toolchain: only when asked for by name.
    if only.names("S6.fuzz") {
        robustness::fuzz(record)?;
    } else if only.wants("S6.fuzz") {
        println!(
            "S6.fuzz runs for 30 minutes and was not measured; ask for it with --only S6.fuzz"
        );
    }
    Ok(())
}

/// A part of the suite that runs in a process of its own and prints one line of JSON.
pub(crate) fn child(part: &str, arguments: &[String]) -> Result<()> {
    match part {
        "memory" => memory::child(arguments),
        other => bail!("there is no part `{other}`"),
    }
}
