//! What is typed to watch the pool and to measure it.

use std::time::Duration;

use holdfast_pool::Choices;

use super::browser::{DEVICE_DEFAULTS, FleetArgs};
use super::{parse_dim, parse_seconds};

#[derive(clap::Args)]
#[command(after_help = "\
Shows what `holdfast serve` is doing: devices with their browser, adapter and models, what
waits, what was answered and how long it took. On a terminal it is drawn again every second
until Ctrl-C; elsewhere it is printed once. `--json` prints the figures once.

Examples:
  holdfast pool
  holdfast pool --once
  holdfast pool --json")]
pub(crate) struct PoolArgs {
    /// Print it once and end
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(clap::Args)]
#[command(after_help = "\
Makes inputs of the sizes and types that each model declares, says what it fed, and keeps
--concurrent requests in flight, the models in turn. Each model runs once to be loaded, then
all of them for --warm-up; what is answered in the --duration after that counts, and a model
that needs longer for one answer gets the time. Latency is what a caller sees: waiting for a
turn is part of it. It measures and judges nothing.

While `holdfast serve` runs, its pool is measured, with whatever else it is doing. `--all`
starts browsers of its own: the processor first, then every browser that is found with each
of its backends, one after the other. One that fails is told, and the others go on.

Examples:
  holdfast bench --models all-MiniLM-L6-v2
  holdfast bench --models all-MiniLM-L6-v2,gte-small --concurrent 8 --duration 10
  holdfast bench --models all-MiniLM-L6-v2 --device wasm --browser firefox --tokens 128
  holdfast bench --models detector --dim height=640 --dim width=640
  holdfast bench --models all-MiniLM-L6-v2 --all --json")]
pub(crate) struct BenchArgs {
    /// The models, with commas
    #[arg(long, value_name = "LIST", required = true, value_delimiter = ',')]
    pub(crate) models: Vec<String>,
    /// Requests in flight at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) concurrent: u16,
    /// What to run on, in the order you prefer: webgpu, webnn, wasm, cpu; or auto, browser
    /// [default: cpu, or browser if something is said of browsers]
    #[arg(long, value_name = "LIST", default_value = "cpu", default_value_ifs = DEVICE_DEFAULTS, hide_default_value = true, conflicts_with = "all")]
    pub(crate) device: Choices,
    /// Measure the processor, and every backend of every browser that is found, or of those that
    /// --browser names
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// How long to measure
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_seconds)]
    pub(crate) duration: Duration,
    /// How long to run before that
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds)]
    pub(crate) warm_up: Duration,
    /// Rows of one request
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) batch: u32,
    /// Tokens of a row
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) tokens: u32,
    /// The size of a named dimension, where the usual one does not fit; may be repeated
    #[arg(long = "dim", value_name = "NAME=SIZE", value_parser = parse_dim)]
    pub(crate) dims: Vec<(String, usize)>,
    /// The component to run, for models that have several
    #[arg(long, value_name = "ROLE")]
    pub(crate) component: Option<String>,
    /// The precision variant [default: the most faithful that the model has]
    #[arg(long)]
    pub(crate) variant: Option<String>,
    /// Threads for one operator on the processor [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
}
