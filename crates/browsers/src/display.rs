//! A display that nobody sees, for browsers that cannot do without: Xvfb, which keeps its screen in
//! memory.
//!
//! It is locked with a key that only its owner can read, like the desktop's own: who can reach a
//! display can look at it and type into it.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::error::BrowserError;

const PROGRAM: &str = "Xvfb";

/// A running display. Dropping it ends it.
pub(crate) struct Display {
    process: Child,
    number: String,
    key: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

impl Display {
    /// Whether this process can show windows: on a desktop.
    pub(crate) fn is_here() -> bool {
        ["DISPLAY", "WAYLAND_DISPLAY"]
            .iter()
            .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
    }

    /// Whether [`Display::start`] finds what it needs.
    pub(crate) fn can_be_made() -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(PROGRAM).is_file())
    }

    /// Starts a display, and writes the key to it into a new file. On Linux it ends with the thread
    /// that calls this.
    pub(crate) fn start(key: &Path) -> io::Result<Display> {
        write_key(key)?;
        let mut command = Command::new(PROGRAM);
        command
            // It picks a number that is free, and prints it when it is ready.
            .args(["-displayfd", "1", "-nolisten", "tcp", "-screen", "0", "640x480x24", "-auth"])
            .arg(key)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        #[cfg(unix)]
        {
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
            // Asked and not killed, because it has a file in /tmp to remove.
            crate::orphan::die_with_this_thread(&mut command, rustix::process::Signal::TERM);
        }
        let process = command.spawn()?;
        let (number, key) = (String::new(), key.to_owned());
        let mut display = Display { process, number, key, _folder: None };
        display.number = display.wait_until_ready()?;
        Ok(display)
    }

    /// A display with a key in a folder of its own.
    pub(crate) fn start_private() -> Result<Display, BrowserError> {
        let browser = || "WebKitGTK".to_owned();
        if !Display::can_be_made() {
            return Err(BrowserError::NoDisplay { browser: browser() });
        }
        let started =
            tempfile::Builder::new().prefix("holdfast-display-").tempdir().and_then(|f| {
                let mut display = Display::start(&f.path().join("key"))?;
                display._folder = Some(f);
                Ok(display)
            });
        started.map_err(|source| BrowserError::Display { browser: browser(), source })
    }

    /// Its process.
    #[cfg_attr(not(unix), expect(dead_code, reason = "there is no guard"))]
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What a program has to be told to use it.
    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        vec![
            ("DISPLAY".into(), format!(":{}", self.number).into()),
            ("XAUTHORITY".into(), self.key.clone().into()),
            // A desktop that this machine may have beside it is not to be used.
            ("GDK_BACKEND".into(), "x11".into()),
            ("WAYLAND_DISPLAY".into(), OsString::new()),
        ]
    }

    /// It closes its output after the number, or when it fails.
    fn wait_until_ready(&mut self) -> io::Result<String> {
        let mut said = String::new();
        if let Some(mut pipe) = self.process.stdout.take() {
            let mut byte = [0];
            while pipe.read(&mut byte)? == 1 && byte != *b"\n" {
                said.push(char::from(byte[0]));
            }
        }
        let printed = self.process.stderr.take();
        if !said.is_empty() && said.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(said);
        }
        let mut text = String::new();
        if let Some(mut printed) = printed {
            let _ = self.process.kill();
            printed.read_to_string(&mut text)?;
        }
        Err(io::Error::other(format!("{PROGRAM} gave no display: {}", text.trim())))
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        #[cfg(not(unix))]
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Writes a new key in the format of the X Window System: for which display (any, on any machine),
/// which kind of key, and its bytes. Numbers are big-endian, and every field has its length before.
fn write_key(path: &Path) -> io::Result<()> {
    const ANY: u16 = 0xffff;
    const KIND: &[u8] = b"MIT-MAGIC-COOKIE-1";
    let mut secret = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut secret)?;
    let mut entry = ANY.to_be_bytes().to_vec();
    for field in [&b""[..], b"", KIND, &secret] {
        let byte_len = u16::try_from(field.len()).map_err(io::Error::other)?;
        entry.extend_from_slice(&byte_len.to_be_bytes());
        entry.extend_from_slice(field);
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(&entry)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_new_each_time_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        write_key(&path).unwrap();
        let first = std::fs::read(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(&first[..8], [0xff, 0xff, 0, 0, 0, 0, 0, 18]);
        assert_eq!(first.len(), 2 + 4 * 2 + 18 + 16);
        write_key(&path).unwrap();
        assert_ne!(std::fs::read(&path).unwrap(), first);
    }
}
