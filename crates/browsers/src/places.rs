//! Where programs lie on the three kinds of systems, for every family of browsers.

use std::path::PathBuf;

use crate::installed::Kind;

/// A path below one of the folders that programs are installed in.
pub(crate) type Place = (Kind, &'static str);

/// Every place in `PATH` where programs of these names may lie, by name before by folder.
pub(crate) fn in_path<'a>(
    names: &'a [(Kind, &'a [&'a str])],
    search_path: &'a [PathBuf],
) -> impl Iterator<Item = (Kind, PathBuf)> + 'a {
    names.iter().flat_map(move |(kind, names)| {
        names.iter().flat_map(move |name| {
            search_path.iter().map(move |folder| {
                (*kind, folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX)))
            })
        })
    })
}

/// These places below each folder that this system installs programs in.
pub(crate) fn usual(places: &[Place]) -> Vec<(Kind, PathBuf)> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let roots: Vec<PathBuf> = match std::env::consts::OS {
        "macos" => [Some(PathBuf::from("/")), variable("HOME")].into_iter().flatten().collect(),
        "windows" => ["ProgramFiles", "ProgramFiles(x86)", "LocalAppData"]
            .into_iter()
            .filter_map(variable)
            .collect(),
        _ => vec![PathBuf::from("/")],
    };
    let of_root = |root: &PathBuf| {
        let root = root.clone();
        places.iter().map(move |(kind, path)| (*kind, root.join(path)))
    };
    roots.iter().flat_map(of_root).collect()
}

/// The version on the line that starts with a name. Wrapper scripts may print warnings around it,
/// and channels put a word before the number: `Google Chrome for Testing 147.0.7727.0`.
pub(crate) fn version_after(name: &str, said: &str) -> Option<String> {
    let rest = said.lines().find_map(|line| line.strip_prefix(name))?;
    let version =
        rest.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    version.map(str::to_owned)
}
