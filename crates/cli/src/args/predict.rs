//! What is typed to know what a mix of models costs, before and after it ran.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use holdfast_pool::Choices;
use holdfast_predict::{Goal, Setting, Strategy};

use super::browser::{DEVICE_DEFAULTS, FleetArgs};
use super::history::DbArgs;
use super::parse_dim;

/// A model, and rows of its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelBatch {
    pub(crate) model: String,
    pub(crate) batch: usize,
}

/// Rows that a request may have.
const MOST_ROWS: usize = 65_536;

impl FromStr for ModelBatch {
    type Err = String;

    fn from_str(text: &str) -> Result<ModelBatch, String> {
        // Names of models have no colons.
        let (model, batch) = match text.split_once(':') {
            None => (text, 1),
            Some((model, rows)) => {
                let rows: usize = rows.parse().map_err(|_| format!("`{rows}` is not a batch"))?;
                (model, rows)
            }
        };
        if model.is_empty() || !(1..=MOST_ROWS).contains(&batch) {
            return Err(format!("expected MODEL or MODEL:BATCH with a batch of 1 to {MOST_ROWS}"));
        }
        Ok(ModelBatch { model: model.to_owned(), batch })
    }
}

impl fmt::Display for ModelBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.batch {
            1 => f.write_str(&self.model),
            batch => write!(f, "{}:{batch}", self.model),
        }
    }
}

/// A setting of a backend, set by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetByHand {
    pub(crate) backend: String,
    pub(crate) setting: Setting,
    pub(crate) value: u64,
}

impl FromStr for SetByHand {
    type Err = String;

    fn from_str(text: &str) -> Result<SetByHand, String> {
        let parts = text.split_once('=').and_then(|(name, value)| {
            let (backend, setting) = name.split_once('.')?;
            Some((backend, setting, value))
        });
        let Some((backend, setting, value)) = parts else {
            return Err("expected BACKEND.SETTING=VALUE, as in cpu.batching_size=8".to_owned());
        };
        if !["cpu", "wasm", "webgpu", "webnn"].contains(&backend) {
            return Err(format!("`{backend}` is not a backend: use cpu, wasm, webgpu or webnn"));
        }
        let setting =
            setting.parse().map_err(|error: holdfast_predict::SettingError| error.to_string())?;
        let value = value.parse().map_err(|_| format!("`{value}` is not a whole number"))?;
        Ok(SetByHand { backend: backend.to_owned(), setting, value })
    }
}

/// How models run together: by a strategy, or by whichever is recommended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Recommended,
    Given(Strategy),
}

impl FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Way, String> {
        match text {
            "auto" => Ok(Way::Recommended),
            text => text.parse().map(Way::Given).map_err(|error: String| error + ", or auto"),
        }
    }
}

/// Where a mix runs, and on what sizes.
#[derive(clap::Args)]
pub(crate) struct PlaceArgs {
    /// What to run on: cpu, wasm, webgpu, webnn or browser
    /// [default: cpu, or browser if something is said of browsers]
    #[arg(long, value_name = "DEVICE", default_value = "cpu", default_value_ifs = DEVICE_DEFAULTS, hide_default_value = true)]
    pub(crate) device: Choices,
    /// Tokens of a row
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) tokens: u32,
    /// The size of a named dimension, where the usual one does not fit; may be repeated
    #[arg(long = "dim", value_name = "NAME=SIZE", value_parser = parse_dim)]
    pub(crate) dims: Vec<(String, usize)>,
    /// Run each model on its own, although models have something in common
    #[arg(long)]
    pub(crate) no_share: bool,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// Threads for one operator on the processor [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(clap::Args)]
#[command(after_help = "\
Predicts how long the models take together, how many answers a second that is, and the most
memory they need, each with an interval that 90 of 100 measurements lie in. Nothing is run but
a short calibration of the device. What was measured here before makes it better: models that
have run are known, others are predicted from what they are made of.

Examples:
  holdfast predict all-MiniLM-L6-v2 gte-small
  holdfast predict all-MiniLM-L6-v2:8 gte-small --strategy parallel --explain
  holdfast predict a b c --goal memory --device wasm")]
pub(crate) struct PredictArgs {
    /// The models, each with the rows of its input if it is not one
    #[arg(required = true, value_name = "MODEL[:BATCH]")]
    pub(crate) models: Vec<ModelBatch>,
    /// How they run [default: all ways, and which one to choose]
    #[arg(long, value_name = "STRATEGY")]
    pub(crate) strategy: Option<Strategy>,
    /// What for: latency, throughput or memory
    #[arg(long, value_name = "GOAL", default_value_t = Goal::Latency)]
    pub(crate) goal: Goal,
    /// Say what each estimate is made of and where that comes from
    #[arg(long)]
    pub(crate) explain: bool,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

#[derive(clap::Args)]
#[command(after_help = "\
Predicts, then runs the models in every way, in turns, so that a busy machine is as unfair to
one as to the other. Says which way was best, how sure that is, which one would have been
recommended and what that would have cost. All of it is recorded, and learned from.

Examples:
  holdfast compare all-MiniLM-L6-v2 gte-small
  holdfast compare all-MiniLM-L6-v2:4 gte-small:4 --repeats 11 --goal throughput")]
pub(crate) struct CompareArgs {
    /// The models, each with the rows of its input if it is not one
    #[arg(required = true, value_name = "MODEL[:BATCH]")]
    pub(crate) models: Vec<ModelBatch>,
    /// Runs of each way
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) repeats: u16,
    /// What for: latency or throughput
    #[arg(long, value_name = "GOAL", default_value_t = Goal::Latency)]
    pub(crate) goal: Goal,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

#[derive(clap::Args)]
#[command(after_help = "\
Draws mixes of models at random, predicts each before it runs, runs it, and prints how far the
prediction was off, how many measurements lay in the 90 % interval, and what following the
recommendation would have cost. Models run alone first, so that each has been seen. The
predictor learns from every mix; errors above 15 % make it refine itself.

Examples:
  holdfast validate
  holdfast validate --mixes 40 --seed 7
  holdfast validate --models all-MiniLM-L6-v2,gte-small --device wasm --mixes 10")]
pub(crate) struct ValidateArgs {
    /// The models to draw from, with commas [default: all that can be fed]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) models: Vec<String>,
    /// Mixes to draw
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) mixes: u16,
    /// What they are drawn from
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Runs of each way of a mix; the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) repeats: u16,
    /// What for: latency or throughput
    #[arg(long, value_name = "GOAL", default_value_t = Goal::Latency)]
    pub(crate) goal: Goal,
    /// Also write what was predicted and measured to this file, as Parquet or CSV by its ending
    #[arg(long, value_name = "FILE")]
    pub(crate) dataset: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

#[derive(clap::Args)]
#[command(after_help = "\
Looks at the errors of past predictions and changes the predictor where that helps: a small
correction with every observation (incremental), a new fit to recent ones (window), or
corrections by backend and strategy (weighted). It learns from one part and is judged by
another; what would make errors larger is rolled back.

Ends with the settings by which strategies are chosen where estimates are too close to tell. They
follow what `holdfast compare` and `validate` measure, or are set by hand.

Examples:
  holdfast refine
  holdfast refine --set cpu.parallel_threshold=6 --set wasm.batching_size=2")]
pub(crate) struct RefineArgs {
    /// Set this, and refine nothing; may be repeated
    #[arg(long, value_name = "BACKEND.SETTING=VALUE")]
    pub(crate) set: Vec<SetByHand>,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_has_one_row_unless_it_is_told() {
        let parsed = |text: &str| text.parse::<ModelBatch>().map(|of| (of.model, of.batch));
        assert_eq!(parsed("mini"), Ok(("mini".to_owned(), 1)));
        assert_eq!(parsed("mini:8"), Ok(("mini".to_owned(), 8)));
    }

    #[test]
    fn a_setting_names_its_backend() {
        let set: SetByHand = "cpu.batching_size=8".parse().unwrap();
        assert_eq!(
            (set.backend.as_str(), set.setting, set.value),
            ("cpu", Setting::BatchingSize, 8)
        );
        for text in
            ["batching_size=8", "cpu.batching=8", "tpu.batching_size=8", "cpu.batching_size=x"]
        {
            assert!(text.parse::<SetByHand>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_batch_is_refused() {
        for text in ["mini:", "mini:0", "mini:x", ":4", "mini:99999999"] {
            assert!(text.parse::<ModelBatch>().is_err(), "{text}");
        }
    }
}
