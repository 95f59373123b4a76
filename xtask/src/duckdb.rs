//! DuckDB's library: which npm package has the one of this platform, and what its files are called.
//!
//! The library is linked, not compiled: compiling it takes longer than all of Holdfast.

use std::path::Path;

use anyhow::{Context, Result, bail};
use xshell::{Shell, cmd};

use crate::setup::DOWNLOAD_HINT;

/// The files that a program is linked with and started with. Windows links with another one than
/// it starts with.
const FILES: &[&str] = if cfg!(windows) {
    &["duckdb.dll", "duckdb.lib"]
} else if cfg!(target_os = "macos") {
    &["libduckdb.dylib"]
} else {
    &["libduckdb.so"]
};

/// Puts the files from `node_modules` into `duckdb`, both in `third_party`.
pub(crate) fn place(shell: &Shell, npm: &str, third_party: &Path) -> Result<()> {
    let package = package()?;
    let from = third_party.join("node_modules").join(&package);
    if !from.is_dir() {
        fetch(shell, npm, &package, third_party)?;
    }
    for name in FILES {
        let (from, to) = (from.join(name), third_party.join("duckdb").join(name));
        // A second name costs no room; a copy is for file systems that have none.
        std::fs::hard_link(&from, &to)
            .or_else(|_| std::fs::copy(&from, &to).map(drop))
            .with_context(|| format!("the package {package} has no {name}"))?;
    }
    Ok(())
}

/// npm leaves out a platform's package that the lockfile does not list, and a registry that mirrors
/// few platforms makes such lockfiles. The version is that of the package which asks for it.
fn fetch(shell: &Shell, npm: &str, package: &str, third_party: &Path) -> Result<()> {
    let manifest = third_party.join("node_modules/@duckdb/node-bindings/package.json");
    let manifest = shell.read_file(manifest)?;
    let version = manifest
        .lines()
        .find_map(|line| line.trim().strip_prefix(&format!("\"{package}\":")))
        .map(|version| version.trim_matches([' ', ',', '"']));
    let Some(version) = version else {
        bail!("@duckdb/node-bindings has nothing for this platform ({package})");
    };
    cmd!(
        shell,
        "{npm} install --no-save --no-package-lock --ignore-scripts --no-audit --no-fund
            {package}@{version}"
    )
    .quiet()
    .run()
    .context(DOWNLOAD_HINT)
}

/// The package for this platform, in the words of Node.js.
fn package() -> Result<String> {
    let system = match std::env::consts::OS {
        "macos" => "darwin",
        "windows" => "win32",
        "linux" => "linux",
        other => bail!("there is no DuckDB library for {other}"),
    };
    let processor = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => bail!("there is no DuckDB library for processors of kind {other}"),
    };
    let library = if cfg!(target_env = "musl") { "-musl" } else { "" };
    Ok(format!("@duckdb/node-bindings-{system}-{processor}{library}"))
}
