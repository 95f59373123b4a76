//! What is typed to see what was predicted and what it was.

use std::path::PathBuf;

/// Where predictions and measurements are kept.
#[derive(Default, clap::Args)]
pub(crate) struct DbArgs {
    /// The DuckDB file [default: history.duckdb in the store's folder]
    #[arg(long, value_name = "FILE")]
    pub(crate) db: Option<PathBuf>,
}

#[derive(clap::Args)]
#[command(after_help = "\
Lists what was predicted and what it was, the newest last. While `holdfast serve` runs, it is
asked, because it holds the file.

Examples:
  holdfast history
  holdfast history --limit 100 --json")]
pub(crate) struct HistoryArgs {
    /// How many to list
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(clap::Args)]
#[command(after_help = "\
The HTML is one file with plots: predicted against measured, errors over time, by backend and
strategy, strategies side by side, memory, and what sharing saved.

Examples:
  holdfast report > report.md
  holdfast report --format html --out report.html")]
pub(crate) struct ReportArgs {
    /// md, json or html [default: by the ending of --out, else md]
    #[arg(long, value_name = "FORMAT", value_parser = ["md", "json", "html"])]
    pub(crate) format: Option<String>,
    /// The file to write to [default: the terminal]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}
