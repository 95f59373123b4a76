//! `cargo xtask codegen`: what is generated from crates/wire, and whether it is fresh.

use std::path::Path;

use anyhow::{Result, bail};
use xshell::cmd;

use crate::workspace::Workspace;

/// What the generator writes.
const FILES: [&str; 2] = ["spec/wire/golden.json", "web/wire/src/messages.ts"];

/// Writes the files.
pub(crate) fn write(workspace: &Workspace) -> Result<()> {
    workspace.step("generate", || generate(workspace, workspace.root()))
}

/// Fails if a file is not what the generator would write.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let fresh = workspace.shell.create_temp_dir()?;
    generate(workspace, fresh.path())?;
    for file in FILES {
        let (made, there) = (fresh.path().join(file), workspace.root().join(file));
        if std::fs::read(made)? != std::fs::read(there).unwrap_or_default() {
            bail!("{file} is stale: run `cargo xtask codegen`");
        }
    }
    Ok(())
}

fn generate(workspace: &Workspace, into: &Path) -> Result<()> {
    let generator = cmd!(
        workspace.shell,
        "cargo run --quiet --locked --package holdfast-wire --example codegen -- {into}"
    );
    Ok(generator.quiet().run()?)
}
