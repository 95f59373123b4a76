//! Several views of how far estimates are off, weighed by how right each of them was lately.
//!
//! One expert looks at everything, one at the backend, one at the strategy, one at the number of
//! models, one at the latest mixes only. They say nothing until a refinement asks them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::strategy::Strategy;

/// Experts: everything, backend, strategy, number of models, the latest.
const EXPERTS: usize = 5;
/// How fast an expert that is wrong loses its say.
const SHARPNESS: f64 = 30.0;
/// The latest mixes.
const LATEST: usize = 12;
/// What doubt weighs, in mixes.
const DOUBT: f64 = 2.0;
/// Numbers of models that are told apart.
const COUNTS: usize = 8;
/// Backends that are told apart.
const BACKENDS: usize = 8;

/// A mix and the logarithm of measured over estimated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Miss<'a> {
    pub(crate) backend: &'a str,
    pub(crate) strategy: Strategy,
    pub(crate) models: usize,
    pub(crate) log: f64,
}

/// What the experts have to say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Experts {
    everything: f64,
    backends: BTreeMap<String, f64>,
    strategies: [f64; 3],
    counts: [f64; COUNTS],
    latest: f64,
    weights: [f64; EXPERTS],
}

impl Experts {
    /// Experts who know these misses, the oldest first.
    pub(crate) fn of(misses: &[Miss<'_>]) -> Experts {
        let mean = |keep: &dyn Fn(&Miss<'_>) -> bool| {
            let (mut sum, mut count) = (0.0, DOUBT);
            for miss in misses.iter().filter(|miss| keep(miss)) {
                sum += miss.log.clamp(-1.0, 1.0);
                count += 1.0;
            }
            sum / count
        };
        let mut experts = Experts { everything: mean(&|_| true), ..Experts::default() };
        for miss in misses {
            if experts.backends.len() < BACKENDS && !experts.backends.contains_key(miss.backend) {
                let value = mean(&|other| other.backend == miss.backend);
                experts.backends.insert(miss.backend.to_owned(), value);
            }
        }
        for strategy in Strategy::ALL {
            experts.strategies[strategy as usize] = mean(&|miss| miss.strategy == strategy);
        }
        for (index, value) in experts.counts.iter_mut().enumerate() {
            *value = mean(&|miss| count(miss.models) == index);
        }
        let latest = &misses[misses.len().saturating_sub(LATEST)..];
        let sum: f64 = latest.iter().map(|miss| miss.log.clamp(-1.0, 1.0)).sum();
        experts.latest = sum / (latest.len() as f64 + DOUBT);
        experts.weigh(misses);
        experts
    }

    /// The logarithm of what to multiply an estimate with.
    pub(crate) fn log(&self, backend: &str, strategy: Strategy, models: usize) -> f64 {
        let voices = self.voices(backend, strategy, models);
        voices.iter().zip(&self.weights).map(|(voice, weight)| voice * weight).sum()
    }

    /// Whether they have anything to say.
    pub(crate) fn is_silent(&self) -> bool {
        self.weights.iter().all(|weight| *weight == 0.0)
    }

    fn voices(&self, backend: &str, strategy: Strategy, models: usize) -> [f64; EXPERTS] {
        [
            self.everything,
            self.backends.get(backend).copied().unwrap_or(0.0),
            self.strategies[strategy as usize],
            self.counts[count(models)],
            self.latest,
        ]
    }

    /// Gives those more say who were nearer, newer misses counting more.
    fn weigh(&mut self, misses: &[Miss<'_>]) {
        let mut errors = [0.0; EXPERTS];
        let (mut all, mut weight) = (0.0, 1.0);
        for miss in misses.iter().rev() {
            let voices = self.voices(miss.backend, miss.strategy, miss.models);
            for (error, voice) in errors.iter_mut().zip(voices) {
                *error += weight * (miss.log.clamp(-1.0, 1.0) - voice).abs();
            }
            all += weight;
            weight *= 0.97;
        }
        if all == 0.0 {
            return;
        }
        let least = errors.iter().copied().fold(f64::INFINITY, f64::min);
        let say = errors.map(|error| (-SHARPNESS * (error - least) / all).exp());
        let sum: f64 = say.iter().sum();
        self.weights = say.map(|one| one / sum);
    }
}

fn count(models: usize) -> usize {
    models.clamp(1, COUNTS) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn miss(backend: &str, models: usize, log: f64) -> Miss<'_> {
        Miss { backend, strategy: Strategy::Parallel, models, log }
    }

    #[test]
    fn say_nothing_before_they_are_asked() {
        let experts = Experts::default();
        assert!(experts.is_silent());
        assert_eq!(experts.log("cpu", Strategy::Parallel, 2), 0.0);
        assert_eq!(Experts::of(&[]).log("cpu", Strategy::Parallel, 2), 0.0);
    }

    #[test]
    fn the_expert_for_backends_prevails_where_backends_differ() {
        let misses: Vec<Miss<'_>> = (0..40)
            .map(|step| match step % 2 {
                0 => miss("cpu", 2 + step / 2 % 4, 0.3),
                _ => miss("wasm", 2 + step / 2 % 4, -0.3),
            })
            .collect();
        let experts = Experts::of(&misses);
        assert!(experts.log("cpu", Strategy::Parallel, 3) > 0.2);
        assert!(experts.log("wasm", Strategy::Parallel, 3) < -0.2);
    }

    #[test]
    fn none_of_them_makes_something_of_noise() {
        let misses: Vec<Miss<'_>> =
            (0..40).map(|step| miss("cpu", 2, if step % 2 == 0 { 0.1 } else { -0.1 })).collect();
        assert!(Experts::of(&misses).log("cpu", Strategy::Parallel, 2).abs() < 0.02);
    }
}
