//! What can go wrong with the store.

use std::io;
use std::path::{Path, PathBuf};

use holdfast_graph::{DataType, Digest, ReadError};

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum StoreError {
    #[error("no model is named `{name}`{}", nearest_hint(nearest))]
    NoSuchModel { name: String, nearest: Vec<String> },
    #[error(
        "`{0}` cannot be a model's name: choose one with --name, of letters, digits, `.`, `_` and `-`, starting with a letter or digit"
    )]
    BadName(String),
    #[error("the disk is full or a limit is reached: cannot write {}; free some space and try again, no model was changed", path.display())]
    DiskFull { path: PathBuf },
    #[error("cannot write to the store at {} ({source}); check the folder, or choose another one with --home DIR or HOLDFAST_HOME", path.display())]
    NotWritable { path: PathBuf, source: io::Error },
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("blob {digest} is missing from the store; import the model again to repair it")]
    MissingBlob { digest: Digest },
    #[error(
        "blob {digest} is damaged: its bytes hash to {found}; import the model again to repair it"
    )]
    DamagedBlob { digest: Digest, found: Digest },
    #[error("the manifest {} is damaged ({source}); import the model again, or remove it with `holdfast rm`", path.display())]
    DamagedManifest { path: PathBuf, source: serde_json::Error },
    #[error("{} was written by a newer Holdfast (format {found}, this one reads {known}); update Holdfast", path.display())]
    NewerFormat { path: PathBuf, found: u32, known: u32 },
    #[error("nothing was removed, because what `{name}` needs is not known: {source}")]
    UnknownNeeds { name: String, source: Box<StoreError> },
    #[error("{}: {source}", path.display())]
    Model { path: PathBuf, source: ReadError },
    #[error("the stored graph {digest} cannot be read: {source}")]
    StoredGraph { digest: Digest, source: ReadError },
    #[error("there is no file or folder {}: name an `.onnx` file or a model's folder (`holdfast pull` gets one from a hub)", .0.display())]
    NothingThere(PathBuf),
    #[error("{} is empty: get the model again", .0.display())]
    EmptyFile(PathBuf),
    #[error("{} is a Git LFS pointer, not the model itself: run `git lfs pull` in its folder", .0.display())]
    LfsPointer(PathBuf),
    #[error("there is no ONNX model in {}: expected `.onnx` files there or in its `onnx` folder", .0.display())]
    NothingToImport(PathBuf),
    #[error("{} and {} would both be the component {what}; move one away, or import one of them by its own path", first.display(), second.display())]
    Ambiguous { what: String, first: PathBuf, second: PathBuf },
    #[error("`{of}` has no variant `{asked}`; it has {}", available.join(", "))]
    NoSuchVariant { of: String, asked: String, available: Vec<String> },
    #[error("`{model}` has no component `{role}`; it has {}", available.join(", "))]
    NoSuchComponent { model: String, role: String, available: Vec<String> },
    #[error("the saved tensor {} is damaged: {why}; remove it, and save it again", path.display())]
    DamagedTensor { path: PathBuf, why: String },
    #[error(
        "tensor `{name}` takes {bytes} bytes on disk, but all saved tensors together may take {limit}: raise the limit"
    )]
    TensorTooLarge { name: String, bytes: u64, limit: u64 },
    #[error("tensor `{name}` has {expected} bytes, but {found} were written; nothing was saved")]
    WrongTensorLength { name: String, expected: u64, found: u64 },
    #[error("tensor `{name}` of {dtype}{dims:?} has no size that could be saved")]
    NotASavableTensor { name: String, dtype: DataType, dims: Vec<usize> },
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

    /// A store that cannot be added to.
    pub(crate) fn not_writable(path: &Path, source: io::Error) -> StoreError {
        StoreError::NotWritable { path: path.to_owned(), source }
    }

    /// Whether a model's file is not there, or its name could not be that of a file.
    pub(crate) fn is_absent(&self) -> bool {
        match self {
            StoreError::BadName(_) => true,
            StoreError::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
            _ => false,
        }
    }
}

fn nearest_hint(nearest: &[String]) -> String {
    match nearest {
        [] => "; `holdfast models` lists what there is".to_owned(),
        [one] => format!("; did you mean `{one}`?"),
        several => format!("; did you mean one of `{}`?", several.join("`, `")),
    }
}
