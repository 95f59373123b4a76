//! The Chromium that comes from npm: found in its package, unpacked once into a cache.
//!
//! The package has the browser compressed, with the shared libraries it needs beyond glibc, so it
//! runs without root and without anything installed.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use brotli_decompressor::Decompressor;
use serde::Deserialize;

use crate::error::BrowserError;
use crate::find::ask_version;
use crate::installed::{Installed, Kind};

/// The packaged Chromium, unpacked into `cache` if it is not there yet.
///
/// Any number of processes may do this at once: one unpacks, the others wait for it.
pub fn packaged(cache: &Path, progress: &dyn Fn(&str)) -> Result<Installed, BrowserError> {
    let platform = (std::env::consts::OS, std::env::consts::ARCH);
    if platform != ("linux", "x86_64") {
        let platform = format!("{} {}", platform.0, platform.1);
        return Err(BrowserError::NotPackagedHere { platform });
    }
    let package = Package::find()?;
    let folder = package.unpack(cache, progress)?;
    let (program, libraries) = (folder.join(PROGRAM), folder.join("lib"));
    let environment = [("LD_LIBRARY_PATH".into(), libraries.clone().into())];
    let said = ask_version(&program, &environment)?;
    let (_, version) = crate::chromium::read_version(&said)
        .ok_or_else(|| BrowserError::NotABrowser { program: program.clone(), said })?;
    Ok(Installed { kind: Kind::Packaged, program, version, libraries: Some(libraries) })
}

const PROGRAM: &str = "chromium";
const PROGRAM_ARCHIVE: &str = "bin/chromium.br";
/// Libraries of the operating system, which go into `lib`, and the graphics libraries, which the
/// browser looks for beside itself. The package's fonts are not needed: it runs without any.
const LIBRARY_ARCHIVES: [&str; 2] = ["bin/al2023.tar.br", "bin/swiftshader.tar.br"];
/// What the folder of an unpacking that is under way starts with.
const UNFINISHED: &str = ".unpacking-";

/// The npm package as it lies on the disk.
struct Package {
    folder: PathBuf,
    version: String,
}

impl Package {
    fn find() -> Result<Package, BrowserError> {
        let folders = folders();
        let package = folders.iter().find_map(|folder| Package::read(folder));
        package.ok_or_else(|| BrowserError::NotFound {
            wanted: Kind::Packaged.to_string(),
            notes: folders.iter().map(|each| format!("\n  not in {}", each.display())).collect(),
        })
    }

    fn read(folder: &Path) -> Option<Package> {
        #[derive(Deserialize)]
        struct Manifest {
            version: String,
        }
        let manifest = std::fs::read(folder.join("package.json")).ok()?;
        let Manifest { version } = serde_json::from_slice(&manifest).ok()?;
        let is_plain = version.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-+".contains(&b));
        let is_there = folder.join(PROGRAM_ARCHIVE).is_file();
        (is_plain && is_there).then(|| Package { folder: folder.to_owned(), version })
    }

    /// The folder with the unpacked browser. It is complete if it exists at all: an unpacking
    /// happens beside it and is renamed when everything is on the disk.
    fn unpack(&self, cache: &Path, progress: &dyn Fn(&str)) -> Result<PathBuf, BrowserError> {
        let target = cache.join(format!("chromium-{}", self.version));
        if target.is_dir() {
            return Ok(target);
        }
        let unpacked = self.unpack_locked(cache, &target, progress);
        unpacked.map_err(|source| BrowserError::Unpack { folder: cache.to_owned(), source })?;
        Ok(target)
    }

    fn unpack_locked(
        &self,
        cache: &Path,
        target: &Path,
        progress: &dyn Fn(&str),
    ) -> io::Result<()> {
        std::fs::create_dir_all(cache)?;
        // The operating system frees the lock when its holder dies, so what lies around
        // unfinished while it is held belongs to nobody.
        let lock = File::create(cache.join(".unpack.lock"))?;
        lock.lock()?;
        if target.is_dir() {
            return Ok(());
        }
        remove_unfinished(cache)?;
        let unfinished = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(cache)?;
        self.unpack_into(unfinished.path(), progress)?;
        // The temporary folder was private; the browser may be started by others, too.
        set_mode(unfinished.path(), 0o755)?;
        std::fs::rename(unfinished.path(), target)?;
        let _ = unfinished.keep();
        File::open(cache)?.sync_all()
    }

    fn unpack_into(&self, folder: &Path, progress: &dyn Fn(&str)) -> io::Result<()> {
        for archive in LIBRARY_ARCHIVES {
            let packed = File::open(self.folder.join(archive))?;
            let mut tar = tar::Archive::new(Decompressor::new(packed, BUFFER_BYTES));
            tar.set_preserve_ownerships(false);
            tar.unpack(folder)?;
        }
        let packed = File::open(self.folder.join(PROGRAM_ARCHIVE))?;
        let packed = Tenths::new(packed, |tenths| {
            let version = &self.version;
            progress(&format!("unpacking Chromium {version} (only once): {} %", tenths * 10));
        })?;
        let path = folder.join(PROGRAM);
        let mut program = File::create_new(&path)?;
        io::copy(&mut Decompressor::new(packed, BUFFER_BYTES), &mut program)?;
        set_mode(&path, 0o755)?;
        sync(folder)
    }
}

const BUFFER_BYTES: usize = 64 << 10;

/// Where the package may be, as with ONNX Runtime: beside this program, in `lib` next to its
/// folder, and in the source tree that this program was built from.
fn folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(program) = std::env::current_exe().ok().and_then(|path| path.canonicalize().ok())
        && let Some(folder) = program.parent()
    {
        folders.push(folder.join("chromium"));
        folders.extend(folder.parent().map(|above| above.join("lib/chromium")));
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let workspace = workspace.canonicalize().unwrap_or(workspace);
    folders.push(workspace.join("third-party/node_modules/@sparticuz/chromium"));
    folders
}

fn remove_unfinished(cache: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(cache)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Waits until everything in a folder is on the disk, so that a power cut after the rename does
/// not leave a browser with holes.
fn sync(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { sync(&path)? } else { File::open(&path)?.sync_all()? }
    }
    File::open(folder)?.sync_all()
}

#[cfg(unix)]
fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn set_mode(_path: &Path, _mode: u32) -> io::Result<()> {
    Ok(())
}

/// Tells how many tenths of a file were read.
struct Tenths<F: Fn(u64)> {
    file: File,
    byte_len: u64,
    read: u64,
    told: Cell<Option<u64>>,
    tell: F,
}

impl<F: Fn(u64)> Tenths<F> {
    fn new(file: File, tell: F) -> io::Result<Tenths<F>> {
        let byte_len = file.metadata()?.len().max(1);
        Ok(Tenths { file, byte_len, read: 0, told: Cell::new(None), tell })
    }
}

impl<F: Fn(u64)> Read for Tenths<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.read += count as u64;
        let tenths = self.read * 10 / self.byte_len;
        if self.told.replace(Some(tenths)) != Some(tenths) {
            (self.tell)(tenths);
        }
        Ok(count)
    }
}

#[cfg(test)]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// A package in miniature: "hello" compressed, archives with nothing in them.
    fn package(version: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("bin")).unwrap();
        let manifest = format!(r#"{{"name":"chromium","version":"{version}"}}"#);
        std::fs::write(folder.path().join("package.json"), manifest).unwrap();
        // A stream of one uncompressed block (RFC 7932, 9.2), as small as the format has it.
        let hello = b"\x0b\x02\x80hello\x03";
        std::fs::write(folder.path().join(PROGRAM_ARCHIVE), hello).unwrap();
        for archive in LIBRARY_ARCHIVES {
            std::fs::write(folder.path().join(archive), b"\x06").unwrap();
        }
        folder
    }

    fn unpack(package: &Path, cache: &Path) -> Result<PathBuf, BrowserError> {
        Package::read(package).unwrap().unpack(cache, &|_| {})
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn unpacks_once_and_then_finds_it() {
        let (package, cache) = (package("1.2.3"), tempfile::tempdir().unwrap());
        let folder = unpack(package.path(), cache.path()).unwrap();
        assert_eq!(folder, cache.path().join("chromium-1.2.3"));
        assert_eq!(std::fs::read(folder.join(PROGRAM)).unwrap(), b"hello");
        std::fs::remove_file(package.path().join(PROGRAM_ARCHIVE)).unwrap();
        let again = Package { folder: package.path().to_owned(), version: "1.2.3".to_owned() };
        assert_eq!(again.unpack(cache.path(), &|_| {}).unwrap(), folder);
    }

    #[test]
    fn what_an_interrupted_unpacking_left_is_removed_and_never_used() {
        let (package, cache) = (package("1.2.3"), tempfile::tempdir().unwrap());
        let left = cache.path().join(format!("{UNFINISHED}abc"));
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join(PROGRAM), b"he").unwrap();
        let folder = unpack(package.path(), cache.path()).unwrap();
        assert_eq!(std::fs::read(folder.join(PROGRAM)).unwrap(), b"hello");
        assert_eq!(names(cache.path()), [".unpack.lock", "chromium-1.2.3"]);
    }

    #[test]
    fn a_damaged_package_leaves_nothing_that_looks_unpacked() {
        let (package, cache) = (package("1.2.3"), tempfile::tempdir().unwrap());
        std::fs::write(package.path().join(PROGRAM_ARCHIVE), b"\x0b\x02\x80he").unwrap();
        let error = unpack(package.path(), cache.path()).unwrap_err();
        assert!(matches!(error, BrowserError::Unpack { .. }), "{error}");
        assert_eq!(names(cache.path()), [".unpack.lock"]);
    }

    #[test]
    fn many_at_once_all_get_the_same_complete_folder() {
        let (package, cache) = (package("1.2.3"), tempfile::tempdir().unwrap());
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| unpack(package.path(), cache.path()).unwrap()))
                .collect();
            for worker in workers {
                let folder = worker.join().unwrap();
                assert_eq!(std::fs::read(folder.join(PROGRAM)).unwrap(), b"hello");
            }
        });
        assert_eq!(names(cache.path()), [".unpack.lock", "chromium-1.2.3"]);
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_an_error_with_its_path() {
        let package = package("1.2.3");
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = unpack(package.path(), file.path()).unwrap_err().to_string();
        assert!(error.contains(&*file.path().to_string_lossy()), "{error}");
    }

    #[test]
    fn a_version_that_could_leave_the_cache_is_not_a_package() {
        assert!(Package::read(package("1.2.3").path()).is_some());
        assert!(Package::read(package("../../etc").path()).is_none());
    }
}
