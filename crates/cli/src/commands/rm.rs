//! `holdfast rm`

use std::collections::BTreeSet;

use holdfast_models::StoreError;
use serde_json::json;

use crate::args::{Global, RmArgs};
use crate::output;

pub(crate) fn run(global: &Global, args: &RmArgs) -> anyhow::Result<()> {
    let store = global.store()?;
    let names: BTreeSet<&String> = args.models.iter().collect();
    // All names are looked at first, so that a misspelt one removes nothing.
    for &name in &names {
        // A model that cannot be read can still be removed.
        if let Err(error @ StoreError::NoSuchModel { .. }) = store.model(name) {
            return Err(error.into());
        }
    }
    for &name in &names {
        store.remove(name)?;
    }
    if global.json {
        return output::print_json(&json!({ "removed": names }));
    }
    for &name in &names {
        output::line(format!("removed {name}"))?;
    }
    output::line("`holdfast gc` frees the weights that no other model has")
}
