//! `cargo xtask test`: every test, on a machine that has nothing set up yet.

use anyhow::Result;
use xshell::cmd;

use crate::setup;
use crate::workspace::Workspace;

/// Sets up, builds, then runs the tests and the examples in the documentation.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    setup::run(workspace)?;
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
