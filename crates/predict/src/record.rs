//! What is kept of predictions and measurements, and who keeps it. Names are those of the tables.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::measured::RunTime;
use crate::strategy::{Goal, Strategy};

/// Keeps records. Never blocks and never fails: what cannot be kept is counted by who keeps it.
pub trait Recorder: Send + Sync {
    /// Takes a record.
    fn record(&self, record: Record);

    /// What became of them so far.
    fn kept(&self) -> Kept;
}

/// What became of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Records that are kept.
    pub written: u64,
    /// Records that are not and will not be: there was no room, or no way to write them.
    pub dropped: u64,
    /// How often writing failed. What could not be written is tried again, later and later.
    pub failed: u64,
}

/// Something to keep.
#[derive(Clone, Debug)]
pub enum Record {
    /// A row of `inferences`.
    Inference(Box<Inference>),
    /// A row of `segment_runs`.
    Run(Box<RunTime>),
    /// What the predictor knows, as JSON; replaces what was kept before. The next start goes on
    /// from it.
    Predictor(String),
    /// A row of `multi_model_validation_metrics`.
    Validation(Box<ValidationRecord>),
    /// A row of `multi_model_optimization_impact`.
    Impact(Box<OptimizationImpact>),
    /// A row of `multi_model_refinement_metrics`.
    Refinement(Box<RefinementRecord>),
    /// A row of `multi_model_error_trends`.
    Trend(Box<ErrorTrend>),
    /// A row of `setting_changes`.
    Setting(Box<SettingChange>),
}

/// One inference, whether it was answered or not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inference {
    /// When it was asked for.
    pub timestamp: SystemTime,
    /// The model, by the graph that was imported.
    pub model: String,
    /// The browser, if one computed it.
    pub browser: Option<String>,
    /// What it ran on.
    pub backend: String,
    /// What the hardware calls itself.
    pub adapter: String,
    /// Whether that is software.
    pub software_adapter: bool,
    /// The precision of the weights, as far as it is known: `fp32`, `int8` …
    pub precision: Option<String>,
    /// Rows of its input.
    pub batch: usize,
    /// Rows that ran in one go with it.
    pub batch_rows: usize,
    /// Seconds that it waited for its turn; like the others, `None` if it was not answered.
    pub queue_seconds: Option<f64>,
    /// Seconds on the way.
    pub transfer_seconds: Option<f64>,
    /// Seconds that the engine took.
    pub compute_seconds: Option<f64>,
    /// Seconds to get the outputs off the device.
    pub readback_seconds: Option<f64>,
    /// Seconds that loading took, if it had to wait for that.
    pub load_seconds: Option<f64>,
    /// Seconds of the first run after loading, where the device makes one.
    pub first_run_seconds: Option<f64>,
    /// Bytes that went to the device and came back.
    pub bytes_moved: u64,
    /// Bytes of the device's memory, where they were measured.
    pub memory_bytes: Option<u64>,
    /// Bytes that did not have to be computed.
    pub reused_bytes: u64,
    /// What went wrong, by class.
    pub error_class: Option<String>,
}

/// A prediction beside what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidationRecord {
    /// When it ran.
    pub timestamp: SystemTime,
    /// Models that ran together.
    pub model_count: usize,
    /// The backend.
    pub hardware_platform: String,
    /// How they ran.
    pub execution_strategy: Strategy,
    /// What for.
    pub optimization_goal: Goal,
    /// Answers a second.
    pub predicted_throughput: f64,
    /// Answers a second.
    pub actual_throughput: f64,
    /// Milliseconds.
    pub predicted_latency: f64,
    /// The 90 % interval of it.
    pub predicted_latency_low: f64,
    /// The 90 % interval of it.
    pub predicted_latency_high: f64,
    /// Milliseconds.
    pub actual_latency: f64,
    /// MiB.
    pub predicted_memory: f64,
    /// MiB; `None` where the device cannot be looked into.
    pub actual_memory: Option<f64>,
    /// The models with their sizes, as JSON.
    pub model_configs: String,
}

impl ValidationRecord {
    /// How far the prediction was off, as a part of the measurement.
    pub fn throughput_error_rate(&self) -> f64 {
        error_rate(self.predicted_throughput, self.actual_throughput)
    }

    /// How far the prediction was off, as a part of the measurement.
    pub fn latency_error_rate(&self) -> f64 {
        error_rate(self.predicted_latency, self.actual_latency)
    }

    /// How far the prediction was off, as a part of the measurement.
    pub fn memory_error_rate(&self) -> Option<f64> {
        self.actual_memory.map(|actual| error_rate(self.predicted_memory, actual))
    }
}

fn error_rate(predicted: f64, actual: f64) -> f64 {
    (predicted - actual).abs() / actual.abs().max(f64::MIN_POSITIVE)
}

/// What another strategy, or sharing, gained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizationImpact {
    /// When it was measured.
    pub timestamp: SystemTime,
    /// Models that ran together.
    pub model_count: usize,
    /// The backend.
    pub hardware_platform: String,
    /// What it is compared with: `sequential`, `parallel, unshared` …
    pub baseline_strategy: String,
    /// What it is.
    pub optimized_strategy: String,
    /// Answers a second.
    pub baseline_throughput: f64,
    /// Answers a second.
    pub optimized_throughput: f64,
    /// Milliseconds.
    pub baseline_latency: f64,
    /// Milliseconds.
    pub optimized_latency: f64,
    /// MiB.
    pub baseline_memory: Option<f64>,
    /// MiB.
    pub optimized_memory: Option<f64>,
    /// What for.
    pub optimization_goal: Goal,
}

/// A change of the predictor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RefinementRecord {
    /// When.
    pub timestamp: SystemTime,
    /// `incremental`, `window` or `weighted`.
    pub method: String,
    /// Why this one.
    pub reason: String,
    /// `latency`, `throughput` or `memory`.
    pub metric: String,
    /// Mean error rate before, on data that the change did not see.
    pub error_before: f64,
    /// Mean error rate after, on the same data.
    pub error_after: f64,
    /// Observations that it learned from.
    pub learned_from: usize,
    /// Observations that it was judged by.
    pub judged_by: usize,
    /// Whether it was kept; one that made errors larger is rolled back.
    pub kept: bool,
}

/// How errors of one metric change over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorTrend {
    /// When it was looked at.
    pub timestamp: SystemTime,
    /// `latency`, `throughput` or `memory`.
    pub metric: String,
    /// `improving`, `worsening` or `stable`.
    pub direction: String,
    /// Kendall's τ: from -1, falling all the time, to 1, rising all the time.
    pub strength: f64,
    /// The probability of a trend this strong by chance.
    pub p_value: f64,
    /// Observations behind it.
    pub observations: usize,
    /// Their mean error rate.
    pub mean_error_rate: f64,
}

/// A setting that was changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingChange {
    /// When.
    pub timestamp: SystemTime,
    /// The backend.
    pub hardware_platform: String,
    /// Which one.
    pub setting: String,
    /// What it was.
    pub before: f64,
    /// What it is.
    pub after: f64,
    /// Why.
    pub reason: String,
}
