//! `holdfast history`: what was predicted and what it was, one execution a line.

use holdfast_predict::ValidationRecord;

use crate::args::{Global, HistoryArgs};
use crate::chronicle::Chronicle;
use crate::commands::report::words::{ms, percent, when};
use crate::output;

pub(crate) fn run(global: &Global, args: &HistoryArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let overview = runtime.block_on(async {
        Chronicle::find(global, &args.db).await?.overview(args.limit as usize).await
    })?;
    if global.json {
        return output::print_json(&serde_json::to_value(&overview)?);
    }
    if overview.validations.is_empty() {
        return output::line(
            "nothing was predicted and measured yet; `holdfast validate` or `holdfast compare` does that",
        );
    }
    let header = ["when", "on", "strategy", "models", "predicted", "measured", "error", "memory"];
    output::table(&header, 3, overview.validations.iter().map(row).collect())
}

fn row(record: &ValidationRecord) -> Vec<String> {
    let memory = record.memory_error_rate().map_or("–".to_owned(), percent);
    vec![
        when(record.timestamp),
        record.hardware_platform.clone(),
        record.execution_strategy.to_string(),
        record.model_count.to_string(),
        ms(record.predicted_latency),
        ms(record.actual_latency),
        percent(record.latency_error_rate()),
        memory,
    ]
}
