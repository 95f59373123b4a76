//! `cargo xtask check`: what can be said about the code without running it.

use anyhow::{Result, bail};
use xshell::cmd;

use crate::workspace::Workspace;
use crate::{codegen, setup};

/// Runs every check, and stops at the first that fails.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let shell = &workspace.shell;
    workspace.step("lockfiles name no registry", || lockfiles_name_no_registry(workspace))?;
    workspace.step("formatting", || Ok(cmd!(shell, "cargo fmt --all --check").quiet().run()?))?;
    workspace.step("lints", || {
        let clippy = cmd!(shell, "cargo clippy --workspace --all-targets --locked -- -D warnings");
        Ok(clippy.quiet().run()?)
    })?;
    workspace.step("documentation", || {
        let rustdoc =
            cmd!(shell, "cargo doc --workspace --no-deps --document-private-items --locked");
        Ok(rustdoc.env("RUSTDOCFLAGS", "-D warnings").quiet().run()?)
    })?;
    workspace.step("generated files are fresh", || codegen::check(workspace))?;
    setup::web_tools(workspace)?;
    workspace.step("TypeScript: types, lints, formatting", || {
        let _folder = shell.push_dir(workspace.web());
        Ok(cmd!(shell, "npm run --silent check").quiet().run()?)
    })
}

/// npm writes the address of the registry it was set up with into a lockfile, unless it is told not
/// to. Such a lockfile works only where that registry can be reached.
fn lockfiles_name_no_registry(workspace: &Workspace) -> Result<()> {
    let shell = &workspace.shell;
    let tracked = cmd!(shell, "git ls-files -- *package-lock.json").quiet().read()?;
    for path in tracked.lines() {
        if shell.read_file(path)?.contains("\"resolved\":") {
            bail!("{path} holds \"resolved\" addresses: see third-party/README.md");
        }
    }
    Ok(())
}
