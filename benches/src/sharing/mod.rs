//! The suite `sharing`: what "4 of 5" must show.

mod tensors;

use anyhow::Result;

use crate::Only;
use crate::record::Record;

pub(crate) fn run(record: &mut Record, only: &Only) -> Result<()> {
    if only.wants("H9") {
        tensors::run(record)?;
        record.save()?;
    }
    Ok(())
}
