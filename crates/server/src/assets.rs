//! The files of the join page: where they are, and which there are.
//!
//! They are listed once, at the start. A request can only name what is on the list, so no path
//! in it can lead anywhere else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::ServerError;

/// The page and what it loads.
#[derive(Debug)]
pub(crate) struct Assets {
    /// By their path in an address, such as `assets/page.js`.
    files: BTreeMap<String, PathBuf>,
}

/// The page itself.
pub(crate) const PAGE: &str = "join.html";

const WHAT_TO_DO: &str = "In a source tree, run `cargo xtask setup`; elsewhere, put the folder \
                          `web` of the release beside the `holdfast` program";

/// Finds the folder with the page, in this order: at `explicit`; in `web` beside the executable;
/// in `../lib/holdfast/web`; in the source tree that this program was built from.
pub fn find_assets(explicit: Option<&Path>) -> Result<PathBuf, ServerError> {
    let candidates = explicit.map_or_else(candidates, |path| vec![path.to_owned()]);
    let found = candidates.iter().find(|folder| folder.join(PAGE).is_file());
    found.cloned().ok_or_else(|| {
        let tried: Vec<String> =
            candidates.iter().map(|path| format!("  {}", path.display())).collect();
        let tried = tried.join("\n");
        ServerError::AssetsMissing(format!(
            "the page for browsers is missing. {WHAT_TO_DO}. Looked at:\n{tried}"
        ))
    })
}

impl Assets {
    pub(crate) fn list(folder: &Path) -> Result<Assets, ServerError> {
        let mut files = BTreeMap::from([(PAGE.to_owned(), folder.join(PAGE))]);
        let mut folders = vec![("assets".to_owned(), folder.join("assets"))];
        while let Some((name, path)) = folders.pop() {
            let unreadable = |source| ServerError::Assets { path: path.clone(), source };
            for entry in std::fs::read_dir(&path).map_err(unreadable)? {
                let entry = entry.map_err(unreadable)?;
                let Ok(file_name) = entry.file_name().into_string() else { continue };
                let name = format!("{name}/{file_name}");
                // Follows links, so that a source tree need not copy large files.
                let path = entry.path();
                if path.is_dir() {
                    folders.push((name, path));
                } else {
                    files.insert(name, path);
                }
            }
        }
        Ok(Assets { files })
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Path> {
        self.files.get(name).map(PathBuf::as_path)
    }
}

fn candidates() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(program) = std::env::current_exe().ok().and_then(|path| path.canonicalize().ok())
        && let Some(folder) = program.parent()
    {
        folders.push(folder.join("web"));
        folders.extend(folder.parent().map(|above| above.join("lib/holdfast/web")));
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    folders.push(workspace.canonicalize().unwrap_or(workspace).join("web/dist"));
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_the_page_and_what_is_under_assets_only() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("assets/ort")).unwrap();
        for name in ["join.html", "other.html", "assets/page.js", "assets/ort/ort.wasm"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let assets = Assets::list(&find_assets(Some(folder.path())).unwrap()).unwrap();
        assert!(assets.get("join.html").is_some());
        assert!(assets.get("assets/ort/ort.wasm").is_some());
        assert!(assets.get("other.html").is_none());
        assert!(assets.get("assets/../other.html").is_none());
        assert!(assets.get("assets/ort").is_none());
    }

    #[test]
    fn a_missing_page_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let error = find_assets(Some(folder.path())).unwrap_err().to_string();
        assert!(error.contains("cargo xtask setup"), "{error}");
    }
}
