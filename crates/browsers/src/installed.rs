//! A browser program on this machine, and the kinds that Holdfast knows.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::BrowserError;

/// A browser that can be launched here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Which browser it is.
    pub kind: Kind,
    /// Its executable.
    pub program: PathBuf,
    /// Its version as it tells it, such as `147.0.7727.0`.
    pub version: String,
    /// Where the shared libraries lie that it brings along.
    pub libraries: Option<PathBuf>,
}

impl fmt::Display for Installed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.version)
    }
}

/// Which browser a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Google Chrome.
    Chrome,
    /// Chromium as a distribution or a person installed it.
    Chromium,
    /// The Chromium that comes with Holdfast from npm; it has no window.
    Packaged,
}

impl Kind {
    /// All kinds, in the order in which they are preferred.
    pub const ALL: [Kind; 3] = [Kind::Chrome, Kind::Chromium, Kind::Packaged];

    /// The name that a user types.
    pub fn id(self) -> &'static str {
        match self {
            Kind::Chrome => "chrome",
            Kind::Chromium => "chromium",
            Kind::Packaged => "packaged",
        }
    }

    /// Whether it can show a window.
    pub fn has_window(self) -> bool {
        self != Kind::Packaged
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Chrome => "Google Chrome",
            Kind::Chromium => "Chromium",
            Kind::Packaged => "Chromium (packaged)",
        })
    }
}

impl FromStr for Kind {
    type Err = BrowserError;

    fn from_str(text: &str) -> Result<Kind, BrowserError> {
        let kind = Kind::ALL.into_iter().find(|kind| kind.id() == text);
        kind.ok_or_else(|| BrowserError::UnknownKind { name: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_read_from_the_name_it_prints_as_id() {
        for kind in Kind::ALL {
            assert_eq!(kind.id().parse::<Kind>().unwrap(), kind);
        }
    }

    #[test]
    fn an_unknown_kind_is_told_with_the_known_ones() {
        let error = "lynx".parse::<Kind>().unwrap_err().to_string();
        assert!(error.contains("lynx") && error.contains("chrome, chromium, packaged"), "{error}");
    }
}
