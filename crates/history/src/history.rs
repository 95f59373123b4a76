//! A handle to a history.

use std::path::Path;
use std::sync::Arc;

use duckdb::OptionalExt;

use crate::error::HistoryError;
use crate::export;
use crate::file::Claim;
use crate::overview::{self, Overview};

/// A DuckDB file with predictions and measurements. A cheap handle: clones, and others on the same
/// path, share one file that is open once. It is closed with the last of them.
#[derive(Clone)]
pub struct History {
    pub(crate) file: Arc<Claim>,
}

impl History {
    /// Opens a file, or makes one. A file of an older version is brought to this one.
    pub fn open(path: impl AsRef<Path>) -> Result<History, HistoryError> {
        let history = History::at(path);
        history.file.with(|_| Ok(()))?;
        Ok(history)
    }

    /// A file that is opened when it is first needed, and again if that failed.
    pub fn at(path: impl AsRef<Path>) -> History {
        History { file: Arc::new(Claim::new(path.as_ref())) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// What people look at: the newest `limit` of each, the newest last.
    pub fn overview(&self, limit: usize) -> Result<Overview, HistoryError> {
        self.file.with(|connection| {
            overview::read(connection, limit).map_err(|source| self.cannot_read(source))
        })
    }

    /// What the predictor knew when it was last kept, as JSON.
    pub fn predictor(&self) -> Result<Option<String>, HistoryError> {
        self.file.with(|connection| {
            let sql = "SELECT content FROM predictor_snapshots WHERE name = ?";
            connection
                .query_row(sql, [PREDICTOR], |row| row.get(0))
                .optional()
                .map_err(|source| self.cannot_read(source))
        })
    }

    /// Writes all predictions with their measurements to a file: Parquet or CSV, by its ending.
    /// Tells how many there are.
    pub fn export(&self, path: impl AsRef<Path>) -> Result<u64, HistoryError> {
        self.file.with(|connection| export::export(connection, path.as_ref()))
    }

    fn cannot_read(&self, source: duckdb::Error) -> HistoryError {
        HistoryError::Read { path: self.path().to_owned(), source }
    }
}

/// The name of the one predictor that there is.
pub(crate) const PREDICTOR: &str = "predictor";

impl std::fmt::Debug for History {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "History({})", self.path().display())
    }
}
