//! What models took that ran together, beside what was predicted.

use holdfast_pool::Execution;
use serde_json::{Value, json};

use crate::commands::predict::{as_json, time};
use crate::output;

/// Executions of one workload, at least one. Answers are told of with their models.
pub(super) struct Together {
    pub(super) executions: Vec<Execution>,
}

impl Together {
    pub(super) fn print(&self) -> anyhow::Result<()> {
        for (number, execution) in self.executions.iter().enumerate() {
            let Execution { strategy, measured, estimate, loaded, .. } = execution;
            let run = match self.executions.len() {
                1 => "together".to_owned(),
                _ => format!("together, run {}", number + 1),
            };
            let taken = time(measured.latency_seconds);
            let loading = if *loaded { ", loading included" } else { "" };
            let predicted = estimate.as_ref().map_or(String::new(), |estimate| {
                let seconds = estimate.latency_seconds;
                let (low, high) = (time(seconds.low), time(seconds.high));
                format!("; predicted {} ({low} – {high})", time(seconds.value))
            });
            output::line(format!("{run}, {strategy}: {taken}{loading}{predicted}"))?;
        }
        output::line("")
    }

    pub(super) fn to_json(&self) -> Value {
        let execution = |execution: &Execution| {
            let Execution { strategy, measured, estimate, loaded, .. } = execution;
            json!({
                "strategy": strategy,
                "latency_ms": measured.latency_seconds * 1e3,
                "throughput_per_second": measured.throughput_per_second,
                "memory_bytes": measured.memory_bytes,
                "loaded": loaded,
                "predicted": estimate.as_ref().map(|estimate| as_json(*strategy, estimate)),
            })
        };
        self.executions.iter().map(execution).collect()
    }
}
