//! `holdfast completions`

use clap::CommandFactory;

use crate::args::{Args, CompletionsArgs};

pub(crate) fn run(args: &CompletionsArgs) {
    let mut command = Args::command();
    clap_complete::generate(args.shell, &mut command, "holdfast", &mut std::io::stdout());
}
