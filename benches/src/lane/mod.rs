//! The suite `lane`: what "2 of 5" must show, in the packaged Chromium.

pub(crate) mod bare;
mod correctness;
mod faults;
mod loss;
mod memory;
mod models;
mod overhead;
pub(crate) mod proxy;
mod rig;
mod wire;

use std::process::ExitCode;

use anyhow::Result;

use crate::Only;
use crate::record::Record;

pub(crate) use rig::launch;

/// The argument that makes this program the guard of a browser.
pub(crate) const GUARD: &str = "--guard";

pub(crate) fn guard() -> ExitCode {
    holdfast_browsers::guard::run()
}

pub(crate) fn run(record: &mut Record, only: &Only) -> Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // Saved as it goes: the whole suite takes half an hour.
    runtime.block_on(async {
        if only.wants("W1") {
            correctness::run(record).await?;
            record.save()?;
        }
        if only.wants("W2") {
            overhead::run(record).await?;
            record.save()?;
        }
        if only.wants("W3") {
            wire::run(record).await?;
            record.save()?;
        }
        if only.wants("W4") {
            memory::leak(record).await?;
            record.save()?;
        }
        if only.wants("W5") {
            memory::coming_back(record).await?;
            record.save()?;
        }
        for fault in faults::Kind::ALL {
            // Minutes each, so that they can be asked for by themselves.
            if only.wants("W6") || only.names(fault.id()) {
                loss::run(record, fault).await?;
                record.save()?;
            }
        }
        Ok(())
    })
}
