//! Where the store is when nobody says.

use std::path::PathBuf;

/// `holdfast` in the platform's folder for application data; `None` if the system names none.
pub fn default_home() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let data = match std::env::consts::OS {
        "windows" => folder("LOCALAPPDATA"),
        "macos" => folder("HOME").map(|home| home.join("Library/Application Support")),
        _ => folder("XDG_DATA_HOME").or_else(|| Some(folder("HOME")?.join(".local/share"))),
    };
    data.map(|data| data.join("holdfast"))
}
