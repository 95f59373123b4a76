//! What a run was measured on and with.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// The repository.
pub(crate) fn workspace() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    root.expect("this package is inside the workspace").to_owned()
}

/// A path under `third-party/`.
pub(crate) fn third_party(path: &str) -> PathBuf {
    workspace().join("third-party").join(path)
}

pub(crate) fn date() -> Result<String> {
    output(Command::new("date").args(["-u", "+%Y-%m-%d"]))
}

pub(crate) fn machine() -> BTreeMap<String, String> {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let found = [
        ("processor", field(&cpuinfo, "model name")),
        ("cores", Some(cores)),
        ("memory", field(&meminfo, "MemTotal")),
        ("system", Some(format!("{} {}", std::env::consts::OS, std::env::consts::ARCH))),
    ];
    found.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// What the version of this repository is called among the versions.
pub(crate) const COMMIT: &str = "commit";

pub(crate) fn versions() -> Result<BTreeMap<String, String>> {
    let git =
        |arguments: &[&str]| output(Command::new("git").args(arguments).current_dir(workspace()));
    let packages = "import onnxruntime, onnx, numpy, tokenizers; \
        print(onnxruntime.__version__, onnx.__version__, numpy.__version__, tokenizers.__version__)";
    let python = output(Command::new(crate::python::interpreter()).args(["-c", packages]))
        .context("the Python peers are missing; run this through `cargo xtask bench`")?;
    let mut versions = BTreeMap::from([
        ("holdfast".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("rustc".to_owned(), output(Command::new("rustc").arg("--version"))?),
    ]);
    if let Ok(mut commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        // Records change with every run, and change nothing that is measured.
        let changed =
            ["status", "--porcelain", "--untracked-files=no", "--", ".", ":!benches/runs"];
        if git(&changed).is_ok_and(|changed| !changed.is_empty()) {
            commit.push_str(" with changes");
        }
        versions.insert(COMMIT.to_owned(), commit);
    }
    let names = ["python onnxruntime", "python onnx", "python numpy", "python tokenizers"];
    versions.extend(
        names.iter().zip(python.split_whitespace()).map(|(n, v)| ((*n).to_owned(), v.to_owned())),
    );
    Ok(versions)
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    anyhow::ensure!(
        output.status.success(),
        "{command:?} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
