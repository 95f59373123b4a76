//! `holdfast gc`

use holdfast_models::GcReport;
use serde_json::json;

use crate::args::{GcArgs, Global};
use crate::output::{self, Spinner, bytes, plural};

pub(crate) fn run(global: &Global, args: &GcArgs) -> anyhow::Result<()> {
    let store = global.store()?;
    let spinner = Spinner::new("waiting until nobody is importing");
    let report = store.gc(args.dry_run)?;
    drop(spinner);
    if global.json {
        return output::print_json(&json!({
            "dry_run": args.dry_run,
            "blobs": report.blobs,
            "derived": report.derived,
            "partial": report.partial,
            "bytes": report.bytes,
        }));
    }
    if report == GcReport::default() {
        return output::line("nothing to remove");
    }
    let verb = if args.dry_run { "would free" } else { "freed" };
    output::line(format!(
        "{verb} {}: {}, {}, {}",
        bytes(report.bytes),
        plural(report.blobs, "blob"),
        plural(report.derived, "derived graph"),
        plural(report.partial, "unfinished file"),
    ))
}
