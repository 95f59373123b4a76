//! `cargo xtask bench SUITE`: runs a suite of benchmarks beside its Python peers.

use anyhow::Result;
use xshell::cmd;

use crate::setup;
use crate::workspace::Workspace;

/// Sets up, and hands the suite's name and arguments to the benchmark program.
pub(crate) fn run(workspace: &Workspace, suite: &str, arguments: &[&str]) -> Result<()> {
    setup::run(workspace)?;
    setup::reference(workspace)?;
    workspace.build_holdfast()?;
    workspace.step(&format!("bench {suite}"), || {
        let bench = cmd!(
            workspace.shell,
            "cargo run --release --package benches -- {suite} {arguments...}"
        );
        Ok(bench.quiet().run()?)
    })
}
