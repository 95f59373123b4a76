//! Compares predictions with measurements, and says what to do about errors.

use std::collections::{BTreeMap, VecDeque};
use std::time::SystemTime;

use crate::advice::{RefinementAdvice, advise};
use crate::estimate::Estimate;
use crate::measured::Measured;
use crate::mix::Mix;
use crate::record::{ErrorTrend, ValidationRecord};
use crate::strategy::{Goal, Strategy};
use crate::trend::trend;

/// Mebibytes are what tables show.
const MEBIBYTE: f64 = 1024.0 * 1024.0;
/// Trends are looked for in the latest validations only.
const TREND_WINDOW: usize = 60;
/// A trend that could be chance more often than this is none.
const SIGNIFICANT: f64 = 0.05;

/// What is predicted and measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metric {
    /// Answers a second.
    Throughput,
    /// Time from the first request to the last answer.
    Latency,
    /// Memory at the worst moment.
    Memory,
}

impl Metric {
    /// All of them.
    pub const ALL: [Metric; 3] = [Metric::Throughput, Metric::Latency, Metric::Memory];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Throughput => "throughput",
            Metric::Latency => "latency",
            Metric::Memory => "memory",
        }
    }

    /// How far a prediction was off; `None` if it was not measured.
    pub fn error_rate(self, record: &ValidationRecord) -> Option<f64> {
        match self {
            Metric::Throughput => Some(record.throughput_error_rate()),
            Metric::Latency => Some(record.latency_error_rate()),
            Metric::Memory => record.memory_error_rate(),
        }
    }

    /// The logarithm of measured over predicted: above 0 if it was predicted too low.
    pub(crate) fn bias(self, record: &ValidationRecord) -> Option<f64> {
        let (predicted, actual) = match self {
            Metric::Throughput => (record.predicted_throughput, record.actual_throughput),
            Metric::Latency => (record.predicted_latency, record.actual_latency),
            Metric::Memory => (record.predicted_memory, record.actual_memory?),
        };
        Some((actual / predicted).ln()).filter(|bias| bias.is_finite())
    }
}

/// How a [`Validator`] works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValidatorOptions {
    /// Every so many executions one is validated; 1 for all.
    pub interval: usize,
    /// Validations that are kept in memory.
    pub history: usize,
    /// Errors above this are worth doing something about.
    pub error_threshold: f64,
}

impl Default for ValidatorOptions {
    fn default() -> ValidatorOptions {
        ValidatorOptions { interval: 10, history: 1000, error_threshold: 0.15 }
    }
}

/// Mean error rates; `None` where nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ErrorRates {
    /// Validations.
    pub count: usize,
    /// Of answers a second.
    pub throughput: Option<f64>,
    /// Of latency.
    pub latency: Option<f64>,
    /// Of memory.
    pub memory: Option<f64>,
}

/// Error rates of what a validator keeps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Errors {
    /// Of all.
    pub overall: ErrorRates,
    /// By backend.
    pub by_backend: BTreeMap<String, ErrorRates>,
    /// By strategy.
    pub by_strategy: BTreeMap<Strategy, ErrorRates>,
    /// By the number of models.
    pub by_model_count: BTreeMap<usize, ErrorRates>,
}

/// What came of a validation.
#[derive(Clone, Debug, PartialEq)]
pub struct Validated {
    /// The prediction beside the measurement.
    pub record: ValidationRecord,
    /// How errors change, one trend for each metric that was measured.
    pub trends: Vec<ErrorTrend>,
    /// What to do about errors.
    pub recommendations: Vec<RefinementAdvice>,
}

/// Keeps the latest validations.
#[derive(Clone, Debug, Default)]
pub struct Validator {
    options: ValidatorOptions,
    records: VecDeque<ValidationRecord>,
    executions: usize,
    /// Validations since the last refinement: older ones are of another predictor.
    since_refinement: usize,
}

impl Validator {
    /// One that has seen nothing yet.
    pub fn new(options: ValidatorOptions) -> Validator {
        Validator { options, ..Validator::default() }
    }

    /// How it works.
    pub fn options(&self) -> &ValidatorOptions {
        &self.options
    }

    /// Counts an execution, and says whether it is one to validate.
    pub fn is_due(&mut self) -> bool {
        self.executions += 1;
        self.executions.is_multiple_of(self.options.interval.max(1))
    }

    /// Compares what was predicted with what was measured. `model_configs` are the models with
    /// their sizes, as JSON.
    pub fn validate_prediction(
        &mut self,
        mix: &Mix,
        goal: Goal,
        estimate: &Estimate,
        measured: &Measured,
        now: SystemTime,
        model_configs: String,
    ) -> Validated {
        let milliseconds = |seconds: f64| seconds * 1e3;
        let record = ValidationRecord {
            timestamp: now,
            model_count: mix.answers,
            hardware_platform: mix.device.backend.clone(),
            execution_strategy: mix.strategy,
            optimization_goal: goal,
            predicted_throughput: estimate.throughput_per_second.value,
            actual_throughput: measured.throughput_per_second,
            predicted_latency: milliseconds(estimate.latency_seconds.value),
            predicted_latency_low: milliseconds(estimate.latency_seconds.low),
            predicted_latency_high: milliseconds(estimate.latency_seconds.high),
            actual_latency: milliseconds(measured.latency_seconds),
            predicted_memory: estimate.memory_bytes.value / MEBIBYTE,
            actual_memory: measured.memory_bytes.map(|bytes| bytes / MEBIBYTE),
            model_configs,
        };
        self.add(record.clone());
        Validated {
            record,
            trends: self.trends(now),
            recommendations: self.refinement_recommendations(),
        }
    }

    /// Adds one that was made before, as when it is read from a table.
    pub fn add(&mut self, record: ValidationRecord) {
        while self.records.len() >= self.options.history.max(1) {
            self.records.pop_front();
        }
        self.records.push_back(record);
        self.since_refinement = (self.since_refinement + 1).min(self.records.len());
    }

    /// The validations that it keeps, the oldest first.
    pub fn records(&self) -> impl ExactSizeIterator<Item = &ValidationRecord> {
        self.records.iter()
    }

    /// Says that the predictor was refined: what was validated before says nothing of it.
    pub fn refined(&mut self) {
        self.since_refinement = 0;
    }

    /// Mean error rates of all that it keeps.
    pub fn errors(&self) -> Errors {
        let mut overall = Tally::default();
        let mut backends: BTreeMap<String, Tally> = BTreeMap::new();
        let mut strategies: BTreeMap<Strategy, Tally> = BTreeMap::new();
        let mut counts: BTreeMap<usize, Tally> = BTreeMap::new();
        for record in &self.records {
            overall.add(record);
            backends.entry(record.hardware_platform.clone()).or_default().add(record);
            strategies.entry(record.execution_strategy).or_default().add(record);
            counts.entry(record.model_count).or_default().add(record);
        }
        Errors {
            overall: overall.rates(),
            by_backend: rates(backends),
            by_strategy: rates(strategies),
            by_model_count: rates(counts),
        }
    }

    /// How the errors of each metric change over the latest validations.
    pub fn trends(&self, now: SystemTime) -> Vec<ErrorTrend> {
        let latest = self.latest(TREND_WINDOW);
        let of = |metric: Metric| {
            let errors: Vec<f64> =
                latest.iter().filter_map(|record| metric.error_rate(record)).collect();
            if errors.is_empty() {
                return None;
            }
            let found = trend(&errors);
            let direction = match found.p_value < SIGNIFICANT {
                true if found.tau > 0.0 => "worsening",
                true if found.tau < 0.0 => "improving",
                _ => "stable",
            };
            Some(ErrorTrend {
                timestamp: now,
                metric: metric.name().to_owned(),
                direction: direction.to_owned(),
                strength: found.tau,
                p_value: found.p_value,
                observations: errors.len(),
                mean_error_rate: errors.iter().sum::<f64>() / errors.len() as f64,
            })
        };
        Metric::ALL.into_iter().filter_map(of).collect()
    }

    /// What to do about errors since the last refinement, if anything.
    pub fn refinement_recommendations(&self) -> Vec<RefinementAdvice> {
        advise(&self.latest(self.since_refinement), self.options.error_threshold)
    }

    fn latest(&self, count: usize) -> Vec<&ValidationRecord> {
        self.records.iter().skip(self.records.len().saturating_sub(count)).collect()
    }
}

fn rates<K: Ord>(tallies: BTreeMap<K, Tally>) -> BTreeMap<K, ErrorRates> {
    tallies.into_iter().map(|(key, tally)| (key, tally.rates())).collect()
}

/// Sums of error rates.
#[derive(Default)]
struct Tally {
    count: usize,
    sums: [(f64, usize); 3],
}

impl Tally {
    fn add(&mut self, record: &ValidationRecord) {
        self.count += 1;
        for (metric, (sum, count)) in Metric::ALL.into_iter().zip(&mut self.sums) {
            if let Some(error) = metric.error_rate(record) {
                *sum += error;
                *count += 1;
            }
        }
    }

    fn rates(&self) -> ErrorRates {
        let mean = |(sum, count): (f64, usize)| (count > 0).then(|| sum / count as f64);
        let [throughput, latency, memory] = self.sums.map(mean);
        ErrorRates { count: self.count, throughput, latency, memory }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::advice::Refinement;
    use crate::noise::Noise;
    use crate::predictor::Predictor;
    use crate::world::World;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    /// A validation whose latency was so many times what was predicted.
    pub(crate) fn record(backend: &str, strategy: Strategy, off: f64) -> ValidationRecord {
        ValidationRecord {
            timestamp: NOW,
            model_count: 3,
            hardware_platform: backend.to_owned(),
            execution_strategy: strategy,
            optimization_goal: Goal::Latency,
            predicted_throughput: 100.0,
            actual_throughput: 100.0 / off,
            predicted_latency: 10.0,
            predicted_latency_low: 8.0,
            predicted_latency_high: 12.0,
            actual_latency: 10.0 * off,
            predicted_memory: 200.0,
            actual_memory: None,
            model_configs: String::new(),
        }
    }

    fn validator(offs: impl IntoIterator<Item = f64>) -> Validator {
        let mut validator = Validator::default();
        offs.into_iter().for_each(|off| validator.add(record("cpu", Strategy::Parallel, off)));
        validator
    }

    #[test]
    fn every_tenth_execution_is_due_or_every_one() {
        let due = |interval| {
            let options = ValidatorOptions { interval, ..ValidatorOptions::default() };
            let mut validator = Validator::new(options);
            (0..30).filter(|_| validator.is_due()).count()
        };
        assert_eq!((due(10), due(1), due(0)), (3, 30, 30));
    }

    #[test]
    fn a_validation_holds_the_prediction_beside_the_measurement() {
        let mut world = World::new(2);
        let mix = world.mix(&[0, 1], Strategy::Batched);
        let estimate = Predictor::new().estimate(&mix);
        let measured = world.run(&mix);
        let mut validator = Validator::default();
        let configs = "{}".to_owned();
        let validated = validator.validate_prediction(
            &mix,
            Goal::Throughput,
            &estimate,
            &measured,
            NOW,
            configs,
        );
        let record = validated.record;
        assert_eq!(record.model_count, mix.answers);
        assert_eq!(record.actual_latency, measured.latency_seconds * 1e3);
        assert_eq!(record.predicted_memory, estimate.memory_bytes.value / MEBIBYTE);
        assert_eq!(validator.records().len(), 1);
        assert_eq!(validated.trends.len(), 3);
    }

    #[test]
    fn errors_are_kept_apart_by_backend_strategy_and_number_of_models() {
        let mut validator = Validator::default();
        validator.add(record("cpu", Strategy::Parallel, 2.0));
        validator.add(record("wasm", Strategy::Sequential, 1.0));
        let errors = validator.errors();
        assert_eq!(errors.overall.latency, Some(0.25));
        assert_eq!(errors.overall.memory, None);
        assert_eq!(errors.by_backend["cpu"].latency, Some(0.5));
        assert_eq!(errors.by_backend["wasm"].latency, Some(0.0));
        assert_eq!(errors.by_strategy[&Strategy::Parallel].throughput, Some(1.0));
        assert_eq!(errors.by_model_count[&3].count, 2);
        assert_eq!(Validator::default().errors(), Errors::default());
    }

    #[test]
    fn errors_that_grow_are_a_trend_and_those_that_shrink_another() {
        let direction = |offs: Vec<f64>| {
            let trends = validator(offs).trends(NOW);
            trends.into_iter().find(|trend| trend.metric == "latency").expect("measured").direction
        };
        let growing: Vec<f64> = (0..20).map(|step| 1.0 + 0.02 * f64::from(step)).collect();
        assert_eq!(direction(growing.iter().rev().copied().collect()), "improving");
        assert_eq!(direction(growing), "worsening");
        assert_eq!(direction(vec![1.1; 20]), "stable");
    }

    #[test]
    fn what_was_before_a_refinement_gives_no_more_advice() {
        let mut validator = validator(vec![1.7; 12]);
        let advice = validator.refinement_recommendations();
        assert_eq!(advice[0].refinement, Refinement::Window, "{advice:?}");
        validator.refined();
        assert!(validator.refinement_recommendations().is_empty());
    }

    #[test]
    fn good_predictions_need_no_refinement() {
        let mut noise = Noise::new(4);
        let good = validator((0..40).map(|_| 1.0 + 0.02 * noise.normal()));
        assert!(good.refinement_recommendations().is_empty());
    }

    #[test]
    fn keeps_no_more_than_its_history() {
        let options = ValidatorOptions { history: 7, ..ValidatorOptions::default() };
        let mut validator = Validator::new(options);
        (0..50).for_each(|_| validator.add(record("cpu", Strategy::Parallel, 1.0)));
        assert_eq!(validator.records().len(), 7);
        assert_eq!(validator.since_refinement, 7);
    }
}
