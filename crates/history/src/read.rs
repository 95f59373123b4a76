//! From rows back to records. `None` where a row lacks a number that its record must have: what was
//! not a number when it was recorded is nothing in the file.

use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use duckdb::Row;
use duckdb::types::{FromSqlError, Type, ValueRef};
use holdfast_predict::{
    ErrorTrend, OptimizationImpact, RefinementRecord, SettingChange, ValidationRecord,
};

use crate::rows::Table;

/// The columns of a table, in the order in which its rows are written.
pub(crate) fn columns(table: &Table) -> String {
    let quoted: Vec<String> = table.columns.iter().map(|name| format!("\"{name}\"")).collect();
    quoted.join(", ")
}

/// What must be there; otherwise the record is left out.
macro_rules! must {
    ($value:expr) => {
        match $value {
            Some(value) => value,
            None => return Ok(None),
        }
    };
}

pub(crate) fn validation(row: &Row<'_>) -> duckdb::Result<Option<ValidationRecord>> {
    Ok(Some(ValidationRecord {
        timestamp: time(row, "timestamp")?,
        model_count: count(row, "model_count")?,
        hardware_platform: row.get("hardware_platform")?,
        execution_strategy: parsed(row, "execution_strategy")?,
        optimization_goal: parsed(row, "optimization_goal")?,
        predicted_throughput: must!(row.get("predicted_throughput")?),
        actual_throughput: must!(row.get("actual_throughput")?),
        predicted_latency: must!(row.get("predicted_latency")?),
        predicted_latency_low: must!(row.get("predicted_latency_low")?),
        predicted_latency_high: must!(row.get("predicted_latency_high")?),
        actual_latency: must!(row.get("actual_latency")?),
        predicted_memory: must!(row.get("predicted_memory")?),
        actual_memory: row.get("actual_memory")?,
        model_configs: row.get("model_configs")?,
    }))
}

pub(crate) fn impact(row: &Row<'_>) -> duckdb::Result<Option<OptimizationImpact>> {
    Ok(Some(OptimizationImpact {
        timestamp: time(row, "timestamp")?,
        model_count: count(row, "model_count")?,
        hardware_platform: row.get("hardware_platform")?,
        baseline_strategy: row.get("baseline_strategy")?,
        optimized_strategy: row.get("optimized_strategy")?,
        baseline_throughput: must!(row.get("baseline_throughput")?),
        optimized_throughput: must!(row.get("optimized_throughput")?),
        baseline_latency: must!(row.get("baseline_latency")?),
        optimized_latency: must!(row.get("optimized_latency")?),
        baseline_memory: row.get("baseline_memory")?,
        optimized_memory: row.get("optimized_memory")?,
        optimization_goal: parsed(row, "optimization_goal")?,
    }))
}

pub(crate) fn refinement(row: &Row<'_>) -> duckdb::Result<Option<RefinementRecord>> {
    Ok(Some(RefinementRecord {
        timestamp: time(row, "timestamp")?,
        method: row.get("method")?,
        reason: row.get("reason")?,
        metric: row.get("metric")?,
        error_before: must!(row.get("error_before")?),
        error_after: must!(row.get("error_after")?),
        learned_from: count(row, "learned_from")?,
        judged_by: count(row, "judged_by")?,
        kept: row.get("kept")?,
    }))
}

pub(crate) fn trend(row: &Row<'_>) -> duckdb::Result<Option<ErrorTrend>> {
    Ok(Some(ErrorTrend {
        timestamp: time(row, "timestamp")?,
        metric: row.get("metric")?,
        direction: row.get("direction")?,
        strength: must!(row.get("strength")?),
        p_value: must!(row.get("p_value")?),
        observations: count(row, "observations")?,
        mean_error_rate: must!(row.get("mean_error_rate")?),
    }))
}

pub(crate) fn setting(row: &Row<'_>) -> duckdb::Result<Option<SettingChange>> {
    Ok(Some(SettingChange {
        timestamp: time(row, "timestamp")?,
        hardware_platform: row.get("hardware_platform")?,
        setting: row.get("setting")?,
        before: must!(row.get("before")?),
        after: must!(row.get("after")?),
        reason: row.get("reason")?,
    }))
}

fn time(row: &Row<'_>, column: &str) -> duckdb::Result<SystemTime> {
    let value = row.get_ref(row.as_ref().column_index(column)?)?;
    match value {
        ValueRef::Timestamp(unit, value) => {
            let micros = u64::try_from(unit.to_micros(value)).unwrap_or(0);
            Ok(UNIX_EPOCH + Duration::from_micros(micros))
        }
        _ => Err(wrong(column, FromSqlError::InvalidType)),
    }
}

fn count(row: &Row<'_>, column: &str) -> duckdb::Result<usize> {
    let count: u64 = row.get(column)?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

fn parsed<T: FromStr<Err = String>>(row: &Row<'_>, column: &str) -> duckdb::Result<T> {
    let text: String = row.get(column)?;
    text.parse().map_err(|error: String| wrong(column, error))
}

fn wrong(
    column: &str,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> duckdb::Error {
    let error = format!("column {column}: {}", error.into());
    duckdb::Error::FromSqlConversionFailure(0, Type::Text, error.into())
}
