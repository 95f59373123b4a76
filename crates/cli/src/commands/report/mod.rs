//! `holdfast report`: what was predicted, what it was, and what was learned from it.

pub(crate) mod figures;
mod markdown;
mod page;
pub(crate) mod words;

use std::path::Path;

use anyhow::Context;
use holdfast_history::Overview;
use serde::Serialize;
use serde_json::json;

use figures::Errors;

use crate::args::{Global, ReportArgs};
use crate::chronicle::Chronicle;
use crate::output;

/// Executions that a report looks back on.
const EXECUTIONS: usize = 2000;

/// What a report is written as.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Markdown,
    Json,
    Html,
}

/// The report as JSON: all that was recorded, and what it says.
#[derive(Serialize)]
struct Report<'a> {
    errors: Vec<Errors>,
    #[serde(flatten)]
    overview: &'a Overview,
}

pub(crate) fn run(global: &Global, args: &ReportArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let overview = runtime
        .block_on(async { Chronicle::find(global, &args.db).await?.overview(EXECUTIONS).await })?;
    let errors = Errors::all(&overview.validations);
    let text = match Format::of(args, global.json) {
        Format::Markdown => markdown::markdown(&overview, &errors),
        Format::Json => {
            serde_json::to_string_pretty(&Report { errors, overview: &overview })? + "\n"
        }
        Format::Html => page::page(&overview, &errors),
    };
    match &args.out {
        Some(path) => {
            std::fs::write(path, text)
                .with_context(|| format!("cannot write {}", path.display()))?;
            match global.json {
                true => output::print_json(&json!({ "wrote": path })),
                false => output::line(format!("wrote {}", path.display())),
            }
        }
        None => output::line(text.trim_end()),
    }
}

impl Format {
    fn of(args: &ReportArgs, json: bool) -> Format {
        let ending = args.out.as_deref().and_then(Path::extension).and_then(|e| e.to_str());
        match args.format.as_deref().or(if json { Some("json") } else { ending }) {
            Some("html" | "htm") => Format::Html,
            Some("json") => Format::Json,
            _ => Format::Markdown,
        }
    }
}
