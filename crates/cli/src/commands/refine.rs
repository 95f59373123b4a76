//! `holdfast refine`: changes the predictor where that makes errors smaller, and shows or sets what
//! recommendations go by.

use holdfast_predict::{RefinementRecord, Setting};
use serde_json::{Value, json};

use super::report::words::percent;
use crate::args::{Global, RefineArgs};
use crate::lab::Lab;
use crate::output;

const BACKENDS: [&str; 4] = ["cpu", "wasm", "webgpu", "webnn"];

pub(crate) fn run(global: &Global, args: &RefineArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let lab = Lab::of_history(global, &args.db).await?;
        let ledger = lab.pool.ledger().clone();
        let set = args
            .set
            .iter()
            .try_for_each(|change| ledger.set(&change.backend, change.setting, change.value));
        let refined = set.map(|()| if args.set.is_empty() { ledger.refine() } else { Vec::new() });
        let settings = BACKENDS.map(|backend| (backend, ledger.settings(backend)));
        lab.close().await;
        let refined = refined?;
        if global.json {
            let settings: serde_json::Map<String, Value> = settings
                .iter()
                .map(|(backend, settings)| ((*backend).to_owned(), json!(settings)))
                .collect();
            return output::print_json(&json!({ "refinements": refined, "settings": settings }));
        }
        match (refined.as_slice(), args.set.is_empty()) {
            ([], true) => output::line(
                "nothing to refine: errors are small, or too little was predicted and measured yet",
            )?,
            _ => refined.iter().try_for_each(|record| output::line(words(record)))?,
        }
        let header: Vec<&str> =
            ["on"].into_iter().chain(Setting::ALL.iter().map(|setting| setting.name())).collect();
        let rows = settings.iter().map(|(backend, settings)| {
            let value = |setting: &Setting| match setting {
                Setting::MemoryThreshold => output::bytes(settings.value(*setting)),
                _ => settings.value(*setting).to_string(),
            };
            let values = Setting::ALL.iter().map(value);
            [(*backend).to_owned()].into_iter().chain(values).collect()
        });
        output::line("")?;
        output::table(&header, 1, rows.collect())
    })
}

fn words(record: &RefinementRecord) -> String {
    let RefinementRecord { metric, method, reason, error_before, error_after, .. } = record;
    let (before, after) = (percent(*error_before), percent(*error_after));
    let data = format!(
        "on {} that it did not learn from",
        output::plural(record.judged_by, "observation")
    );
    match record.kept {
        true => format!("{metric}: {method}, because {reason}; error {before} → {after} {data}"),
        false => format!(
            "{metric}: {method} was tried, because {reason}, and rolled back: error {before} → {after} {data}"
        ),
    }
}
