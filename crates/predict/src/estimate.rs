//! What something will take, how sure that is, and why.

use serde::{Deserialize, Serialize};

/// What running a mix will take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Seconds from the first request to the last answer.
    pub latency_seconds: Quantity,
    /// Answers a second.
    pub throughput_per_second: Quantity,
    /// Bytes of memory at the worst moment.
    pub memory_bytes: Quantity,
    /// Measurements behind it.
    pub observations: usize,
    /// What it is made of.
    pub terms: Vec<Term>,
}

/// A figure that lies between two others in 90 of 100 cases.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantity {
    /// The best guess.
    pub value: f64,
    /// One case in twenty is below.
    pub low: f64,
    /// One case in twenty is above.
    pub high: f64,
    /// Where the least sure of what it is made of comes from.
    pub source: TermSource,
}

impl Quantity {
    /// Whether a measurement lies in the interval.
    pub fn covers(&self, measured: f64) -> bool {
        self.low <= measured && measured <= self.high
    }
}

/// A part of an estimate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Term {
    /// What it stands for, for people: `minilm: matmul`, `interference of 3 models`.
    pub what: String,
    /// How much.
    pub value: f64,
    /// Of what: `s`, `bytes`, `×`.
    pub unit: String,
    /// Where it comes from.
    pub source: TermSource,
}

/// Where a term comes from, the surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TermSource {
    /// This was measured.
    Measured,
    /// Between or beyond measurements of the same model at other sizes.
    Interpolated,
    /// Fitted to measurements of other models on this device.
    Fitted,
    /// Nothing like it was measured here: what ships with Holdfast, and the calibration.
    Prior,
}
