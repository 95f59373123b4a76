//! WebKitGTK, through MiniBrowser, the small browser that comes with the library. Linux only: on
//! macOS, WebKit is Safari.
//!
//! It has no headless mode, so where no window is wanted it gets a display of its own that nobody
//! sees. It takes no profile either: its folders are those that the environment names.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::installed::Kind;
use crate::launch::Launch;
use crate::places;

/// The name of the program.
pub(crate) const PROGRAM: &str = "MiniBrowser";

/// Every place where MiniBrowser may lie. Distributions do not put it into `PATH`: it lies beside
/// the library, in a folder with the name of the machine on some.
pub(crate) fn candidates(search_path: &[PathBuf]) -> Vec<(Kind, PathBuf)> {
    if std::env::consts::OS != "linux" {
        return Vec::new();
    }
    let names: &[(Kind, &[&str])] = &[(Kind::WebKit, &[PROGRAM])];
    let beside = ["/usr/lib", "/usr/lib64", "/usr/libexec"].into_iter().flat_map(|folder| {
        let folder = Path::new(folder);
        let mut places = library_folders(folder);
        for machine in folders_in(folder) {
            places.extend(library_folders(&machine));
        }
        places
    });
    let beside = beside.map(|folder| (Kind::WebKit, folder.join(PROGRAM)));
    places::in_path(names, search_path).chain(beside).collect()
}

/// `webkit2gtk-4.1` and `webkitgtk-6.0`, the newest first.
fn library_folders(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = folders_in(folder)
        .into_iter()
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("webkit2gtk-4") || name.starts_with("webkitgtk-")
        })
        .collect();
    found.sort_by(|one, other| other.cmp(one));
    found
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|e| e.path())
        .collect()
}

/// Kind and version out of `WebKitGTK 2.50.6`.
pub(crate) fn read_version(said: &str) -> Option<(Kind, String)> {
    places::version_after("WebKitGTK ", said).map(|version| (Kind::WebKit, version))
}

/// The arguments that start `launch` on `address`.
pub(crate) fn arguments(launch: &Launch, address: &str) -> Vec<OsString> {
    let extra = launch.extra_arguments.iter().map(OsString::from);
    extra.chain([address.into()]).collect()
}

/// What MiniBrowser is told beside its arguments.
pub(crate) fn environment() -> Vec<(OsString, OsString)> {
    // Shared memory, which threads of WebAssembly need, is off in WebKitGTK and could be switched on
    // here. It is not: two threads were measured to compute at a twentieth of the speed of one.
    [
        // It works without the desktop's services, and must not start some of its own.
        ("DBUS_SESSION_BUS_ADDRESS", "disabled:"),
        ("GSETTINGS_BACKEND", "memory"),
        ("NO_AT_BRIDGE", "1"),
    ]
    .map(|(name, value)| (name.into(), value.into()))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::tests::a_launch;

    #[test]
    fn reads_the_version_and_nothing_of_others() {
        assert_eq!(read_version("WebKitGTK 2.50.6"), Some((Kind::WebKit, "2.50.6".to_owned())));
        assert_eq!(read_version("Mozilla Firefox 153.0"), None);
        assert_eq!(read_version("cannot open display: "), None);
    }

    #[test]
    fn the_address_comes_last() {
        let mut launch = a_launch(Kind::WebKit);
        assert_eq!(arguments(&launch, "file:///start"), ["file:///start"]);
        launch.extra_arguments = vec!["--enable-webgl=false".to_owned()];
        assert_eq!(arguments(&launch, "file:///start"), ["--enable-webgl=false", "file:///start"]);
    }

    #[test]
    fn the_newest_library_comes_first_and_others_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["webkit2gtk-4.0", "webkit2gtk-4.1", "webkitgtk-6.0", "gtk-4.0"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let names: Vec<_> = library_folders(folder.path())
            .iter()
            .map(|p| p.file_name().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["webkitgtk-6.0", "webkit2gtk-4.1", "webkit2gtk-4.0"]);
    }
}
