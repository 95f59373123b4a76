//! Adding to the store and removing from it, safe against others who do so at the same time.
//!
//! Whoever adds shares the lock, `gc` holds it alone: blobs are added before the manifest that
//! names them, and must not be taken for garbage in between. The lock goes with the process,
//! however it ends.

use std::collections::HashSet;
use std::fs::{File, TryLockError};
use std::path::PathBuf;

use holdfast_graph::Digest;

use crate::error::StoreError;
use crate::store::Store;

impl Store {
    /// Runs something that adds blobs and tells which. If it fails, they are taken back: a disk
    /// that was full is no fuller afterwards.
    pub(crate) fn adding<T>(
        &self,
        add: impl FnOnce(&mut Vec<Digest>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let lock = self.lock_shared()?;
        let mut added = Vec::new();
        let result = add(&mut added);
        drop(lock);
        if result.is_err() && !added.is_empty() {
            // What cannot be removed now, `gc` will; the first error is the one that matters.
            let _ = self.take_back(&added);
        }
        result
    }

    fn take_back(&self, added: &[Digest]) -> Result<(), StoreError> {
        let (file, path) = self.lock_file()?;
        match file.try_lock() {
            Ok(()) => {}
            // Someone else who is adding may count on these blobs by now.
            Err(TryLockError::WouldBlock) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(StoreError::io("lock", &path, error)),
        }
        let needed = self.needed()?.blobs;
        let unneeded: HashSet<&Digest> =
            added.iter().filter(|digest| !needed.contains(digest)).collect();
        unneeded.into_iter().try_for_each(|digest| self.blobs.remove(digest))
    }

    pub(crate) fn lock_shared(&self) -> Result<File, StoreError> {
        let (file, path) = self.lock_file()?;
        file.lock_shared().map_err(|e| StoreError::io("lock", &path, e))?;
        Ok(file)
    }

    pub(crate) fn lock_alone(&self) -> Result<File, StoreError> {
        let (file, path) = self.lock_file()?;
        file.lock().map_err(|e| StoreError::io("lock", &path, e))?;
        Ok(file)
    }

    fn lock_file(&self) -> Result<(File, PathBuf), StoreError> {
        let path = self.home().join("store.lock");
        match File::options().create(true).truncate(false).write(true).open(&path) {
            Ok(file) => Ok((file, path)),
            Err(source) => Err(StoreError::not_writable(self.home(), source)),
        }
    }
}
