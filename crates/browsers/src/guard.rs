//! The guard: a small process that owns one browser.
//!
//! Holdfast starts it with a pipe to its standard input and sends an order: the program, its
//! arguments, what to remove at the end. The guard starts the browser and tells on its standard
//! output what becomes of it, one JSON object a line. The pipe is the leash: when it closes,
//! because Holdfast lets go or because Holdfast is dead, however it died, the guard ends the
//! browser with all its processes, removes what it was told to remove, and exits.
//!
//! The guard runs in a process group of its own, so that Ctrl-C in a terminal reaches Holdfast
//! and not the guard: Holdfast decides when its browsers end.

#[cfg(unix)]
mod keeper;
mod messages;
#[cfg(unix)]
mod tail;

use std::io;
use std::path::Path;
use std::process::ExitCode;

pub(crate) use messages::{Order, Report};

/// Does a guard's work; returns when the browser is gone. To be called from `main`, early and
/// with no other thread running.
pub fn run() -> ExitCode {
    match keep() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("holdfast guard: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(unix)]
fn keep() -> io::Result<()> {
    keeper::keep(&messages::read_order()?)
}

#[cfg(not(unix))]
fn keep() -> io::Result<()> {
    Err(io::Error::other(crate::error::BrowserError::Unsupported))
}

/// Removes a folder or a file; that it is gone already is fine. Says what is left otherwise.
pub(crate) fn remove(path: &Path) -> Option<String> {
    let removed =
        if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Some(format!("{} cannot be removed: {error}", path.display()))
        }
        _ => None,
    }
}
