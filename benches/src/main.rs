//! Benchmarks: `cargo xtask bench SUITE [--only ID,…]`.
//!
//! Every figure is a ratio to a peer or to a limit in the same run, and every run is recorded
//! under `benches/runs/`. A row that misses its goal says so; the goal stays.

mod compare;
mod lane;
mod machine;
mod pool;
mod predict;
mod python;
mod record;
mod sharing;
mod spine;
mod timing;
mod warnings;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use record::Record;

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Browsers are owned by a process of their own, which is this program too.
    if arguments == [lane::GUARD] {
        return Ok(lane::guard());
    }
    // Holdfast is killed in a process of its own.
    if arguments == [pool::own_death::WORKING] {
        return pool::own_death::work().map(|()| ExitCode::SUCCESS);
    }
    // What has to be apart is measured in processes of their own, which are this program again.
    if let [flag, part, rest @ ..] = arguments.as_slice()
        && flag == "--child"
    {
        let done = match part.as_str() {
            "bare" => pool::child(rest),
            "predict" => predict::child(rest),
            "sharing" => sharing::child(rest),
            part => spine::child(part, rest),
        };
        return done.map(|()| ExitCode::SUCCESS);
    }
    warnings::show();
    let (suite, only) = parse(&arguments)?;
    let mut record = Record::open(&suite)?;
    match suite.as_str() {
        "spine" => spine::run(&mut record, &only)?,
        "lane" => lane::run(&mut record, &only)?,
        "pool" => pool::run(&mut record, &only)?,
        "sharing" => sharing::run(&mut record, &only)?,
        "predict" => predict::run(&mut record, &only)?,
        other => {
            bail!("there is no suite `{other}`; there are: spine, lane, pool, sharing, predict")
        }
    }
    let path = record.save()?;
    record.print();
    println!("\nrecorded in {}", path.display());
    Ok(ExitCode::SUCCESS)
}

/// Which parts to run; empty for all.
pub(crate) struct Only(Vec<String>);

impl Only {
    pub(crate) fn wants(&self, id: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|wanted| wanted == id)
    }

    /// Whether the user named it. What takes very long runs only then.
    pub(crate) fn names(&self, id: &str) -> bool {
        self.0.iter().any(|wanted| wanted == id)
    }
}

fn parse(arguments: &[String]) -> Result<(String, Only)> {
    let usage = "usage: cargo xtask bench SUITE [--only ID,ID…]";
    match arguments {
        [suite] => Ok((suite.clone(), Only(Vec::new()))),
        [suite, flag, ids] if flag == "--only" => {
            Ok((suite.clone(), Only(ids.split(',').map(str::to_owned).collect())))
        }
        _ => Err(anyhow::anyhow!(usage)).context("the arguments were not understood"),
    }
}
