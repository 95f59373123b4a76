//! How a browser ended, and what that means for the user.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::BrowserError;
use crate::sandbox;

/// How the browser's main process ended, with the last of what it printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// What ended it.
    pub ending: Ending,
    /// The end of its standard error; at most 8 KiB.
    pub stderr: String,
    /// Whether it was asked to end, by its owner or by a signal to its guard.
    pub asked: bool,
}

/// What ended a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It returned this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// Its guard was killed, and the browser with it.
    GuardLost,
    /// It was killed and did not go: the operating system holds it, perhaps on a dead disk.
    Stuck,
}

impl Exit {
    /// The error that this exit is to someone who needed the browser.
    pub fn into_error(self, browser: impl fmt::Display) -> BrowserError {
        let browser = browser.to_string();
        if let Some(library) = missing_library(&self.stderr) {
            return BrowserError::MissingLibrary { browser, library: library.to_owned() };
        }
        if self.stderr.contains(sandbox::COMPLAINT) {
            return BrowserError::NoSandbox { browser };
        }
        BrowserError::Exited { browser, exit: self }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ending {
            Ending::Code(code) => write!(f, "exited with code {code}")?,
            Ending::Signal(signal) => write!(f, "was ended by signal {signal}{}", name(signal))?,
            Ending::GuardLost => f.write_str("was ended because its guard process was killed")?,
            Ending::Stuck => f.write_str("could not be ended")?,
        }
        let printed = self.stderr.trim();
        if printed.is_empty() { Ok(()) } else { write!(f, "; it printed:\n{printed}") }
    }
}

/// Names the signals that end a browser in practice. Their numbers are the same on Linux and
/// macOS.
fn name(signal: i32) -> &'static str {
    match signal {
        4 => " (illegal instruction)",
        5 => " (trap: the browser gave up)",
        6 => " (abort)",
        9 => " (kill; perhaps the machine ran out of memory)",
        11 => " (segmentation fault)",
        15 => " (terminate)",
        _ => "",
    }
}

/// The library that the dynamic loader names when it does not find it.
fn missing_library(stderr: &str) -> Option<&str> {
    let (_, rest) = stderr.split_once("error while loading shared libraries: ")?;
    let (library, rest) = rest.split_once(':')?;
    rest.contains("cannot open shared object file").then_some(library)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(stderr: &str) -> Exit {
        Exit { ending: Ending::Code(127), stderr: stderr.to_owned(), asked: false }
    }

    #[test]
    fn a_missing_library_is_named() {
        let stderr = "/opt/chrome: error while loading shared libraries: libnss3.so: cannot open \
                      shared object file: No such file or directory\n";
        let error = exit(stderr).into_error("Google Chrome 147");
        let BrowserError::MissingLibrary { browser, library } = error else {
            panic!("{error}");
        };
        assert_eq!((browser.as_str(), library.as_str()), ("Google Chrome 147", "libnss3.so"));
    }

    #[test]
    fn a_sandbox_that_cannot_be_built_says_what_to_do() {
        let error = exit("[1:1] FATAL:zygote.cc] No usable sandbox! Update").into_error("Chromium");
        assert!(matches!(error, BrowserError::NoSandbox { .. }), "{error}");
    }

    #[test]
    fn any_other_exit_tells_its_code_and_what_was_printed() {
        let error = exit("Out of luck.\n").into_error("Chromium 147").to_string();
        assert_eq!(error, "Chromium 147 exited with code 127; it printed:\nOut of luck.");
    }

    #[test]
    fn a_silent_exit_does_not_pretend_that_something_was_printed() {
        assert_eq!(exit(" \n").to_string(), "exited with code 127");
    }
}
