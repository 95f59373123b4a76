//! The `holdfast` command.

mod args;
mod chosen;
mod chronicle;
mod commands;
mod html;
mod interrupt;
mod lab;
mod output;
mod place;
mod plot;
mod qr;

use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use args::{Args, Command};
use commands::*;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return not_understood(&error),
    };
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

/// Help and version go to stdout, what was not understood to stderr.
fn not_understood(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && std::env::args_os().any(|arg| arg == "--json") {
        let text = error.render().to_string();
        output::print_message(text.trim().trim_start_matches("error: "), true);
    } else if error.kind() == ErrorKind::MissingSubcommand {
        // clap does so itself, but not where HOLDFAST_HOME is set.
        let _ = write!(std::io::stderr(), "{}", Args::command().render_help());
    } else {
        // Where nobody reads it, the exit code still tells.
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

fn run(Args { global, command }: Args) -> anyhow::Result<ExitCode> {
    match command {
        Command::Import(args) => import::run(&global, &args)?,
        Command::Pull(args) => pull::run(&global, &args)?,
        Command::Models => models::run(&global)?,
        Command::Show(args) => show::run(&global, &args)?,
        Command::Share(args) => share::run(&global, &args)?,
        Command::Rm(args) => rm::run(&global, &args)?,
        Command::Verify(args) => return verify::run(&global, &args),
        Command::Gc(args) => gc::run(&global, &args)?,
        Command::Run(args) => run::run(&global, &args)?,
        Command::Serve(args) => serve::run(&global, &args)?,
        Command::Join(args) => join::run(&global, &args)?,
        Command::Pool(args) => pool::run(&global, &args)?,
        Command::Bench(args) => return bench::run(&global, &args),
        Command::Predict(args) => predict::run(&global, &args)?,
        Command::Compare(args) => compare::run(&global, &args)?,
        Command::Validate(args) => validate::run(&global, &args)?,
        Command::Refine(args) => refine::run(&global, &args)?,
        Command::History(args) => history::run(&global, &args)?,
        Command::Report(args) => report::run(&global, &args)?,
        Command::Doctor(args) => return doctor::run(&global, &args),
        Command::Demo(args) => demo::run(&global, &args)?,
        Command::Synth(args) => synth::run(&global, &args)?,
        Command::Completions(args) => completions::run(&args)?,
        Command::Guard => return Ok(holdfast_browsers::guard::run()),
        Command::DemoSide(args) => return demo::side::run(&global, &args),
    }
    Ok(ExitCode::SUCCESS)
}
