//! A file that is still coming: it has another name until all of it is here and has the right hash.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::error::HubError;
use super::listing::RemoteFile;

/// What is here of a file so far.
pub(super) struct Part<'a> {
    remote: &'a RemoteFile,
    target: &'a Path,
    path: PathBuf,
    file: File,
    byte_len: u64,
}

impl<'a> Part<'a> {
    /// Opens what an earlier download left beside the target, or starts with nothing.
    pub(super) fn open(remote: &'a RemoteFile, target: &'a Path) -> Result<Part<'a>, HubError> {
        let path = part_path(remote, target);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(HubError::file(folder))?;
        }
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(HubError::file(&path))?;
        let byte_len = file.metadata().map_err(HubError::file(&path))?.len();
        let mut part = Part { remote, target, path, file, byte_len };
        if byte_len > remote.size {
            part.restart()?;
        }
        Ok(part)
    }

    pub(super) fn byte_len(&self) -> u64 {
        self.byte_len
    }

    pub(super) fn is_whole(&self) -> bool {
        self.byte_len == self.remote.size
    }

    /// Throws away what is here.
    pub(super) fn restart(&mut self) -> Result<(), HubError> {
        if self.byte_len > 0 {
            self.file.set_len(0).map_err(HubError::file(&self.path))?;
            self.byte_len = 0;
        }
        Ok(())
    }

    /// Appends bytes. More of them than were listed are an error before they are on the disk.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), HubError> {
        let byte_len = self.byte_len + bytes.len() as u64;
        if byte_len > self.remote.size {
            let expected = format!("{} bytes", self.remote.size);
            return self.reject(expected, format!("at least {byte_len}"));
        }
        self.file.write_all(bytes).map_err(|error| self.no_room(error))?;
        self.byte_len = byte_len;
        Ok(())
    }

    /// Checks the bytes and puts the file in place.
    pub(super) fn finish(self) -> Result<(), HubError> {
        self.file.sync_all().map_err(|error| self.no_room(error))?;
        let expected = self.remote.content;
        let found = expected.of_file(&self.path).map_err(HubError::file(&self.path))?;
        if found != expected {
            return self.reject(expected.to_string(), found.to_string());
        }
        fs::rename(&self.path, self.target).map_err(HubError::file(self.target))
    }

    fn reject<T>(&self, expected: String, found: String) -> Result<T, HubError> {
        fs::remove_file(&self.path).map_err(HubError::file(&self.path))?;
        Err(HubError::WrongContent { file: self.remote.path.clone(), expected, found })
    }

    fn no_room(&self, error: io::Error) -> HubError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => HubError::DiskFull {
                path: self.target.to_owned(),
                byte_len: self.remote.size.saturating_sub(self.byte_len),
            },
            _ => HubError::file(&self.path)(error),
        }
    }
}

/// Beside the target, named by what it will be: a part of another version is never continued.
fn part_path(remote: &RemoteFile, target: &Path) -> PathBuf {
    let mut path = OsString::from(target);
    path.push(format!(".{}.part", remote.content.short()));
    path.into()
}
