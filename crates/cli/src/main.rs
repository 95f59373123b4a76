//! The `holdfast` command.

mod args;
mod commands;
mod output;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use commands::*;

fn main() -> ExitCode {
    let args = Args::parse();
    let json = args.global.json;
    match run(args) {
        Ok(code) => code,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::print_error(&error, json);
            ExitCode::FAILURE
        }
    }
}

fn run(Args { global, command }: Args) -> anyhow::Result<ExitCode> {
    match command {
        Command::Import(args) => import::run(&global, &args)?,
        Command::Pull(args) => pull::run(&global, &args)?,
        Command::Models => models::run(&global)?,
        Command::Show(args) => show::run(&global, &args)?,
        Command::Rm(args) => rm::run(&global, &args)?,
        Command::Verify(args) => return verify::run(&global, &args),
        Command::Gc(args) => gc::run(&global, &args)?,
        Command::Run(args) => run::run(&global, &args)?,
        Command::Doctor => return doctor::run(&global),
        Command::Synth(args) => synth::run(&global, &args)?,
        Command::Completions(args) => completions::run(&args),
    }
    Ok(ExitCode::SUCCESS)
}
