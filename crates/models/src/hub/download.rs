//! Brings the wanted files of a listing into a folder.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ureq::http::{HeaderMap, StatusCode, header};

use super::Hub;
use super::address::encode_path;
use super::error::HubError;
use super::listing::{Listing, RemoteFile};
use super::part::Part;
use super::retry::Failures;
use super::transport::cut;

/// Held while files are written into a folder. The system lets go of it when the process ends.
pub(super) const LOCK: &str = ".holdfast.lock";

/// How far a download is. It goes back where a server cannot continue what was begun.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The file that is coming.
    pub file: &'a RemoteFile,
    /// How many bytes of it are here.
    pub file_done: u64,
    /// How many bytes of all wanted files are here.
    pub done: u64,
    /// How many bytes all wanted files have.
    pub total: u64,
}

impl Hub {
    /// Downloads the wanted files of a listing into a folder, and returns where each one is.
    ///
    /// Files that are there with the right bytes are not fetched again. A download that failed
    /// leaves what came beside the file as `<file>.<hash>.part`; the next one goes on from there.
    pub fn download(
        &self,
        listing: &Listing,
        want: impl Fn(&RemoteFile) -> bool,
        folder: &Path,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Vec<PathBuf>, HubError> {
        fs::create_dir_all(folder).map_err(HubError::file(folder))?;
        let _lock = lock(folder)?;
        let wanted: Vec<&RemoteFile> = listing.files.iter().filter(|file| want(file)).collect();
        let total = wanted.iter().map(|file| file.size).sum();
        let mut before = 0;
        let mut targets = Vec::with_capacity(wanted.len());
        for file in wanted {
            let target = folder.join(&file.path);
            self.fetch(listing, file, &target, &mut |file_done| {
                progress(Progress { file, file_done, done: before + file_done, total });
            })?;
            before += file.size;
            targets.push(target);
        }
        Ok(targets)
    }

    /// Brings one file, however often the connection breaks.
    fn fetch(
        &self,
        listing: &Listing,
        file: &RemoteFile,
        target: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), HubError> {
        if is_there(file, target)? {
            progress(file.size);
            return Ok(());
        }
        let mut part = Part::open(file, target)?;
        progress(part.byte_len());
        let mut furthest = part.byte_len();
        let mut version = None;
        let mut failures = Failures::none(&self.retry);
        while !part.is_whole() {
            let Err(error) = self.fetch_rest(listing, file, &mut part, &mut version, progress)
            else {
                break;
            };
            // Once a file is coming, a hub that cannot be reached is a network that comes and goes.
            if !error.may_pass() && !matches!(error, HubError::Unreachable { .. }) {
                return Err(error);
            }
            // Only bytes that were never here before are progress: a server that cannot continue
            // and always breaks at the same place must not be asked for ever.
            if part.byte_len() > furthest {
                furthest = part.byte_len();
                failures.forget();
            }
            failures.bear(error)?;
        }
        part.finish()
    }

    /// Asks once for what is missing of a file. `version` is the server's tag for the bytes that
    /// came before.
    fn fetch_rest(
        &self,
        listing: &Listing,
        file: &RemoteFile,
        part: &mut Part<'_>,
        version: &mut Option<String>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), HubError> {
        let path = encode_path(&file.path);
        let Listing { repository, commit, .. } = listing;
        let address = self.address(&format!("/{repository}/resolve/{commit}/{path}"))?;
        let what = format!("{} of {repository}", file.path);

        let mut headers = Vec::new();
        let mut accepted = vec![StatusCode::OK];
        if part.byte_len() > 0 {
            headers.push((header::RANGE, format!("bytes={}-", part.byte_len())));
            headers.extend(version.clone().map(|version| (header::IF_RANGE, version)));
            accepted.extend([StatusCode::PARTIAL_CONTENT, StatusCode::RANGE_NOT_SATISFIABLE]);
        }
        let answer = self.transport.get(&what, &address, &headers, &accepted)?;
        let new_version = strong_tag(answer.response.headers());
        match answer.response.status() {
            StatusCode::PARTIAL_CONTENT
                if range_start(answer.response.headers()) == Some(part.byte_len())
                    && (version.is_none() || *version == new_version) => {}
            StatusCode::OK => part.restart()?,
            // What is here does not fit what the server has: ask for all of it next time.
            _ => {
                part.restart()?;
                *version = None;
                let reason = io::Error::other("the server cannot continue what it began");
                return Err(cut(&what, &answer.address, 0, reason));
            }
        }
        *version = new_version;

        let mut reader = answer.response.into_body().into_reader();
        let mut chunk = vec![0; 1 << 17];
        loop {
            match reader.read(&mut chunk) {
                Ok(0) if part.is_whole() => return Ok(()),
                Ok(0) => {
                    let reason = io::ErrorKind::UnexpectedEof.into();
                    return Err(cut(&what, &answer.address, part.byte_len(), reason));
                }
                Ok(byte_len) => {
                    part.append(&chunk[..byte_len])?;
                    progress(part.byte_len());
                }
                Err(source) => return Err(cut(&what, &answer.address, part.byte_len(), source)),
            }
        }
    }
}

fn lock(folder: &Path) -> Result<File, HubError> {
    let path = folder.join(LOCK);
    let file = File::create(&path).map_err(HubError::file(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(HubError::Busy { folder: folder.to_owned() }),
        Err(fs::TryLockError::Error(error)) => Err(HubError::file(&path)(error)),
    }
}

/// Whether the target is this very file already.
fn is_there(file: &RemoteFile, target: &Path) -> Result<bool, HubError> {
    match fs::metadata(target) {
        Ok(metadata) if metadata.is_file() && metadata.len() == file.size => {
            let found = file.content.of_file(target).map_err(HubError::file(target))?;
            Ok(found == file.content)
        }
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(HubError::file(target)(error)),
    }
}

/// The tag by which a server knows the bytes of an answer, if it stands for exactly these bytes.
fn strong_tag(headers: &HeaderMap) -> Option<String> {
    let tag = headers.get(header::ETAG)?.to_str().ok()?;
    (!tag.starts_with("W/")).then(|| tag.to_owned())
}

/// Where the bytes of a partial answer begin: `Content-Range: bytes 10-99/100`.
fn range_start(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split('-').next()?.trim().parse().ok()
}
