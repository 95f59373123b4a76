//! `holdfast rm`

use holdfast_models::StoreError;
use serde_json::json;

use crate::args::{Global, RmArgs};
use crate::output;

pub(crate) fn run(global: &Global, args: &RmArgs) -> anyhow::Result<()> {
    let store = global.store()?;
    // All names are looked at first, so that a misspelt one removes nothing.
    for name in &args.models {
        // A model that cannot be read can still be removed.
        if let Err(error @ StoreError::NoSuchModel { .. }) = store.model(name) {
            return Err(error.into());
        }
    }
    for name in &args.models {
        store.remove(name)?;
    }
    if global.json {
        return output::print_json(&json!({ "removed": args.models }));
    }
    for name in &args.models {
        output::line(format!("removed {name}"))?;
    }
    output::line("`holdfast gc` frees the weights that no other model has")
}
