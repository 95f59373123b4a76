//! A browser program on this machine, and the kinds that Holdfast knows.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::BrowserError;

/// A browser that is on this machine.
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
    /// Microsoft Edge.
    Edge,
    /// The Chromium that comes with Holdfast from npm; it has no window.
    Packaged,
    /// Mozilla Firefox.
    Firefox,
    /// WebKitGTK, by the small browser that comes with it.
    WebKit,
    /// Safari. It cannot be launched, only found: see [`Kind::can_be_launched`].
    Safari,
}

impl Kind {
    /// All kinds, in the order in which they are preferred: the Chromium family first, because it
    /// alone has all three backends.
    pub const ALL: [Kind; 7] = [
        Kind::Chrome,
        Kind::Chromium,
        Kind::Edge,
        Kind::Packaged,
        Kind::Firefox,
        Kind::WebKit,
        Kind::Safari,
    ];

    /// The name that a user types.
    pub fn id(self) -> &'static str {
        match self {
            Kind::Chrome => "chrome",
            Kind::Chromium => "chromium",
            Kind::Edge => "edge",
            Kind::Packaged => "packaged",
            Kind::Firefox => "firefox",
            Kind::WebKit => "webkit",
            Kind::Safari => "safari",
        }
    }

    /// Whether it can show a window.
    pub fn has_window(self) -> bool {
        self != Kind::Packaged
    }

    /// Whether Holdfast can start it. Safari takes no profile, and macOS starts it for everyone who
    /// asks as one and the same process: it could neither be kept apart from what a person does in
    /// it nor be ended. It joins when a person opens the link in it.
    pub fn can_be_launched(self) -> bool {
        self != Kind::Safari
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Chrome => "Google Chrome",
            Kind::Chromium => "Chromium",
            Kind::Edge => "Microsoft Edge",
            Kind::Packaged => "Chromium (packaged)",
            Kind::Firefox => "Firefox",
            Kind::WebKit => "WebKitGTK",
            Kind::Safari => "Safari",
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
        assert!(error.contains("lynx") && error.contains("chrome, chromium, edge"), "{error}");
    }

    #[test]
    fn kinds_are_ordered_as_they_are_preferred() {
        assert!(Kind::ALL.is_sorted());
        assert!(Kind::Packaged < Kind::Firefox && Kind::Firefox < Kind::WebKit);
    }
}
