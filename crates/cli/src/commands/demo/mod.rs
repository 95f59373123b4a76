//! `holdfast demo`: what sharing saves, on models that are made and trained for it.
//!
//! ```text
//! scenarios ─► workshop (a store of its own) ─► plan
//!                  │
//!                  ├─► side with sharing ────┐  processes of their own,
//!                  └─► side without sharing ─┴► in turn ─► words, JSON, report
//! ```

mod bars;
mod classifiers;
mod contender;
mod head;
mod machine;
mod measure;
mod minilm;
mod page;
mod report;
mod scenarios;
pub(crate) mod side;
mod texts;
mod train;
mod words;
mod workshop;

use anyhow::{Context, bail};

use super::share::planning::{Planned, plan};
use crate::args::{DemoArgs, Global, Scenario};
use crate::interrupt::interrupted;
use crate::output;
use machine::Machine;
use measure::Measuring;
use report::{Picture, Report, Shown};
use scenarios::Set;
use workshop::Workshop;

pub(crate) fn run(global: &Global, args: &DemoArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        tokio::select! {
            biased;
            // So that what was made is removed then, too.
            () = interrupted() => bail!("interrupted"),
            report = show(global, args) => report,
        }
    })?;
    if let Some(path) = &args.report {
        std::fs::write(path, page::page(&report))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if global.json {
        return output::print_json(&report.to_json());
    }
    words::summary(&report).iter().try_for_each(output::line)?;
    match &args.report {
        Some(path) => output::line(format!("\nreport: {}", path.display())),
        None => Ok(()),
    }
}

async fn show(global: &Global, args: &DemoArgs) -> anyhow::Result<Report> {
    let workshop = &Workshop::open(global)?;
    let scenarios = match args.scenarios.as_slice() {
        [] => &Scenario::ALL[..],
        some => some,
    };
    let mut report = Report {
        machine: Machine::this(workshop.pool.engine()),
        hardware: args.hardware.name(),
        compared: args.compare,
        max_memory: args.max_memory,
        shown: Vec::new(),
        left_out: Vec::new(),
    };
    for &scenario in scenarios {
        let lines = match scenario.make(global, args, workshop).await? {
            Ok(set) => {
                let shown = show_one(global, args, workshop, scenario, set).await;
                let shown = shown.with_context(|| scenario.name())?;
                let lines = words::paragraph(&shown);
                report.shown.push(shown);
                lines
            }
            Err(reason) => {
                let lines = words::left_out(scenario, &reason);
                report.left_out.push((scenario, reason));
                lines
            }
        };
        if !global.json {
            workshop.spinner.beside(|| lines.iter().try_for_each(output::line))?;
        }
    }
    Ok(report)
}

async fn show_one(
    global: &Global,
    args: &DemoArgs,
    workshop: &Workshop,
    scenario: Scenario,
    set: Set,
) -> anyhow::Result<Shown> {
    let (rows, tokens) = set.input.sizes();
    // The names that BERT's exporters and the testkit use.
    let dims = [("batch", rows), ("batch_size", rows), ("sequence", tokens)];
    let dims = dims.into_iter().chain([("sequence_length", tokens)]);
    let dims: Vec<(String, usize)> = dims.map(|(name, size)| (name.to_owned(), size)).collect();
    let engine = workshop.pool.engine();
    let say = |what: String| workshop.spinner.say(what);
    let planning = plan(engine, &workshop.store, &set.models, args.hardware, &dims, &say);
    let Planned { plan, .. } = planning.await?;
    let picture = Picture::of(&plan);
    let measured = Measuring { global, args, workshop }.measure(&set).await?;
    Ok(Shown { scenario, set, picture, measured })
}
