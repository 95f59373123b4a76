//! What people look at: the newest of everything.

use duckdb::Connection;
use holdfast_predict::{
    ErrorTrend, OptimizationImpact, RefinementRecord, SettingChange, ValidationRecord,
};
use serde::{Deserialize, Serialize};

use crate::read::{self, columns};
use crate::rows;

/// A look at a history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    /// Predictions with what was measured, the newest last.
    pub validations: Vec<ValidationRecord>,
    /// What strategies and sharing gained, the newest last.
    pub impacts: Vec<OptimizationImpact>,
    /// Changes of the predictor, the newest last.
    pub refinements: Vec<RefinementRecord>,
    /// How errors change: the newest for each metric.
    pub trends: Vec<ErrorTrend>,
    /// Settings that were changed, the newest last.
    pub settings: Vec<SettingChange>,
    /// All inferences that are kept, by model and backend.
    pub inferences: Vec<InferenceSummary>,
}

/// What became of a model's inferences on a backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InferenceSummary {
    /// The model, by the graph that was imported.
    pub model: String,
    /// What it ran on.
    pub backend: String,
    /// Inferences that were answered.
    pub answered: u64,
    /// Inferences that were not.
    pub failed: u64,
    /// Seconds that the engine took for one that was answered: half took less.
    pub compute_p50_seconds: Option<f64>,
    /// Nine of ten took less.
    pub compute_p90_seconds: Option<f64>,
    /// Bytes that did not have to be computed.
    pub reused_bytes: u64,
}

/// Models and backends that are listed, those with the most inferences.
const SUMMARIES: usize = 1000;

/// Looks at the newest `limit` of each.
pub(crate) fn read(connection: &Connection, limit: usize) -> duckdb::Result<Overview> {
    Ok(Overview {
        validations: newest(connection, &rows::VALIDATIONS, limit, read::validation)?,
        impacts: newest(connection, &rows::IMPACTS, limit, read::impact)?,
        refinements: newest(connection, &rows::REFINEMENTS, limit, read::refinement)?,
        trends: trends(connection)?,
        settings: newest(connection, &rows::SETTINGS, limit, read::setting)?,
        inferences: summaries(connection)?,
    })
}

fn newest<T>(
    connection: &Connection,
    table: &rows::Table,
    limit: usize,
    read: impl Fn(&duckdb::Row<'_>) -> duckdb::Result<Option<T>>,
) -> duckdb::Result<Vec<T>> {
    let sql = format!("SELECT {} FROM {} ORDER BY id DESC LIMIT ?", columns(table), table.name);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = connection.prepare(&sql)?;
    let rows = statement.query_map([limit], |row| read(row))?;
    // A row without one of its numbers cannot be shown.
    let mut newest: Vec<T> = rows.filter_map(Result::transpose).collect::<duckdb::Result<_>>()?;
    newest.reverse();
    Ok(newest)
}

fn trends(connection: &Connection) -> duckdb::Result<Vec<ErrorTrend>> {
    let table = &rows::TRENDS;
    let sql = format!(
        "SELECT {} FROM {name} WHERE id IN (SELECT max(id) FROM {name} GROUP BY metric)
         ORDER BY metric",
        columns(table),
        name = table.name
    );
    let mut statement = connection.prepare(&sql)?;
    let rows = statement.query_map([], read::trend)?;
    rows.filter_map(Result::transpose).collect()
}

fn summaries(connection: &Connection) -> duckdb::Result<Vec<InferenceSummary>> {
    let sql = "
        SELECT model, backend, answered, failed, p50, p90, reused FROM (
            SELECT model, backend, count(*) AS inferences,
                (count(*) FILTER (error_class IS NULL))::UBIGINT AS answered,
                (count(*) FILTER (error_class IS NOT NULL))::UBIGINT AS failed,
                quantile_cont(compute_seconds, 0.5) FILTER (error_class IS NULL) AS p50,
                quantile_cont(compute_seconds, 0.9) FILTER (error_class IS NULL) AS p90,
                coalesce(sum(reused_bytes), 0)::UBIGINT AS reused
            FROM inferences GROUP BY model, backend
            ORDER BY inferences DESC LIMIT ?
        ) ORDER BY model, backend";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([SUMMARIES as i64], |row| {
        Ok(InferenceSummary {
            model: row.get(0)?,
            backend: row.get(1)?,
            answered: row.get(2)?,
            failed: row.get(3)?,
            compute_p50_seconds: row.get(4)?,
            compute_p90_seconds: row.get(5)?,
            reused_bytes: row.get(6)?,
        })
    })?;
    rows.collect()
}
