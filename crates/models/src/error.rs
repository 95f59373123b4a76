//! What can go wrong with the store.

use std::io;
use std::path::{Path, PathBuf};

use holdfast_graph::{Digest, ReadError};

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum StoreError {
    #[error("no model is named `{name}`{}", nearest_hint(nearest))]
    NoSuchModel { name: String, nearest: Vec<String> },
    #[error(
        "`{0}` cannot be a model's name: use letters, digits, `.`, `_` and `-`, starting with a letter or digit"
    )]
    BadName(String),
    #[error("the disk is full: cannot write {}; free some space and try again, nothing was changed", path.display())]
    DiskFull { path: PathBuf },
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "blob {digest} is missing from the store; run `holdfast verify`, then import the model again"
    )]
    MissingBlob { digest: Digest },
    #[error(
        "blob {digest} is damaged: its bytes hash to {found}; import the model again to repair it"
    )]
    DamagedBlob { digest: Digest, found: Digest },
    #[error("the manifest {} is damaged: {source}", path.display())]
    DamagedManifest { path: PathBuf, source: serde_json::Error },
    #[error("{} was written by a newer Holdfast (format {found}, this one reads {known}); update Holdfast", path.display())]
    NewerFormat { path: PathBuf, found: u32, known: u32 },
    #[error("{}: {source}", path.display())]
    Model { path: PathBuf, source: ReadError },
    #[error("the stored graph {digest} cannot be read: {source}")]
    StoredGraph { digest: Digest, source: ReadError },
    #[error("there is no ONNX model in {}: expected `.onnx` files there or in its `onnx` folder", .0.display())]
    NothingToImport(PathBuf),
    #[error("{} and {} are both the {what} of this model; import one of them by its own path", first.display(), second.display())]
    Ambiguous { what: String, first: PathBuf, second: PathBuf },
    #[error("there is no variant `{asked}` here; there is {}", available.join(", "))]
    NoSuchVariant { asked: String, available: Vec<String> },
    #[error("model `{model}` has no component `{role}`; it has {}", available.join(", "))]
    NoSuchComponent { model: String, role: String, available: Vec<String> },
}

impl StoreError {
    /// Wraps an I/O error with what was being done to which file.
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> StoreError {
        let full =
            [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
        if full.contains(&source.kind()) {
            return StoreError::DiskFull { path: path.to_owned() };
        }
        StoreError::Io { action, path: path.to_owned(), source }
    }
}

fn nearest_hint(nearest: &[String]) -> String {
    match nearest {
        [] => "; `holdfast models` lists what there is".to_owned(),
        [one] => format!("; did you mean `{one}`?"),
        several => format!("; did you mean one of `{}`?", several.join("`, `")),
    }
}
