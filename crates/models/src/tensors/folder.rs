//! The folder of saved tensors: finds, lists, removes, and keeps it within its limits.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_graph::{DataType, Digest, Tensor};

use super::file::{Header, Problem};
use super::reader::TensorReader;
use super::writer::{Compression, TensorWriter};
use crate::blobs::{PARTIAL, sync_folder};
use crate::error::StoreError;

const EXTENSION: &str = "tensor";

/// What the folder may grow to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedLimits {
    /// Bytes of all files together. The oldest go when there are more.
    pub max_bytes: u64,
    /// How long a tensor is kept; `None` for as long as there is room.
    pub max_age: Option<Duration>,
}

/// A tensor on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedTensor {
    /// The namespace of its name.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The element type.
    pub dtype: DataType,
    /// The dimensions.
    pub dims: Vec<usize>,
    /// Bytes of its elements.
    pub byte_len: u64,
    /// Bytes of its file.
    pub file_bytes: u64,
    /// When it was saved.
    pub saved_at: SystemTime,
}

impl SavedTensor {
    pub(super) fn new(header: Header, file_bytes: u64) -> SavedTensor {
        SavedTensor {
            namespace: header.namespace,
            name: header.name,
            dtype: header.dtype,
            dims: header.dims,
            byte_len: header.byte_len,
            file_bytes,
            saved_at: UNIX_EPOCH + Duration::from_millis(header.saved_at_ms),
        }
    }
}

/// A file, and what it says of its tensor.
type Found = (PathBuf, Result<SavedTensor, StoreError>);

/// Tensors on disk, by namespace and name. Several processes may use one folder.
pub struct SavedTensors {
    folder: PathBuf,
    limits: SavedLimits,
}

impl SavedTensors {
    /// Opens a folder of saved tensors, making it if it is not there. What writers that were
    /// killed have left behind is removed.
    pub fn open(
        folder: impl Into<PathBuf>,
        limits: SavedLimits,
    ) -> Result<SavedTensors, StoreError> {
        let folder = folder.into();
        fs::create_dir_all(&folder).map_err(|e| StoreError::not_writable(&folder, e))?;
        let saved = SavedTensors { folder, limits };
        // Whoever writes shares the lock; their files are no garbage.
        let lock = saved.lock()?;
        if lock.try_lock().is_ok() {
            for path in saved.files()? {
                if path.to_string_lossy().ends_with(PARTIAL) {
                    remove_if_there(&path)?;
                }
            }
        }
        Ok(saved)
    }

    /// Saves a tensor, in place of what was saved under its name.
    pub fn save(
        &self,
        namespace: &str,
        name: &str,
        tensor: &Tensor,
        compression: Compression,
        now: SystemTime,
    ) -> Result<SavedTensor, StoreError> {
        let (dtype, dims) = (tensor.dtype(), tensor.dims());
        let mut writer = self.writer(namespace, name, dtype, dims, compression, now)?;
        let path = self.path(namespace, name);
        io::Write::write_all(&mut writer, tensor.bytes())
            .map_err(|e| StoreError::io("write", &path, e))?;
        writer.finish()
    }

    /// Saves a tensor whose bytes come one after the other.
    pub fn writer(
        &self,
        namespace: &str,
        name: &str,
        dtype: DataType,
        dims: &[usize],
        compression: Compression,
        now: SystemTime,
    ) -> Result<TensorWriter<'_>, StoreError> {
        let elements = dims.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim as u64));
        let byte_len = elements.and_then(|elements| dtype.byte_len(elements));
        let byte_len = byte_len.ok_or_else(|| StoreError::NotASavableTensor {
            name: name.to_owned(),
            dtype,
            dims: dims.to_vec(),
        })?;
        if compression == Compression::None {
            self.check_size(name, byte_len)?;
        }
        let header = Header {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            dtype,
            dims: dims.to_vec(),
            byte_len,
            saved_at_ms: milliseconds(now),
            zstd: compression == Compression::Zstd,
        };
        TensorWriter::new(self, header, self.path(namespace, name))
    }

    /// A saved tensor, checked as a whole; `None` if there is none, or only one that is too old.
    pub fn load(
        &self,
        namespace: &str,
        name: &str,
        now: SystemTime,
    ) -> Result<Option<Tensor>, StoreError> {
        self.reader(namespace, name, now)?.map(TensorReader::into_tensor).transpose()
    }

    /// Reads a saved tensor piece by piece; `None` if there is none, or only one that is too old.
    pub fn reader(
        &self,
        namespace: &str,
        name: &str,
        now: SystemTime,
    ) -> Result<Option<TensorReader>, StoreError> {
        let path = self.path(namespace, name);
        let Some(file) = open_if_there(&path)? else { return Ok(None) };
        let reader = TensorReader::open(path.clone(), file)?;
        let header = reader.header();
        if (header.namespace.as_str(), header.name.as_str()) != (namespace, name) {
            let why = format!("it is that of `{}`", header.name);
            return Err(damaged(&path, Problem::Damaged(why)));
        }
        Ok((!self.is_expired(header.saved_at_ms, now)).then_some(reader))
    }

    /// The saved tensors of a namespace, by name, and what could not be read.
    pub fn list(&self, namespace: &str) -> Result<(Vec<SavedTensor>, Vec<StoreError>), StoreError> {
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        for (_, saved) in self.all()? {
            match saved {
                Ok(saved) if saved.namespace == namespace => found.push(saved),
                Ok(_) => {}
                Err(error) => unreadable.push(error),
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok((found, unreadable))
    }

    /// Removes a saved tensor, damaged or not. False if there was none.
    pub fn remove(&self, namespace: &str, name: &str) -> Result<bool, StoreError> {
        let removed = remove_if_there(&self.path(namespace, name))?;
        sync_folder(&self.folder)?;
        Ok(removed)
    }

    /// Removes what is over the age limit, and returns how many that were.
    pub fn expire(&self, now: SystemTime) -> Result<usize, StoreError> {
        let mut expired = 0;
        for (path, saved) in self.all()? {
            let too_old = |saved: &SavedTensor| self.is_expired(milliseconds(saved.saved_at), now);
            if saved.as_ref().is_ok_and(too_old) && remove_if_there(&path)? {
                expired += 1;
            }
        }
        sync_folder(&self.folder)?;
        Ok(expired)
    }

    /// Bytes of all files.
    pub fn total_bytes(&self) -> Result<u64, StoreError> {
        let sizes = self.tensor_files()?.into_iter().map(|path| file_bytes(&path));
        Ok(sizes.collect::<Result<Vec<_>, _>>()?.into_iter().sum())
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn lock(&self) -> Result<File, StoreError> {
        let path = self.folder.join("tensors.lock");
        File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|e| StoreError::not_writable(&self.folder, e))
    }

    pub(super) fn check_size(&self, name: &str, bytes: u64) -> Result<(), StoreError> {
        let limit = self.limits.max_bytes;
        if bytes > limit {
            return Err(StoreError::TensorTooLarge { name: name.to_owned(), bytes, limit });
        }
        Ok(())
    }

    /// Removes the oldest until all fit. What was just saved stays, and what cannot be read goes
    /// first: it serves nobody.
    pub(super) fn make_room(&self, new: &Path) -> Result<(), StoreError> {
        let mut total = self.total_bytes()?;
        if total <= self.limits.max_bytes {
            return Ok(());
        }
        let mut all = self.all()?;
        all.sort_by_key(|(_, saved)| saved.as_ref().ok().map(|saved| saved.saved_at));
        for (path, _) in all.into_iter().filter(|(path, _)| path != new) {
            if total <= self.limits.max_bytes {
                break;
            }
            total -= file_bytes(&path)?;
            remove_if_there(&path)?;
        }
        sync_folder(&self.folder)
    }

    fn is_expired(&self, saved_at_ms: u64, now: SystemTime) -> bool {
        let age = Duration::from_millis(milliseconds(now).saturating_sub(saved_at_ms));
        self.limits.max_age.is_some_and(|max_age| age > max_age)
    }

    fn path(&self, namespace: &str, name: &str) -> PathBuf {
        // Names may be anything; their hash is a good file name. No text has the byte between.
        let both = [namespace.as_bytes(), &[0xff], name.as_bytes()].concat();
        self.folder.join(format!("{}.{EXTENSION}", Digest::of(&both)))
    }

    fn all(&self) -> Result<Vec<Found>, StoreError> {
        let mut all = Vec::new();
        for path in self.tensor_files()? {
            // One that is gone by now was removed by another process.
            if let Some(file) = open_if_there(&path)? {
                let bytes = file_bytes(&path)?;
                let saved = TensorReader::open(path.clone(), file)
                    .map(|reader| SavedTensor::new(reader.header().clone(), bytes));
                all.push((path, saved));
            }
        }
        Ok(all)
    }

    fn tensor_files(&self) -> Result<Vec<PathBuf>, StoreError> {
        let is_tensor = |path: &PathBuf| path.extension().is_some_and(|found| found == EXTENSION);
        Ok(self.files()?.into_iter().filter(is_tensor).collect())
    }

    fn files(&self) -> Result<Vec<PathBuf>, StoreError> {
        let io = |error| StoreError::io("list", &self.folder, error);
        let entries = fs::read_dir(&self.folder).map_err(io)?;
        entries.map(|entry| Ok(entry.map_err(io)?.path())).collect()
    }
}

/// What is wrong with a file, as an error.
pub(super) fn damaged(path: &Path, problem: Problem) -> StoreError {
    let path = path.to_owned();
    match problem {
        Problem::Damaged(why) => StoreError::DamagedTensor { path, why },
        Problem::Newer(found) => {
            StoreError::NewerFormat { path, found, known: super::file::FORMAT }
        }
        Problem::Io(source) => StoreError::io("read", &path, source),
    }
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn file_bytes(path: &Path) -> Result<u64, StoreError> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(StoreError::io("look at", path, error)),
    }
}

fn open_if_there(path: &Path) -> Result<Option<File>, StoreError> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io("read", path, error)),
    }
}

fn remove_if_there(path: &Path) -> Result<bool, StoreError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(StoreError::io("remove", path, error)),
    }
}
