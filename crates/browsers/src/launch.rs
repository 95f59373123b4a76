//! How to start a browser.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::browser::Browser;
use crate::chromium;
use crate::error::BrowserError;
use crate::guard::Order;
use crate::installed::{Installed, Kind};
use crate::start_page;

/// A browser to start, on what, and how. It cannot be printed, because the link has a token.
#[derive(Clone)]
pub struct Launch {
    /// The browser.
    pub browser: Installed,
    /// The http or https link that it opens. It does not show in the list of processes.
    pub link: String,
    /// Whether it runs without a window.
    pub headless: bool,
    /// Where it keeps its data.
    pub profile: Profile,
    /// What its pages can compute on, beside WebAssembly.
    pub backends: Backends,
    /// Further arguments for the program.
    pub extra_arguments: Vec<String>,
    /// How to start the process that owns the browser.
    pub guard: GuardCommand,
}

impl Launch {
    /// A browser without a window, in a private profile, with all backends.
    pub fn new(browser: Installed, link: impl Into<String>, guard: GuardCommand) -> Launch {
        Launch {
            browser,
            link: link.into(),
            headless: true,
            profile: Profile::Private,
            backends: Backends { webgpu: true, webnn: true },
            extra_arguments: Vec::new(),
            guard,
        }
    }

    /// Starts the browser. It runs when this returns; whether it gets as far as opening the link
    /// shows only by what the page does, see [`Browser::while_running`].
    pub async fn start(self) -> Result<Browser, BrowserError> {
        if cfg!(not(unix)) {
            return Err(BrowserError::Unsupported);
        }
        if !self.headless && !self.browser.kind.has_window() {
            return Err(BrowserError::HeadlessOnly { kind: self.browser.kind });
        }
        let profile = Folder::make(&self.profile)?;
        let address = start_page::write(profile.path(), &self.link)?;
        let arguments = match self.browser.kind {
            Kind::Chrome | Kind::Chromium | Kind::Packaged => {
                chromium::arguments(&self, profile.path(), &address)
            }
        };
        let remove = match &profile {
            Folder::Private(folder) => folder.path().to_owned(),
            Folder::Kept(folder) => folder.join(start_page::FILE_NAME),
        };
        let order = Order {
            program: self.browser.program.clone().into(),
            arguments,
            environment: environment(&self.browser),
            remove: remove.into(),
        };
        let browser = Browser::start(self.browser, &self.guard, profile.path(), &order).await?;
        // From here on the guard removes it.
        profile.hand_over();
        Ok(browser)
    }
}

/// Where a browser keeps its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Profile {
    /// In a new temporary folder that is removed when the browser has ended.
    Private,
    /// In this folder, which is made if it is not there, and stays.
    Keep(PathBuf),
}

/// What the pages of a browser can compute on, beside WebAssembly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backends {
    /// WebGPU, on a graphics card or in software.
    pub webgpu: bool,
    /// WebNN.
    pub webnn: bool,
}

/// The command that runs [`guard::run`](crate::guard::run).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

impl GuardCommand {
    /// This very program, with arguments that make it a guard.
    pub fn this_program<A: Into<OsString>>(
        arguments: impl IntoIterator<Item = A>,
    ) -> io::Result<GuardCommand> {
        let arguments = arguments.into_iter().map(Into::into).collect();
        Ok(GuardCommand { program: std::env::current_exe()?, arguments })
    }
}

/// A profile folder that is there.
enum Folder {
    Private(tempfile::TempDir),
    Kept(PathBuf),
}

impl Folder {
    fn make(profile: &Profile) -> Result<Folder, BrowserError> {
        match profile {
            // Made so that only its owner can look into it.
            Profile::Private => tempfile::Builder::new()
                .prefix("holdfast-browser-")
                .tempdir()
                .map(Folder::Private)
                .map_err(|source| BrowserError::Profile { folder: std::env::temp_dir(), source }),
            Profile::Keep(folder) => make_private_folder(folder)
                .map(Folder::Kept)
                .map_err(|source| BrowserError::Profile { folder: folder.clone(), source }),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Folder::Private(folder) => folder.path(),
            Folder::Kept(folder) => folder,
        }
    }

    fn hand_over(self) {
        if let Folder::Private(folder) = self {
            let _ = folder.keep();
        }
    }
}

fn make_private_folder(folder: &Path) -> io::Result<PathBuf> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    // The browser is started in another folder, and its address bar knows no relative paths.
    folder.canonicalize()
}

fn environment(browser: &Installed) -> Vec<(OsString, OsString)> {
    const NAME: &str = "LD_LIBRARY_PATH";
    let Some(libraries) = &browser.libraries else { return Vec::new() };
    let mut path = libraries.clone().into_os_string();
    if let Some(more) = std::env::var_os(NAME).filter(|more| !more.is_empty()) {
        path.push(":");
        path.push(more);
    }
    vec![(NAME.into(), path)]
}
