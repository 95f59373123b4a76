//! What the user types for `holdfast share`.

use std::path::PathBuf;

use clap::ValueEnum;
use holdfast_devices::cpu::Target;

use super::parse_dim;

#[derive(clap::Args)]
#[command(after_help = "\
Models are compared as they run: optimised for a target, by how each value is computed and from
which weights. Names, order and exporters make no difference. What is worth sharing depends on
the sizes of named dimensions; those not given with --dim are taken as 1, sequence lengths as 128.

Examples:
  holdfast share first second third
  holdfast share first second --target wasm --dim sequence_length=32
  holdfast share first second third --svg plan.svg")]
pub(crate) struct ShareArgs {
    /// The models, two or more
    #[arg(required = true, num_args = 2..)]
    pub(crate) models: Vec<String>,
    /// What they are to run on
    #[arg(long, value_enum, default_value_t = ShareTarget::Cpu)]
    pub(crate) target: ShareTarget,
    /// The size of a named dimension, for the cost
    #[arg(long = "dim", value_name = "NAME=SIZE", value_parser = parse_dim)]
    pub(crate) dims: Vec<(String, usize)>,
    /// Write the plan as a picture
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Write the plan as a picture for Graphviz
    #[arg(long, value_name = "FILE")]
    pub(crate) dot: Option<PathBuf>,
}

/// What models can be compared for, and shown on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShareTarget {
    Cpu,
    Wasm,
    Webgpu,
    Webnn,
}

impl ShareTarget {
    pub(crate) fn target(self) -> Target {
        match self {
            ShareTarget::Cpu => Target::Cpu,
            ShareTarget::Wasm => Target::Wasm,
            ShareTarget::Webgpu => Target::WebGpu,
            ShareTarget::Webnn => Target::WebNn,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            ShareTarget::Cpu => "cpu",
            ShareTarget::Wasm => "wasm",
            ShareTarget::Webgpu => "webgpu",
            ShareTarget::Webnn => "webnn",
        }
    }
}
