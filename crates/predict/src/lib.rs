//! What a mix of models will cost, before it runs.
//!
//! A [`Mix`] is what is to run together on one device: jobs, each of them pieces of models, under
//! a [`Strategy`]. An [`Estimate`] says what that will take, how sure that is and why. What it
//! really took is [`Measured`], and what was measured makes the next estimate better.
//!
//! ```
//! # use std::sync::Arc;
//! use holdfast_predict::{DeviceProfile, Features, Job, Mix, Piece, Predictor, Strategy};
//! # let device = DeviceProfile { key: "cpu".into(), backend: "cpu".into(), adapter: "".into(),
//! #     software_adapter: false, slots: 2, threads: 1, cores: 2, rates: None };
//! # let segment = holdfast_graph::Digest::of(b"segment");
//! # let piece = Piece { label: "minilm".into(), segment, features: Arc::new(Features::default()),
//! #     weights: Arc::new([]), resident: true };
//! let job = Job { model: "minilm".into(), pieces: vec![piece] };
//! let mix = Mix {
//!     device: Arc::new(device),
//!     strategy: Strategy::Parallel,
//!     stages: vec![vec![job.clone(), job]],
//!     answers: 2,
//!     memory_now: None,
//!     warmed_up: false,
//! };
//! let predictor = Predictor::new();
//! let estimate = predictor.estimate(&mix);
//! assert!(estimate.latency_seconds.low < estimate.latency_seconds.value);
//! for term in &estimate.terms {
//!     println!("{}: {} {} ({:?})", term.what, term.value, term.unit, term.source);
//! }
//! ```
//!
//! Pure: it is given graphs, calibrations and measurements, and runs nothing. It reads no clock
//! and no file; what is to be kept goes to a [`Recorder`].

mod adapt;
mod advice;
mod classes;
mod conformal;
mod device;
mod estimate;
mod experts;
mod features;
mod fit;
mod gain;
#[cfg(test)]
mod goals;
mod interference;
mod knowledge;
mod measured;
mod memory;
mod mix;
#[cfg(test)]
mod noise;
mod outline;
mod pace;
mod predictor;
mod prior;
#[cfg(test)]
mod properties;
mod recent;
mod recommend;
mod record;
mod refine;
mod ridge;
mod rivalry;
mod runs;
mod segments;
mod settings;
mod sharing;
mod strategy;
mod terms;
mod trend;
mod validation;
mod work;
#[cfg(test)]
mod world;

pub use adapt::StrategyComparison;
pub use advice::{Refinement, RefinementAdvice};
pub use device::{DeviceProfile, Rates};
pub use estimate::{Estimate, Quantity, Term, TermSource};
pub use features::{ClassWork, Features, OperatorClass, RunSize};
pub use measured::{LoadTime, Measured, RunTime};
pub use mix::{Job, Mix, Piece, Weight};
pub use predictor::{Predictor, PredictorError};
pub use recommend::Recommendation;
pub use record::{
    ErrorTrend, Inference, Kept, OptimizationImpact, Record, Recorder, RefinementRecord,
    SettingChange, ValidationRecord,
};
pub use settings::{BackendSettings, Setting, SettingError, Settings};
pub use strategy::{Goal, Strategy};
pub use validation::{ErrorRates, Errors, Metric, Validated, Validator, ValidatorOptions};
