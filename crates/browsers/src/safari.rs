//! Safari: found, so that it is listed; not launched, see [`Kind::can_be_launched`].

use std::path::{Path, PathBuf};

use crate::error::BrowserError;
use crate::installed::{Installed, Kind};

const PROGRAM: &str = "/Applications/Safari.app/Contents/MacOS/Safari";

/// Safari, if this machine has it. It tells no version on the command line; the system knows it.
pub(crate) fn find() -> Option<Result<Installed, BrowserError>> {
    let program = PathBuf::from(PROGRAM);
    if std::env::consts::OS != "macos" || !program.is_file() {
        return None;
    }
    Some(version().map(|version| Installed {
        kind: Kind::Safari,
        program,
        version,
        libraries: None,
    }))
}

fn version() -> Result<String, BrowserError> {
    let asking = Path::new("/usr/bin/defaults");
    let output = std::process::Command::new(asking)
        .args(["read", "/Applications/Safari.app/Contents/Info", "CFBundleShortVersionString"])
        .output()
        .map_err(|source| BrowserError::CannotStart { program: asking.to_owned(), source })?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if said.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(said);
    }
    Err(BrowserError::NotABrowser { program: PathBuf::from(PROGRAM), said })
}
