//! The suite `pool`: what "3 of 5" must show of the pool itself.

mod bare;
mod batching;
mod cost;
mod faults;
mod fleet;
pub(crate) mod own_death;
mod rig;
mod several;
mod several_lanes;
mod soak;

use anyhow::Result;

use crate::Only;
use crate::record::Record;

pub(crate) use several::child;

pub(crate) fn run(record: &mut Record, only: &Only) -> Result<()> {
    if only.wants("L1") {
        faults::run(record)?;
        record.save()?;
    }
    if only.wants("L2") {
        own_death::run(record)?;
        record.save()?;
    }
    if only.wants("L3") || only.names("L3.cpu") {
        several::run(record)?;
        record.save()?;
    }
    if only.wants("L3") || only.names("L3.wasm") {
        several_lanes::run(record)?;
        record.save()?;
    }
    if only.wants("L4") {
        cost::run(record)?;
        record.save()?;
    }
    // Half an hour: only when asked for by name.
    if only.names("L5") {
        soak::run(record)?;
        record.save()?;
    } else if only.wants("L5") {
        println!("L5 runs for 30 minutes and was not measured; ask for it with --only L5");
    }
    if only.wants("L6") {
        batching::run(record)?;
        record.save()?;
    }
    // Which settings are fastest is a question for whoever changes the defaults.
    if only.names("L6.settings") {
        batching::settings(record)?;
        record.save()?;
    }
    if only.names("L6.sessions") {
        batching::sessions(record)?;
        record.save()?;
    }
    Ok(())
}
