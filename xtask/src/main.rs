//! `cargo xtask`: everything one does with this repository, in one command.
//!
//! It needs nothing but cargo to start and has few dependencies, so that it compiles in seconds.

mod bench;
mod browsers;
mod check;
mod codegen;
mod demo;
mod duckdb;
mod setup;
mod test;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

use workspace::Workspace;

const HELP: &str = "\
Usage: cargo xtask COMMAND

  setup               get the third-party binaries and models (skips what is there)
  demo                set up, build, run real models, and show what sharing saves
  test                set up, then run all tests
  check               formatting, lints, documentation, TypeScript, generated files, lockfiles
  codegen             write what is generated from crates/wire
  bench SUITE [ARG…]  set up, get the Python peers, and run a suite of benchmarks
  help                show this
";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        // Not anyhow's own report: a stack trace hides what to do.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let workspace = Workspace::open()?;
    match arguments.as_slice() {
        ["setup"] => setup::run(&workspace),
        ["demo"] => demo::run(&workspace),
        ["test"] => test::run(&workspace),
        ["check"] => check::run(&workspace),
        ["codegen"] => codegen::write(&workspace),
        ["bench", suite, rest @ ..] if !suite.starts_with('-') => {
            bench::run(&workspace, suite, rest)
        }
        [] | ["help" | "--help" | "-h", ..] => {
            print!("{HELP}");
            Ok(())
        }
        ["bench", ..] => bail!("which suite? For example: cargo xtask bench spine"),
        other => bail!("cannot make sense of `{}`\n\n{HELP}", other.join(" ")),
    }
}
