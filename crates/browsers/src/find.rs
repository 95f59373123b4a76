//! Finding the browsers of this machine.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::display::Display;
use crate::error::BrowserError;
use crate::installed::{Installed, Kind};
use crate::packaged::packaged;
use crate::{chromium, firefox, safari, webkit};

/// What a search found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The browsers that are there, the preferred one first.
    pub browsers: Vec<Installed>,
    /// What was there but does not work, and why.
    pub notes: Vec<String>,
}

impl Found {
    /// The preferred browser of a kind, or of any kind that can be launched. The packaged one is a
    /// Chromium, too, where no other is.
    pub fn pick(&self, kind: Option<Kind>) -> Result<&Installed, BrowserError> {
        let first = |fits: &dyn Fn(Kind) -> bool| self.browsers.iter().find(|each| fits(each.kind));
        let found = match kind {
            Some(Kind::Chromium) => first(&|found| found == Kind::Chromium)
                .or_else(|| first(&|found| found == Kind::Packaged)),
            Some(kind) => first(&|found| found == kind),
            None => first(&Kind::can_be_launched),
        };
        found.ok_or_else(|| BrowserError::NotFound {
            wanted: kind.map_or("browser".to_owned(), |kind| kind.to_string()),
            notes: self.notes.iter().map(|note| format!("\n  {note}")).collect(),
        })
    }
}

/// Looks for browsers in `PATH` and in the usual places, and for the packaged one, which it
/// unpacks into `cache` when it sees it first. `progress` hears about what takes seconds.
pub fn find(cache: &Path, progress: &dyn Fn(&str)) -> Found {
    let mut found = Found::default();
    let mut seen = HashSet::new();
    let path = search_path();
    let candidates = [chromium::candidates, firefox::candidates, webkit::candidates];
    for (kind, program) in candidates.into_iter().flat_map(|candidates| candidates(&path)) {
        // One program often goes by several names.
        let real = program.canonicalize().unwrap_or(program.clone());
        if !program.is_file() || !seen.insert(real) {
            continue;
        }
        match version_of(&program) {
            Ok((_, version)) => {
                found.note(Ok(Installed { kind, program, version, libraries: None }));
            }
            Err(error) => found.note(Err(error)),
        }
    }
    found.note(packaged(cache, progress));
    if let Some(safari) = safari::find() {
        found.note(safari);
    }
    found.browsers.sort_by_key(|browser| browser.kind);
    found
}

impl Found {
    fn note(&mut self, found: Result<Installed, BrowserError>) {
        match found {
            // A script in the path and the program that it starts are one browser.
            Ok(browser) => {
                let is_same =
                    |one: &Installed| (one.kind, &one.version) == (browser.kind, &browser.version);
                if !self.browsers.iter().any(is_same) {
                    self.browsers.push(browser);
                }
            }
            Err(error) => self.notes.push(with_sources(&error)),
        }
    }
}

/// The browser at a path that the user named.
pub fn at(program: &Path) -> Result<Installed, BrowserError> {
    let (kind, version) = version_of(program)?;
    Ok(Installed { kind, program: program.to_owned(), version, libraries: None })
}

fn version_of(program: &Path) -> Result<(Kind, String), BrowserError> {
    // MiniBrowser says nothing at all where it finds no display.
    let needs_display = program.file_name().is_some_and(|name| name == webkit::PROGRAM);
    let display = match needs_display && !Display::is_here() {
        true => Some(Display::start_private()?),
        false => None,
    };
    let environment = display.as_ref().map(Display::environment).unwrap_or_default();
    let said = ask_version(program, &environment)?;
    let read = [chromium::read_version, firefox::read_version, webkit::read_version];
    read.into_iter().find_map(|read| read(&said)).ok_or_else(|| BrowserError::NotABrowser {
        program: program.to_owned(),
        said: said.chars().take(200).collect(),
    })
}

/// What a program prints when asked for its version.
#[cfg(not(windows))]
pub(crate) fn ask_version(
    program: &Path,
    environment: &[(OsString, OsString)],
) -> Result<String, BrowserError> {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};
    const LIMIT: Duration = Duration::from_secs(20);
    const PAUSE: Duration = Duration::from_millis(5);
    let is_busy = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ExecutableFileBusy;
    let failed = |source| BrowserError::CannotStart { program: program.to_owned(), source };
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    let deadline = Instant::now() + LIMIT;
    let mut child = loop {
        match command.spawn() {
            // A program that was just unpacked is busy for a moment if another thread happens to
            // start a process: its copy of the open file closes when that process begins.
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                std::thread::sleep(PAUSE);
            }
            started => break started.map_err(failed)?,
        }
    };
    // A version is a line, which fits into a pipe: the program can exit before it is read.
    while child.try_wait().map_err(failed)?.is_none() {
        if Instant::now() > deadline {
            child.kill().and_then(|()| child.wait()).map_err(failed)?;
            let message = format!("it did not tell its version within {} s", LIMIT.as_secs());
            return Err(failed(std::io::Error::other(message)));
        }
        std::thread::sleep(PAUSE);
    }
    let output = child.wait_with_output().map_err(failed)?;
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}

/// On Windows a browser that is asked for its version opens a window instead. The version of those
/// built on Chromium is the name of the folder beside the program; Firefox has it in a file.
#[cfg(windows)]
pub(crate) fn ask_version(
    program: &Path,
    _environment: &[(OsString, OsString)],
) -> Result<String, BrowserError> {
    let failed = |source| BrowserError::CannotStart { program: program.to_owned(), source };
    let folder = program.parent().unwrap_or(Path::new("."));
    if let Ok(about) = std::fs::read_to_string(folder.join("application.ini")) {
        let version = about.lines().find_map(|line| line.strip_prefix("Version="));
        return Ok(format!("Mozilla Firefox {}", version.unwrap_or_default().trim()));
    }
    let mut names = std::fs::read_dir(folder)
        .map_err(failed)?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    let version =
        names.find(|name| name.split('.').count() == 4 && name.starts_with(char::is_numeric));
    let is_under = |name: &str| folder.components().any(|part| part.as_os_str() == name);
    let name = match (is_under("Google"), is_under("Microsoft")) {
        (true, _) => "Google Chrome",
        (false, true) => "Microsoft Edge",
        (false, false) => "Chromium",
    };
    Ok(format!("{name} {}", version.unwrap_or_default()))
}

fn search_path() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Some messages already end with their cause.
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    fn program(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
    }

    #[test]
    fn a_named_program_is_known_by_what_it_says() {
        let browser = at(&program("says-chrome.sh")).unwrap();
        assert_eq!((browser.kind, browser.version.as_str()), (Kind::Chrome, "147.0.7727.0"));
    }

    #[test]
    fn a_program_that_is_no_browser_is_refused() {
        let error = at(&program("says-something-else.sh")).unwrap_err();
        assert!(matches!(error, BrowserError::NotABrowser { .. }), "{error}");
    }

    #[test]
    fn a_program_that_is_not_there_is_told_by_its_path() {
        let error = at(Path::new("/nowhere/chromium")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/chromium"), "{error}");
    }

    #[test]
    fn nothing_found_says_what_to_do_and_what_was_seen() {
        let found = Found { browsers: vec![], notes: vec!["a broken one".to_owned()] };
        let error = found.pick(None).unwrap_err().to_string();
        assert!(error.contains("cargo xtask setup") && error.contains("a broken one"), "{error}");
    }

    #[test]
    fn picks_the_wanted_kind_and_no_other() {
        let browser = |kind| Installed {
            kind,
            program: PathBuf::from("/bin/x"),
            version: "1".to_owned(),
            libraries: None,
        };
        let found = Found { browsers: vec![browser(Kind::Chrome)], notes: vec![] };
        assert_eq!(found.pick(None).unwrap().kind, Kind::Chrome);
        assert_eq!(found.pick(Some(Kind::Chrome)).unwrap().kind, Kind::Chrome);
        assert!(found.pick(Some(Kind::Packaged)).is_err());
        // One that cannot be launched is taken only when it is asked for.
        let found = Found { browsers: vec![browser(Kind::Safari)], notes: vec![] };
        assert_eq!(found.pick(Some(Kind::Safari)).unwrap().kind, Kind::Safari);
        assert!(found.pick(None).is_err());
    }

    #[test]
    fn the_packaged_one_stands_in_for_chromium_and_for_nothing_else() {
        let browser = |kind| Installed {
            kind,
            program: PathBuf::from("/bin/x"),
            version: "1".to_owned(),
            libraries: None,
        };
        let found = |kinds: &[Kind]| Found {
            browsers: kinds.iter().copied().map(browser).collect(),
            notes: vec![],
        };
        let packaged = found(&[Kind::Chrome, Kind::Packaged]);
        let picked = packaged.pick(Some(Kind::Chromium)).unwrap();
        assert_eq!(picked.to_string(), "Chromium (packaged) 1", "it says which one it is");
        assert!(packaged.pick(Some(Kind::Edge)).is_err());
        let both = found(&[Kind::Chromium, Kind::Packaged]);
        assert_eq!(both.pick(Some(Kind::Chromium)).unwrap().kind, Kind::Chromium);
        assert!(found(&[Kind::Chrome]).pick(Some(Kind::Chromium)).is_err());
    }

    #[test]
    fn one_browser_by_two_paths_is_found_once_and_two_versions_are_found_twice() {
        let browser = |program: &str, version: &str| Installed {
            kind: Kind::Firefox,
            program: PathBuf::from(program),
            version: version.to_owned(),
            libraries: None,
        };
        let mut found = Found::default();
        found.note(Ok(browser("/usr/bin/firefox", "153.7.0esr")));
        found.note(Ok(browser("/usr/bin/firefox-esr", "153.7.0esr")));
        found.note(Ok(browser("/opt/firefox/firefox", "155.0")));
        let programs: Vec<&Path> = found.browsers.iter().map(|b| b.program.as_path()).collect();
        assert_eq!(programs, [Path::new("/usr/bin/firefox"), Path::new("/opt/firefox/firefox")]);
    }
}
