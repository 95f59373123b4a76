//! The Python peers: the same models in PyPI's onnxruntime, onnx and tokenizers.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::machine::{third_party, workspace};

/// The interpreter of the venv that `cargo xtask bench` makes.
pub(crate) fn interpreter() -> PathBuf {
    let program = if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" };
    third_party("reference").join(program)
}

/// Runs `benches/reference/SCRIPT` and returns what it printed.
pub(crate) fn run(script: &str, arguments: &[&std::ffi::OsStr]) -> Result<String> {
    let path = workspace().join("benches/reference").join(script);
    let output = Command::new(interpreter())
        .arg(&path)
        .args(arguments)
        .output()
        .context("cannot start the Python peer")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{script} failed: {stderr}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
