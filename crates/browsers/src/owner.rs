//! Whose a private profile is: it is removed by whoever owns it, or, where the owner was killed
//! before it could, by the next Holdfast that makes one.
//!
//! A lock on a file inside says that the owner lives. The system takes it back however a process
//! ends, so a number that another process got meanwhile can fool nobody.

use std::fs::File;
use std::io;
use std::path::Path;

/// How private profiles begin.
pub(crate) const PREFIX: &str = "holdfast-browser-";

const FILE_NAME: &str = "holdfast-owner";

/// While this is there, nobody else removes the profile.
#[derive(Debug)]
pub(crate) struct Owner {
    _locked: File,
}

impl Owner {
    /// Owns a profile from the moment that it is made.
    pub(crate) fn of_new(profile: &Path) -> io::Result<Owner> {
        let file = File::create(profile.join(FILE_NAME))?;
        file.lock_shared()?;
        Ok(Owner { _locked: file })
    }

    /// Owns a profile together with whoever made it; `None` if it is not one that is to be removed.
    pub(crate) fn of(profile: &Path) -> Option<Owner> {
        let file = File::open(profile.join(FILE_NAME)).ok()?;
        file.lock_shared().ok()?;
        Some(Owner { _locked: file })
    }
}

/// Removes private profiles that nobody owns any more. Folders of others, and those that are just
/// being made, are left as they are.
pub(crate) fn sweep(temporary: &Path) {
    for entry in std::fs::read_dir(temporary).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(file) = File::open(entry.path().join(FILE_NAME)) else { continue };
        // The lock is held until the folder is gone, so that two do not remove it at once.
        // What cannot be removed now, the next one tries again.
        if file.try_lock().is_ok() {
            let _ = crate::guard::remove(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_without_an_owner_is_removed_and_one_with_an_owner_is_not() {
        let temporary = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let profile = temporary.path().join(name);
            std::fs::create_dir(&profile).unwrap();
            profile
        };
        let (owned, left) = (make("holdfast-browser-a"), make("holdfast-browser-b"));
        let (new, other) = (make("holdfast-browser-c"), make("somebody-else"));
        std::fs::write(other.join(FILE_NAME), "").unwrap();
        let maker = Owner::of_new(&owned).unwrap();
        drop(Owner::of_new(&left).unwrap());
        sweep(temporary.path());
        assert_eq!([&owned, &left, &new, &other].map(|it| it.exists()), [true, false, true, true]);

        // What was handed over stays until the second owner is gone too.
        let guard = Owner::of(&owned).unwrap();
        drop(maker);
        sweep(temporary.path());
        assert!(owned.exists());
        drop(guard);
        sweep(temporary.path());
        assert!(!owned.exists());
        assert!(Owner::of(&new).is_none());
    }
}
