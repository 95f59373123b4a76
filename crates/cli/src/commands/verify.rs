//! `holdfast verify`

use std::process::ExitCode;

use serde_json::json;

use crate::args::{Global, VerifyArgs};
use crate::output::{self, Spinner, bytes, plural};

pub(crate) fn run(global: &Global, args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let store = global.store()?;
    let spinner = Spinner::new("hashing every blob");
    let report = store.verify(args.model.as_deref())?;
    drop(spinner);
    if global.json {
        let problems = report
            .problems
            .iter()
            .map(|(model, problem)| json!({ "model": model, "problem": problem.to_string() }));
        output::print_json(&json!({
            "models": report.models,
            "blobs": report.blobs,
            "bytes": report.bytes,
            "problems": problems.collect::<Vec<_>>(),
        }))?;
    } else {
        for (model, problem) in &report.problems {
            output::line(format!("{model}: {problem}"))?;
        }
        let checked = format!(
            "checked {}, {}, {}",
            plural(report.models, "model"),
            plural(report.blobs, "blob"),
            bytes(report.bytes),
        );
        match report.problems.len() {
            0 => output::line(format!("{checked}: all is well"))?,
            problems => output::line(format!("{checked}: {}", plural(problems, "problem")))?,
        }
    }
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
