//! A pool that keeps what it measures in a DuckDB file, with the packaged browser where one is
//! needed.

use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use holdfast_browsers::{GuardCommand, Kind};
use holdfast_history::{History, Writer, WriterOptions};
use holdfast_models::Store;
use holdfast_pool::{BrowserOptions, Known, Pool, PoolOptions};
use holdfast_predict::{Kept, Record, Recorder, RefinementRecord, RunTime, ValidatorOptions};
use holdfast_server::{Server, ServerOptions};

use super::models::Column;

pub(super) struct Lab {
    pub(super) pool: Arc<Pool>,
    pub(super) seen: Arc<Seen>,
    _server: Option<Server>,
}

/// Passes records on to the file, and keeps those that rows are computed from.
pub(super) struct Seen {
    writer: Writer,
    pub(super) runs: Mutex<Vec<RunTime>>,
    pub(super) refinements: Mutex<Vec<RefinementRecord>>,
}

impl Recorder for Seen {
    fn record(&self, record: Record) {
        match &record {
            Record::Run(run) => self.runs.lock().expect("nobody panics").push((**run).clone()),
            Record::Refinement(refinement) => {
                self.refinements.lock().expect("nobody panics").push((**refinement).clone());
            }
            _ => {}
        }
        self.writer.record(record);
    }

    fn kept(&self) -> Kept {
        self.writer.kept()
    }
}

impl Lab {
    pub(super) async fn start(
        store: &Arc<Store>,
        folder: &Path,
        column: Column,
        learned: Option<String>,
    ) -> Result<Lab> {
        let history = History::open(folder.join("history.duckdb"))?;
        let seen = Arc::new(Seen {
            writer: Writer::start(history, WriterOptions::default()),
            runs: Mutex::default(),
            refinements: Mutex::default(),
        });
        let browser = match column {
            Column::Cpu => None,
            Column::Wasm => {
                let cache = std::env::current_exe()?.with_file_name("browser-cache");
                let guard = GuardCommand::this_program([crate::lane::GUARD])?;
                let kinds = vec![Kind::Packaged];
                Some(BrowserOptions { kinds, min: 1, max: 1, ..BrowserOptions::new(cache, guard) })
            }
        };
        let options = PoolOptions {
            browser,
            recorder: Some(seen.clone()),
            known: Known { learned, ..Known::default() },
            validation: ValidatorOptions { interval: 1, ..ValidatorOptions::default() },
            ..PoolOptions::default()
        };
        let needs_door = options.browser.is_some();
        let pool = Arc::new(Pool::new(store.clone(), options)?);
        let server = match needs_door {
            true => {
                let address = (std::net::Ipv4Addr::LOCALHOST, 0).into();
                let options = ServerOptions { address, ..ServerOptions::default() };
                let server = Server::start(pool.lanes().clone(), options).await?;
                pool.open_door(server.join_link());
                Some(server)
            }
            false => None,
        };
        Ok(Lab { pool, seen, _server: server })
    }
}
