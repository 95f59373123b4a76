//! The file behind handles: opened once in a process, opened again after it failed.
//!
//! Two DuckDB instances on one file would each believe to be alone, and a lock of the system does
//! not stop them inside one process. So the files that are in use are listed here.

use std::collections::HashMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use duckdb::{Config, Connection};

use crate::error::HistoryError;
use crate::schema;

/// A file that may be open.
pub(crate) struct File {
    path: PathBuf,
    /// One connection for all: whoever reads or writes holds the lock for as long as it takes.
    /// Nothing that must not wait comes here.
    connection: Mutex<Option<Connection>>,
}

/// The use of a file. It is closed with the last one.
pub(crate) struct Claim(Arc<File>);

/// A file in use.
struct Used {
    file: Arc<File>,
    claims: usize,
}

static FILES: LazyLock<Mutex<HashMap<PathBuf, Used>>> = LazyLock::new(Mutex::default);

impl Claim {
    /// Claims the file at a path; it is the same for all who do.
    pub(crate) fn new(path: &Path) -> Claim {
        let path = resolve(path);
        let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        let used = files.entry(path.clone()).or_insert_with(|| {
            let file = Arc::new(File { path, connection: Mutex::new(None) });
            Used { file, claims: 0 }
        });
        used.claims += 1;
        Claim(used.file.clone())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(used) = files.get_mut(&self.0.path) else { return };
        used.claims -= 1;
        if used.claims == 0 {
            // Under the lock, so that nobody opens it before it is closed.
            used.file.close();
            files.remove(&self.0.path);
        }
    }
}

impl Deref for Claim {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl File {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Does something with the file, which is opened if it is not open.
    pub(crate) fn with<T>(
        &self,
        act: impl FnOnce(&mut Connection) -> Result<T, HistoryError>,
    ) -> Result<T, HistoryError> {
        let mut connection = self.lock();
        match &mut *connection {
            Some(connection) => act(connection),
            none => act(none.insert(open(&self.path)?)),
        }
    }

    /// Closes the file; the next one who needs it opens it again. After some errors, DuckDB does
    /// nothing more until then.
    pub(crate) fn close(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// DuckDB may take this much memory. What is kept is small.
const MEMORY: &str = "256MB";

fn open(path: &Path) -> Result<Connection, HistoryError> {
    let connect = || {
        let config = Config::default()
            .max_memory(MEMORY)?
            // No threads of its own: they would compete with inference.
            .threads(1)?
            // Nothing is ever downloaded.
            .with("autoinstall_known_extensions", "false")?
            .with("autoload_known_extensions", "false")?;
        Connection::open_with_flags(path, config)
    };
    let mut connection = connect().map_err(|error| HistoryError::opening(path, &error))?;
    schema::migrate(path, &mut connection, schema::STEPS)?;
    Ok(connection)
}

/// One name for one file, whether it is there yet or not.
fn resolve(path: &Path) -> PathBuf {
    if let Ok(path) = path.canonicalize() {
        return path;
    }
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match (path.parent().and_then(|parent| parent.canonicalize().ok()), path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path,
    }
}
