//! The guard as a program of its own, for those who use the crate without the `holdfast` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    holdfast_browsers::guard::run()
}
