//! What was predicted and what it was, kept in one DuckDB file.
//!
//! A [`History`] is the file: it is read through it, and one process has it open once, however many
//! handles there are. A [`Writer`] takes [`Record`](holdfast_predict::Record)s and writes them in
//! the background, so that inference never waits for a disk. An [`Overview`] is what people look
//! at.
//!
//! ```
//! use std::time::SystemTime;
//!
//! use holdfast_history::{History, Writer, WriterOptions};
//! use holdfast_predict::{Record, Recorder, SettingChange};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let history = History::open(folder.path().join("history.duckdb"))?;
//! let writer = Writer::start(history.clone(), WriterOptions::default());
//! writer.record(Record::Setting(Box::new(SettingChange {
//!     timestamp: SystemTime::now(),
//!     hardware_platform: "cpu".to_owned(),
//!     setting: "batching_size".to_owned(),
//!     before: 4.0,
//!     after: 8.0,
//!     reason: "by hand".to_owned(),
//! })));
//! writer.flush()?;
//! assert_eq!(history.overview(10)?.settings.len(), 1);
//! # Ok(())
//! # }
//! ```

mod batch;
mod error;
mod export;
mod file;
mod history;
mod overview;
mod queue;
mod read;
mod rows;
mod schema;
mod writer;

pub use error::HistoryError;
pub use history::History;
pub use overview::{InferenceSummary, Overview};
pub use writer::{Writer, WriterOptions};
