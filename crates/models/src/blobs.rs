//! Blobs: files named by the SHA-256 of their bytes.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use holdfast_graph::{Digest, MappedFile, blob_digest, blob_name, map_file};

use crate::error::StoreError;
use crate::hash::hash_all;

/// The folder of blobs. Blobs are never changed in place, so a mapped one stays what it was.
pub(crate) struct Blobs {
    folder: PathBuf,
    /// Maps that someone still holds, so that one blob is mapped once however many use it.
    mapped: Mutex<HashMap<Digest, Weak<MappedFile>>>,
}

/// What storing some blobs has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Blobs that were not there before.
    pub blobs: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl Written {
    pub(crate) fn add(&mut self, other: Written) {
        self.blobs += other.blobs;
        self.bytes += other.bytes;
    }
}

impl Blobs {
    pub(crate) fn open(folder: PathBuf) -> Result<Blobs, StoreError> {
        fs::create_dir_all(&folder).map_err(|e| StoreError::not_writable(&folder, e))?;
        Ok(Blobs { folder, mapped: Mutex::default() })
    }

    pub(crate) fn path(&self, digest: &Digest) -> PathBuf {
        self.folder.join(blob_name(digest))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Stores bytes whose digest the caller has computed. What is there already is not written
    /// again, unless it was damaged.
    pub(crate) fn put(&self, digest: &Digest, bytes: &[u8]) -> Result<Written, StoreError> {
        let path = self.path(digest);
        if holds(&path, bytes) {
            return Ok(Written::default());
        }
        write_atomically(&path, bytes)?;
        Ok(Written { blobs: 1, bytes: bytes.len() as u64 })
    }

    /// Makes renamed files permanent. Called once after a series of `put`.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        sync_folder(&self.folder)
    }

    pub(crate) fn has(&self, digest: &Digest) -> bool {
        self.path(digest).is_file()
    }

    /// Maps blobs and checks their hashes, on all cores. A blob that is mapped already was checked.
    pub(crate) fn map(&self, digests: &[Digest]) -> Result<Vec<Bytes>, StoreError> {
        let mut found: HashMap<Digest, Arc<MappedFile>> = HashMap::new();
        let mut unchecked: Vec<(Digest, Arc<MappedFile>)> = Vec::new();
        for digest in digests {
            if found.contains_key(digest) {
                continue;
            }
            let map = match self.held(digest) {
                Some(map) => map,
                None => {
                    let map = Arc::new(self.map_file(digest)?);
                    unchecked.push((*digest, map.clone()));
                    map
                }
            };
            found.insert(*digest, map);
        }
        let slices: Vec<&[u8]> = unchecked.iter().map(|(_, map)| (**map).as_ref()).collect();
        for ((digest, _), found) in unchecked.iter().zip(hash_all(&slices)) {
            if *digest != found {
                return Err(StoreError::DamagedBlob { digest: *digest, found });
            }
        }
        let mut mapped = self.mapped.lock().expect("no code panics while holding this lock");
        mapped.retain(|_, map| map.strong_count() > 0);
        mapped.extend(unchecked.iter().map(|(digest, map)| (*digest, Arc::downgrade(map))));
        Ok(digests.iter().map(|digest| Bytes::from_owner(Held(found[digest].clone()))).collect())
    }

    /// Gives back the memory of blobs that are mapped but hardly read any more. Whoever still
    /// reads them finds them as they were.
    pub(crate) fn release_pages(&self, digests: impl IntoIterator<Item = Digest>) {
        let maps = digests.into_iter().filter_map(|digest| self.held(&digest));
        maps.for_each(|map| map.release_pages());
    }

    /// Maps blobs without a look at their bytes. Nobody else is given these maps, because they count
    /// as checked for nobody.
    pub(crate) fn map_unchecked(&self, digests: &[Digest]) -> Result<Vec<Bytes>, StoreError> {
        let map = |digest| match self.held(digest) {
            Some(map) => Ok(Bytes::from_owner(Held(map))),
            None => Ok(Bytes::from_owner(Held(Arc::new(self.map_file(digest)?)))),
        };
        digests.iter().map(map).collect()
    }

    fn map_file(&self, digest: &Digest) -> Result<MappedFile, StoreError> {
        let path = self.path(digest);
        MappedFile::open(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::MissingBlob { digest: *digest },
            _ => StoreError::io("read", &path, error),
        })
    }

    fn held(&self, digest: &Digest) -> Option<Arc<MappedFile>> {
        let mapped = self.mapped.lock().expect("no code panics while holding this lock");
        mapped.get(digest)?.upgrade()
    }

    /// Every blob with its size.
    pub(crate) fn list(&self) -> Result<Vec<(Digest, u64)>, StoreError> {
        let io = |error| StoreError::io("list", &self.folder, error);
        let mut blobs = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(io)? {
            let entry = entry.map_err(io)?;
            let name = entry.file_name();
            if let Some(digest) = name.to_str().and_then(blob_digest) {
                blobs.push((digest, entry.metadata().map_err(io)?.len()));
            }
        }
        blobs.sort();
        Ok(blobs)
    }

    pub(crate) fn remove(&self, digest: &Digest) -> Result<(), StoreError> {
        let path = self.path(digest);
        fs::remove_file(&path).map_err(|e| StoreError::io("remove", &path, e))
    }
}

/// Keeps a shared map alive for as long as any slice of it.
struct Held(Arc<MappedFile>);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

/// Whether the file is there with just these bytes.
fn holds(path: &Path, bytes: &[u8]) -> bool {
    map_file(path).is_ok_and(|there| there == bytes)
}

/// The suffix of files that are being written. Whatever ends the writer leaves them behind
/// for `gc`; nothing reads them.
pub(crate) const PARTIAL: &str = ".partial";

/// Writes a file so that at any moment the old one or the new one is there, whole. The
/// rename itself is permanent after [`sync_folder`].
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let io = |error| StoreError::io("write", path, error);
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().suffix(PARTIAL).tempfile_in(folder).map_err(io)?;
    file.write_all(bytes).map_err(io)?;
    make_readable(file.as_file()).map_err(io)?;
    file.as_file().sync_all().map_err(io)?;
    file.persist(path).map_err(|error| io(error.error))?;
    Ok(())
}

/// Temporary files are private to their owner; files of the store follow the usual mode.
#[cfg(unix)]
pub(crate) fn make_readable(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
pub(crate) fn make_readable(_: &File) -> io::Result<()> {
    Ok(())
}

pub(crate) fn sync_folder(folder: &Path) -> Result<(), StoreError> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|e| StoreError::io("flush", folder, e))
}
