//! `holdfast completions`

use std::io::Write;

use clap::CommandFactory;

use crate::args::{Args, CompletionsArgs};

pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<()> {
    // Into memory first: `generate` would panic where the reader of our output went away.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "holdfast", &mut script);
    Ok(std::io::stdout().write_all(&script)?)
}
