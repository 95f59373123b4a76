//! What a record is as a row: of which table, which columns, which values.

use std::time::{SystemTime, UNIX_EPOCH};

use duckdb::types::{TimeUnit, Value};
use holdfast_predict::{
    ErrorTrend, Inference, OptimizationImpact, RefinementRecord, RunTime, SettingChange,
    ValidationRecord,
};

/// Where rows go.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// Those that are written: a row's number is not.
    pub(crate) columns: &'static [&'static str],
}

pub(crate) static VALIDATIONS: Table = Table {
    name: "multi_model_validation_metrics",
    columns: &[
        "timestamp",
        "model_count",
        "hardware_platform",
        "execution_strategy",
        "optimization_goal",
        "predicted_throughput",
        "actual_throughput",
        "predicted_latency",
        "predicted_latency_low",
        "predicted_latency_high",
        "actual_latency",
        "predicted_memory",
        "actual_memory",
        "throughput_error_rate",
        "latency_error_rate",
        "memory_error_rate",
        "model_configs",
    ],
};

pub(crate) fn validation(record: &ValidationRecord) -> Vec<Value> {
    vec![
        time(record.timestamp),
        count(record.model_count),
        text(&record.hardware_platform),
        text(record.execution_strategy.name()),
        text(record.optimization_goal.name()),
        number(record.predicted_throughput),
        number(record.actual_throughput),
        number(record.predicted_latency),
        number(record.predicted_latency_low),
        number(record.predicted_latency_high),
        number(record.actual_latency),
        number(record.predicted_memory),
        maybe(record.actual_memory, number),
        number(record.throughput_error_rate()),
        number(record.latency_error_rate()),
        maybe(record.memory_error_rate(), number),
        text(&record.model_configs),
    ]
}

pub(crate) static IMPACTS: Table = Table {
    name: "multi_model_optimization_impact",
    columns: &[
        "timestamp",
        "model_count",
        "hardware_platform",
        "baseline_strategy",
        "optimized_strategy",
        "baseline_throughput",
        "optimized_throughput",
        "throughput_improvement_percent",
        "baseline_latency",
        "optimized_latency",
        "latency_improvement_percent",
        "baseline_memory",
        "optimized_memory",
        "memory_improvement_percent",
        "optimization_goal",
    ],
};

pub(crate) fn impact(record: &OptimizationImpact) -> Vec<Value> {
    let memory = record.baseline_memory.zip(record.optimized_memory);
    vec![
        time(record.timestamp),
        count(record.model_count),
        text(&record.hardware_platform),
        text(&record.baseline_strategy),
        text(&record.optimized_strategy),
        number(record.baseline_throughput),
        number(record.optimized_throughput),
        // More is better here, less is better below.
        number(-saved_percent(record.baseline_throughput, record.optimized_throughput)),
        number(record.baseline_latency),
        number(record.optimized_latency),
        number(saved_percent(record.baseline_latency, record.optimized_latency)),
        maybe(record.baseline_memory, number),
        maybe(record.optimized_memory, number),
        maybe(memory.map(|(before, after)| saved_percent(before, after)), number),
        text(record.optimization_goal.name()),
    ]
}

fn saved_percent(before: f64, after: f64) -> f64 {
    (1.0 - after / before) * 1e2
}

pub(crate) static REFINEMENTS: Table = Table {
    name: "multi_model_refinement_metrics",
    columns: &[
        "timestamp",
        "method",
        "reason",
        "metric",
        "error_before",
        "error_after",
        "learned_from",
        "judged_by",
        "kept",
    ],
};

pub(crate) fn refinement(record: &RefinementRecord) -> Vec<Value> {
    vec![
        time(record.timestamp),
        text(&record.method),
        text(&record.reason),
        text(&record.metric),
        number(record.error_before),
        number(record.error_after),
        count(record.learned_from),
        count(record.judged_by),
        Value::Boolean(record.kept),
    ]
}

pub(crate) static TRENDS: Table = Table {
    name: "multi_model_error_trends",
    columns: &[
        "timestamp",
        "metric",
        "direction",
        "strength",
        "p_value",
        "observations",
        "mean_error_rate",
    ],
};

pub(crate) fn trend(record: &ErrorTrend) -> Vec<Value> {
    vec![
        time(record.timestamp),
        text(&record.metric),
        text(&record.direction),
        number(record.strength),
        number(record.p_value),
        count(record.observations),
        number(record.mean_error_rate),
    ]
}

pub(crate) static INFERENCES: Table = Table {
    name: "inferences",
    columns: &[
        "timestamp",
        "model",
        "browser",
        "backend",
        "adapter",
        "software_adapter",
        "precision",
        "batch",
        "batch_rows",
        "queue_seconds",
        "transfer_seconds",
        "compute_seconds",
        "readback_seconds",
        "load_seconds",
        "first_run_seconds",
        "bytes_moved",
        "memory_bytes",
        "reused_bytes",
        "error_class",
    ],
};

pub(crate) fn inference(record: &Inference) -> Vec<Value> {
    vec![
        time(record.timestamp),
        text(&record.model),
        maybe(record.browser.as_deref(), text),
        text(&record.backend),
        text(&record.adapter),
        Value::Boolean(record.software_adapter),
        maybe(record.precision.as_deref(), text),
        count(record.batch),
        count(record.batch_rows),
        maybe(record.queue_seconds, number),
        maybe(record.transfer_seconds, number),
        maybe(record.compute_seconds, number),
        maybe(record.readback_seconds, number),
        maybe(record.load_seconds, number),
        maybe(record.first_run_seconds, number),
        Value::UBigInt(record.bytes_moved),
        maybe(record.memory_bytes, Value::UBigInt),
        Value::UBigInt(record.reused_bytes),
        maybe(record.error_class.as_deref(), text),
    ]
}

pub(crate) static RUNS: Table = Table {
    name: "segment_runs",
    columns: &[
        "timestamp",
        "device",
        "segment",
        "features",
        "queue_seconds",
        "transfer_seconds",
        "compute_seconds",
        "readback_seconds",
        "first",
        "alone",
    ],
};

/// A run says nothing of when it was, so `now` is when it is written.
pub(crate) fn run(record: &RunTime, now: SystemTime) -> Vec<Value> {
    vec![
        time(now),
        text(&record.device),
        text(&record.segment.to_string()),
        maybe(serde_json::to_string(&*record.features).ok(), Value::Text),
        number(record.queue_seconds),
        number(record.transfer_seconds),
        number(record.compute_seconds),
        number(record.readback_seconds),
        Value::Boolean(record.first),
        Value::Boolean(record.alone),
    ]
}

pub(crate) static SETTINGS: Table = Table {
    name: "setting_changes",
    columns: &["timestamp", "hardware_platform", "setting", "before", "after", "reason"],
};

pub(crate) fn setting(record: &SettingChange) -> Vec<Value> {
    vec![
        time(record.timestamp),
        text(&record.hardware_platform),
        text(&record.setting),
        number(record.before),
        number(record.after),
        text(&record.reason),
    ]
}

/// A moment, in microseconds: DuckDB keeps no more.
pub(crate) fn time(time: SystemTime) -> Value {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Value::Timestamp(TimeUnit::Microsecond, i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn count(count: usize) -> Value {
    Value::UBigInt(count as u64)
}

/// What is no number is nothing; what has no end ends at the largest number. JSON has neither.
fn number(value: f64) -> Value {
    match value.is_nan() {
        true => Value::Null,
        false => Value::Double(value.clamp(f64::MIN, f64::MAX)),
    }
}

fn maybe<T>(value: Option<T>, write: impl FnOnce(T) -> Value) -> Value {
    value.map_or(Value::Null, write)
}
