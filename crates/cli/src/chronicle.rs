//! Where predictions and measurements are read and written: in the file, or by the server that
//! holds it, because DuckDB lets one process have its file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_history::{History, HistoryError, Overview, Writer, WriterOptions};
use holdfast_pool::{Known, PoolOptions};
use holdfast_server::ServerFile;

use crate::args::{DbArgs, Global};
use crate::output;

/// What has been recorded.
pub(crate) enum Chronicle {
    /// In a file that is free, or not there yet.
    Here(PathBuf),
    /// With a server that holds the file.
    There(ServerFile),
}

/// Predictions that a pool goes on from.
const PAST: usize = 200;

/// How long a file that another process has is waited for: reading one takes a moment.
const PATIENCE: Duration = Duration::from_secs(2);

impl Chronicle {
    /// The file that is asked for, or the server that holds it.
    pub(crate) async fn find(global: &Global, db: &DbArgs) -> anyhow::Result<Chronicle> {
        let path = path(global, db)?;
        let Some(server) = ServerFile::find(&global.home()?) else {
            return Ok(Chronicle::Here(path));
        };
        // The usual file is whatever the server keeps.
        let holds_it = match db.db {
            None => true,
            Some(_) => {
                let wanted = History::at(&path).path().display().to_string();
                server.status().await?.history == Some(wanted)
            }
        };
        Ok(if holds_it { Chronicle::There(server) } else { Chronicle::Here(path) })
    }

    /// The newest `limit` of everything. Nothing, if nothing was ever recorded.
    pub(crate) async fn overview(&self, limit: usize) -> anyhow::Result<Overview> {
        match self {
            Chronicle::There(server) => Ok(server.history(limit).await?),
            // Looking at a file that is not there does not make one.
            Chronicle::Here(path) if !path.exists() => Ok(Overview::default()),
            Chronicle::Here(path) => Ok(open(path).await?.overview(limit)?),
        }
    }
}

/// Opens a file, as soon as others who only look at it are done.
async fn open(path: &PathBuf) -> Result<History, HistoryError> {
    let since = Instant::now();
    loop {
        match History::open(path) {
            Err(error) if error.is_held() && since.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            result => return result,
        }
    }
}

/// Where the file is.
fn path(global: &Global, db: &DbArgs) -> anyhow::Result<PathBuf> {
    match &db.db {
        Some(path) => Ok(path.clone()),
        None => Ok(global.home()?.join("history.duckdb")),
    }
}

/// A history that this process writes.
pub(crate) struct Recording {
    pub(crate) history: History,
    writer: Arc<Writer>,
}

impl Recording {
    /// Starts to record. A file that cannot be opened is a warning, and is tried again.
    pub(crate) fn start(global: &Global, db: &DbArgs) -> anyhow::Result<Recording> {
        let history = History::at(path(global, db)?);
        if let Err(error) = History::open(history.path()) {
            output::warn(format!("{error}; nothing is recorded until that changes"));
        }
        let warn = Arc::new(|message: &str| output::warn(message));
        let options = WriterOptions { warn, ..WriterOptions::default() };
        let writer = Arc::new(Writer::start(history.clone(), options));
        Ok(Recording { history, writer })
    }

    /// A pool that keeps what it measures and learns, and goes on from what was learned before. A
    /// history that cannot be read was told of when it was opened; what was learned before stays in
    /// it, whatever this pool learns without.
    pub(crate) fn of_pool(&self, options: PoolOptions) -> PoolOptions {
        let learned = self.history.predictor();
        let past = self.history.overview(PAST);
        let incomplete = learned.is_err() || past.is_err();
        let Overview { validations, refinements, .. } = past.unwrap_or_default();
        let known = Known {
            incomplete,
            learned: learned.ok().flatten(),
            validations,
            refined: refinements.last().map(|refinement| refinement.timestamp),
        };
        PoolOptions { recorder: Some(self.writer.clone()), known, ..options }
    }

    /// Writes what is left.
    pub(crate) fn finish(self) {
        // The writer has told why, if it could not.
        let _ = self.writer.flush();
    }
}
