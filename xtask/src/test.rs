//! `cargo xtask test`: every test, on a machine that has nothing set up yet.

use std::path::PathBuf;

use anyhow::Result;
use xshell::cmd;

use crate::workspace::Workspace;
use crate::{browsers, setup};

/// Sets up, builds, then runs the tests and the examples in the documentation. Ends with what was
/// not tested, whether or not the rest went well.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    setup::run(workspace)?;
    browsers::install(workspace)?;
    workspace.shell.remove_path(untested_folder(workspace))?;
    let result = run_all(workspace);
    tell_untested(workspace)?;
    result
}

/// Tests leave a note here for each browser that they did not find, see
/// crates/browsers/tests/support/present.rs.
fn untested_folder(workspace: &Workspace) -> PathBuf {
    workspace.target().join("tmp/untested")
}

fn tell_untested(workspace: &Workspace) -> Result<()> {
    let folder = untested_folder(workspace);
    if !folder.is_dir() {
        return Ok(());
    }
    for note in workspace.shell.read_dir(folder)? {
        eprint!("NOT TESTED {}", workspace.shell.read_file(note)?);
    }
    Ok(())
}

fn run_all(workspace: &Workspace) -> Result<()> {
    let shell = &workspace.shell;
    workspace.step("build", || {
        // Bins as well: some tests run, and kill, the real program.
        Ok(cmd!(shell, "cargo build --workspace --bins --tests").quiet().run()?)
    })?;
    let has_nextest = cmd!(shell, "cargo nextest --version")
        .quiet()
        .ignore_stdout()
        .ignore_stderr()
        .run()
        .is_ok();
    workspace.step("tests", || {
        let tests = if has_nextest {
            cmd!(shell, "cargo nextest run --workspace --no-fail-fast")
        } else {
            cmd!(shell, "cargo test --workspace --bins --lib --tests")
        };
        Ok(tests.quiet().run()?)
    })?;
    workspace.step("tests of what runs in a browser", || {
        let _folder = shell.push_dir(workspace.web());
        Ok(cmd!(shell, "npm run --silent test").quiet().run()?)
    })?;
    workspace.step("examples in the documentation", || {
        Ok(cmd!(shell, "cargo test --doc --workspace").quiet().run()?)
    })
}
