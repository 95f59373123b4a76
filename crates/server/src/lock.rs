//! `server.lock`: whoever holds it is the one server of its home. The system lets go of it with
//! the process, however that ends, so it says for certain whether a server is there.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// A hold on a home.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    pub(crate) fn path(home: &Path) -> PathBuf {
        home.join("server.lock")
    }

    /// For a server. `None` if another one has it.
    pub(crate) fn take(home: &Path) -> io::Result<Option<Lock>> {
        Lock::with(home, File::try_lock)
    }

    /// For those who want to be sure that no server starts meanwhile. `None` if one is there.
    pub(crate) fn share(home: &Path) -> io::Result<Option<Lock>> {
        Lock::with(home, File::try_lock_shared)
    }

    fn with(
        home: &Path,
        lock: impl FnOnce(&File) -> Result<(), TryLockError>,
    ) -> io::Result<Option<Lock>> {
        let path = Lock::path(home);
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        match lock(&file) {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_it_until_it_lets_go() {
        let home = tempfile::tempdir().unwrap();
        let held = Lock::take(home.path()).unwrap().unwrap();
        assert!(Lock::take(home.path()).unwrap().is_none());
        assert!(Lock::share(home.path()).unwrap().is_none());
        drop(held);
        assert!(Lock::take(home.path()).unwrap().is_some());
    }

    #[test]
    fn those_who_only_look_do_not_disturb_each_other() {
        let home = tempfile::tempdir().unwrap();
        let _one = Lock::share(home.path()).unwrap().unwrap();
        let _other = Lock::share(home.path()).unwrap().unwrap();
        assert!(Lock::take(home.path()).unwrap().is_none());
    }
}
