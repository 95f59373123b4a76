//! How to start a browser.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::browser::Browser;
use crate::display::Display;
use crate::error::BrowserError;
use crate::guard::Order;
use crate::installed::{Installed, Kind};
use crate::owner::{self, Owner};
use crate::{chromium, firefox, start_page, webkit};

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
        let kind = self.browser.kind;
        if !self.headless && !kind.has_window() {
            return Err(BrowserError::HeadlessOnly { kind });
        }
        let needs_display = kind == Kind::WebKit;
        let is_possible = if self.headless { Display::can_be_made() } else { Display::is_here() };
        if needs_display && !is_possible {
            return Err(BrowserError::NoDisplay { browser: self.browser.to_string() });
        }
        let folder = Folder::make(&self.profile)?;
        let profile = folder.path();
        let address = start_page::write(profile, &self.link)?;
        let (arguments, mut environment) = match kind {
            Kind::Chrome | Kind::Chromium | Kind::Edge | Kind::Packaged => {
                (chromium::arguments(&self, profile, &address), libraries(&self.browser))
            }
            Kind::Firefox => {
                let written = firefox::write_settings(&self, profile);
                written.map_err(|source| BrowserError::Profile {
                    folder: profile.to_owned(),
                    source,
                })?;
                (firefox::arguments(&self, profile, &address), firefox::environment())
            }
            Kind::WebKit => (webkit::arguments(&self, &address), webkit::environment()),
            Kind::Safari => return Err(BrowserError::ByHand { kind }),
        };
        if matches!(kind, Kind::Firefox | Kind::WebKit) {
            environment.extend(home(profile, self.headless)?);
        }
        let display = (needs_display && self.headless).then(|| profile.join("display").into());
        let remove = match &folder {
            Folder::Private { folder, .. } => folder.path().to_owned(),
            Folder::Kept(folder) => folder.join(start_page::FILE_NAME),
        };
        let order = Order {
            program: self.browser.program.clone().into(),
            arguments,
            environment,
            remove: remove.into(),
            display,
        };
        let browser = Browser::start(self.browser, &self.guard, profile, &order).await?;
        // From here on the guard owns it, and removes it.
        folder.hand_over();
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
    Private { folder: tempfile::TempDir, _owner: Owner },
    Kept(PathBuf),
}

impl Folder {
    fn make(profile: &Profile) -> Result<Folder, BrowserError> {
        match profile {
            // Made so that only its owner can look into it.
            Profile::Private => Folder::make_private()
                .map_err(|source| BrowserError::Profile { folder: std::env::temp_dir(), source }),
            Profile::Keep(folder) => make_private_folder(folder)
                .map(Folder::Kept)
                .map_err(|source| BrowserError::Profile { folder: folder.clone(), source }),
        }
    }

    fn make_private() -> io::Result<Folder> {
        owner::sweep(&std::env::temp_dir());
        let folder = tempfile::Builder::new().prefix(owner::PREFIX).tempdir()?;
        let owner = Owner::of_new(folder.path())?;
        Ok(Folder::Private { folder, _owner: owner })
    }

    fn path(&self) -> &Path {
        match self {
            Folder::Private { folder, .. } => folder.path(),
            Folder::Kept(folder) => folder,
        }
    }

    fn hand_over(self) {
        if let Folder::Private { folder, .. } = self {
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

/// Where the libraries lie that a browser brings along.
fn libraries(browser: &Installed) -> Vec<(OsString, OsString)> {
    const NAME: &str = "LD_LIBRARY_PATH";
    let Some(libraries) = &browser.libraries else { return Vec::new() };
    let mut path = libraries.clone().into_os_string();
    if let Some(more) = std::env::var_os(NAME).filter(|more| !more.is_empty()) {
        path.push(":");
        path.push(more);
    }
    vec![(NAME.into(), path)]
}

/// The folders of a person, inside the profile: beside the profile that it is given, or where it
/// takes none, a browser also writes into these. The home itself stays where a window is wanted,
/// because the desktop keeps the key to its display there.
fn home(profile: &Path, headless: bool) -> Result<Vec<(OsString, OsString)>, BrowserError> {
    if cfg!(not(target_os = "linux")) {
        return Ok(Vec::new());
    }
    const FOLDERS: [(&str, &str); 5] = [
        ("HOME", "home"),
        ("XDG_CACHE_HOME", "home/cache"),
        ("XDG_CONFIG_HOME", "home/config"),
        ("XDG_DATA_HOME", "home/data"),
        ("XDG_STATE_HOME", "home/state"),
    ];
    let mut variables = Vec::new();
    for (name, folder) in FOLDERS {
        let folder = profile.join(folder);
        std::fs::create_dir_all(&folder)
            .map_err(|source| BrowserError::Profile { folder: folder.clone(), source })?;
        if headless || name != "HOME" {
            variables.push((name.into(), folder.into()));
        }
    }
    Ok(variables)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A launch of a program that is not there.
    pub(crate) fn a_launch(kind: Kind) -> Launch {
        let browser = Installed {
            kind,
            program: PathBuf::from("/bin/browser"),
            version: "147".to_owned(),
            libraries: None,
        };
        let guard = GuardCommand { program: PathBuf::from("/bin/guard"), arguments: vec![] };
        Launch::new(browser, "http://127.0.0.1:1/join", guard)
    }

    #[tokio::test]
    async fn safari_has_to_be_opened_by_hand_and_that_is_said() {
        let error = a_launch(Kind::Safari).start().await.unwrap_err();
        assert!(matches!(error, BrowserError::ByHand { kind: Kind::Safari }), "{error}");
        assert!(error.to_string().contains("holdfast serve"), "{error}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_person_s_folders_are_inside_the_profile() {
        let profile = tempfile::tempdir().unwrap();
        for (name, folder) in home(profile.path(), true).unwrap() {
            let folder = PathBuf::from(folder);
            assert!(folder.starts_with(profile.path()) && folder.is_dir(), "{name:?}");
        }
        let with_window = home(profile.path(), false).unwrap();
        assert!(!with_window.iter().any(|(name, _)| name == "HOME"));
        assert!(with_window.iter().any(|(name, _)| name == "XDG_DATA_HOME"));
    }
}
