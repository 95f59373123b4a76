//! What can go wrong with a history.

use std::path::{Path, PathBuf};

/// Why a history could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum HistoryError {
    #[error("the history {path} is in use by another process: {reason}")]
    Held { path: PathBuf, reason: String },
    #[error("cannot open the history {path}: {reason}")]
    Open { path: PathBuf, reason: String },
    #[error(
        "the history {path} was written by a newer Holdfast: its version is {found}, this one \
         knows versions up to {known}"
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("the history {path} cannot be brought from version {from} to {to}")]
    Migrate { path: PathBuf, from: i64, to: i64, source: duckdb::Error },
    #[error("cannot read the history {path}")]
    Read { path: PathBuf, source: duckdb::Error },
    #[error("cannot write to the history {path}")]
    Write { path: PathBuf, source: duckdb::Error },
    #[error("cannot write the dataset {path}: {reason}")]
    Export { path: PathBuf, reason: String },
    #[error("the history could not be written: {0}")]
    Flush(String),
}

impl HistoryError {
    /// What DuckDB says when it cannot open a file.
    pub(crate) fn opening(path: &Path, error: &duckdb::Error) -> HistoryError {
        let (path, reason) = (path.to_owned(), sentence(error));
        // There is no code for it. The second one is what Windows says.
        let is_held = ["Could not set lock on file", "used by another process"]
            .iter()
            .any(|words| reason.contains(words));
        match is_held {
            true => HistoryError::Held { path, reason },
            false => HistoryError::Open { path, reason },
        }
    }

    /// Whether another process has the file, so that it may be free a moment later.
    pub fn is_held(&self) -> bool {
        matches!(self, HistoryError::Held { .. })
    }
}

/// What a message says happened: the rest is addressed to users of DuckDB.
pub(crate) fn sentence(error: &duckdb::Error) -> String {
    let message = error.to_string();
    let first = message.lines().next().unwrap_or_default();
    let what = first.split(". See also http").next().unwrap_or_default();
    what.trim().to_owned()
}
