//! The tables, and how a file of an older version becomes one of this version.

use std::path::Path;

use duckdb::Connection;

use crate::error::HistoryError;

/// What brings a file from each version to the next. A step that was released is never changed:
/// add another one. It does not `ALTER` a table whose rows are numbered: after a kill, DuckDB 1.5.6
/// cannot replay that from its log ("no default database set"), and the file is lost. It makes
/// another table and copies.
pub(crate) const STEPS: &[&str] = &[include_str!("schema/1.sql")];

/// Tables with one row for each thing that happened, which have a number in the order of writing.
pub(crate) const ROW_TABLES: [&str; 7] = [
    "multi_model_validation_metrics",
    "multi_model_optimization_impact",
    "multi_model_refinement_metrics",
    "multi_model_error_trends",
    "inferences",
    "segment_runs",
    "setting_changes",
];

/// Brings a file to the last version, all or nothing.
pub(crate) fn migrate(
    path: &Path,
    connection: &mut Connection,
    steps: &[&str],
) -> Result<(), HistoryError> {
    let known = steps.len() as i64;
    let found = version(connection)
        .map_err(|source| HistoryError::Read { path: path.to_owned(), source })?;
    if found > known {
        return Err(HistoryError::Newer { path: path.to_owned(), found, known });
    }
    let missing = steps.iter().zip(1i64..).skip(usize::try_from(found).unwrap_or(0));
    let apply = || {
        let transaction = connection.transaction()?;
        for (step, version) in missing {
            transaction.execute_batch(step)?;
            let sql = "INSERT INTO holdfast_schema (version, applied) VALUES (?, now()::TIMESTAMP)";
            transaction.execute(sql, [version])?;
        }
        transaction.commit()
    };
    let path = path.to_owned();
    apply().map_err(|source| HistoryError::Migrate { path, from: found, to: known, source })
}

/// The version of a file; an empty one has 0.
fn version(connection: &Connection) -> duckdb::Result<i64> {
    let sql = "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'holdfast_schema'";
    if connection.query_row(sql, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(0);
    }
    let sql = "SELECT coalesce(max(version), 0)::BIGINT FROM holdfast_schema";
    connection.query_row(sql, [], |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn migrated(steps: &[&str]) -> Connection {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(Path::new("test"), &mut connection, steps).unwrap();
        connection
    }

    #[test]
    fn an_older_file_gets_only_the_steps_that_it_lacks() {
        let mut connection = migrated(STEPS);
        let insert = "INSERT INTO setting_changes (setting) VALUES ('kept')";
        connection.execute_batch(insert).unwrap();
        let more = "ALTER TABLE setting_changes ADD COLUMN author VARCHAR DEFAULT 'nobody'";
        let steps: Vec<&str> = STEPS.iter().copied().chain([more]).collect();
        for _again in 0..2 {
            migrate(Path::new("test"), &mut connection, &steps).unwrap();
        }
        let sql = "SELECT setting || ' by ' || author FROM setting_changes";
        let row: String = connection.query_row(sql, [], |row| row.get(0)).unwrap();
        assert_eq!(row, "kept by nobody");
        assert_eq!(version(&connection).unwrap(), steps.len() as i64);
    }

    #[test]
    fn a_step_that_fails_changes_nothing() {
        let mut connection = migrated(STEPS);
        let steps: Vec<&str> =
            STEPS.iter().copied().chain(["CREATE TABLE half (a INTEGER)", "no SQL"]).collect();
        let error = migrate(Path::new("test"), &mut connection, &steps).unwrap_err();
        assert!(matches!(error, HistoryError::Migrate { .. }), "{error}");
        assert_eq!(version(&connection).unwrap(), STEPS.len() as i64);
        assert!(connection.execute_batch("SELECT * FROM half").is_err());
    }

    #[test]
    fn every_table_with_rows_is_there_and_numbers_them() {
        let connection = migrated(STEPS);
        for table in ROW_TABLES {
            let sql = format!("SELECT coalesce(max(id), 0)::BIGINT FROM {table}");
            let last: i64 = connection.query_row(&sql, [], |row| row.get(0)).unwrap();
            assert_eq!(last, 0, "{table}");
        }
    }
}
