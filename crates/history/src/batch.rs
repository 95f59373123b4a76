//! Records on their way into the file: one transaction, all or nothing.

use std::collections::BTreeMap;
use std::time::SystemTime;

use duckdb::types::Value;
use duckdb::{Connection, Transaction, appender_params_from_iter};
use holdfast_predict::Record;

use crate::history::PREDICTOR;
use crate::rows::{self, Table, time};
use crate::schema::ROW_TABLES;

/// Rows by their table, and what replaces what was there.
pub(crate) struct Batch {
    tables: BTreeMap<&'static Table, Vec<Vec<Value>>>,
    predictor: Option<String>,
    now: SystemTime,
    records: u64,
}

impl Batch {
    pub(crate) fn new(records: Vec<Record>, now: SystemTime) -> Batch {
        let mut batch =
            Batch { tables: BTreeMap::new(), predictor: None, now, records: records.len() as u64 };
        for record in records {
            let (table, values) = match &record {
                Record::Inference(record) => (&rows::INFERENCES, rows::inference(record)),
                Record::Run(record) => (&rows::RUNS, rows::run(record, now)),
                Record::Validation(record) => (&rows::VALIDATIONS, rows::validation(record)),
                Record::Impact(record) => (&rows::IMPACTS, rows::impact(record)),
                Record::Refinement(record) => (&rows::REFINEMENTS, rows::refinement(record)),
                Record::Trend(record) => (&rows::TRENDS, rows::trend(record)),
                Record::Setting(record) => (&rows::SETTINGS, rows::setting(record)),
                Record::Predictor(_) => {
                    // Only the last one would be left.
                    if let Record::Predictor(content) = record {
                        batch.predictor = Some(content);
                    }
                    continue;
                }
            };
            batch.tables.entry(table).or_default().push(values);
        }
        batch
    }

    /// How many records it was made of.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Writes all of it. When this returns, it survives whatever happens to the process.
    pub(crate) fn write(&self, connection: &mut Connection) -> duckdb::Result<()> {
        let transaction = connection.transaction()?;
        for (table, rows) in &self.tables {
            let mut appender = transaction.appender_with_columns(table.name, table.columns)?;
            for row in rows {
                appender.append_row(appender_params_from_iter(row))?;
            }
            appender.flush()?;
        }
        if let Some(content) = &self.predictor {
            replace_predictor(&transaction, self.now, content)?;
        }
        transaction.commit()
    }
}

fn replace_predictor(
    transaction: &Transaction<'_>,
    now: SystemTime,
    content: &str,
) -> duckdb::Result<()> {
    let sql =
        "INSERT OR REPLACE INTO predictor_snapshots (name, timestamp, content) VALUES (?, ?, ?)";
    transaction.execute(sql, duckdb::params![PREDICTOR, time(now), content]).map(drop)
}

/// Removes the oldest rows of each table that has more than `keep`.
pub(crate) fn prune(connection: &mut Connection, keep: u64) -> duckdb::Result<()> {
    let transaction = connection.transaction()?;
    for table in ROW_TABLES {
        let sql = format!("DELETE FROM {table} WHERE id <= (SELECT max(id) FROM {table}) - ?");
        transaction.execute(&sql, [i64::try_from(keep).unwrap_or(i64::MAX)])?;
    }
    transaction.commit()
}
