//! What the user types for `holdfast demo`.

use std::path::PathBuf;

use clap::ValueEnum;
use holdfast_browsers::Kind;

use super::ShareTarget;
use super::browser::BrowserArgs;

#[derive(clap::Args)]
#[command(after_help = "\
Runs sets of models that have something in common, and one that has not: one input goes through
all models of a set. With --compare, the same is done without sharing, side by side in processes
of their own: every answer has to have the same bits, and memory and time are told for both.
Times are the fastest of several runs in turn; memory is what the models add to an empty engine.

The classifiers are trained here, in seconds, on texts that come with Holdfast. They need
all-MiniLM-L6-v2 from your store or from the source tree, and are left out where it is missing.
Everything is made in a store of its own, which is removed afterwards; yours is not touched.

Examples:
  holdfast demo --compare
  holdfast demo --compare --report demo.html
  holdfast demo classifiers --compare --hardware wasm
  holdfast demo classifiers --keep classifiers && holdfast import classifiers/topic")]
pub(crate) struct DemoArgs {
    /// What to show [default: all]
    #[arg(value_enum, value_name = "SET")]
    pub(crate) scenarios: Vec<Scenario>,
    /// Do it without sharing, too, and compare
    #[arg(long)]
    pub(crate) compare: bool,
    /// What to run on
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = ShareTarget::Cpu)]
    pub(crate) hardware: ShareTarget,
    /// The memory that models may take, on each side; what does not fit is told
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_memory: Option<u32>,
    /// Write a report with plots and pictures of the plans
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Keep the trained classifiers in this folder, ready for `holdfast import`
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
    /// The browser to start: chrome, chromium, edge, packaged, firefox or webkit
    /// [default: the first that is there]
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub(crate) browser: Vec<Kind>,
}

/// A set of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Three classifiers on one MiniLM
    Classifiers,
    /// Families for text, pictures and sound
    Families,
    /// Four adapters on one base
    Adapters,
    /// Models that have nothing in common
    Unrelated,
}

/// One side of a comparison; the demo starts it.
#[derive(clap::Args)]
pub(crate) struct DemoSideArgs {
    #[command(flatten)]
    pub(crate) browser: BrowserArgs,
}
