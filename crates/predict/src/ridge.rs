//! Least squares with a prior and bounds, one observation at a time.
//!
//! Every learned number of this crate comes from here: it starts at what ships, moves as far as
//! data asks for it, and never leaves its bounds. Old data fades by a factor with each new
//! observation, which is recursive least squares in its information form.

use serde::{Deserialize, Serialize};

/// How often the solver goes over all coefficients at most.
const SWEEPS: usize = 60;

/// Larger numbers are no observation; their products would soon be no numbers.
const MOST: f64 = 1e12;

/// A coefficient before any data.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Coefficient {
    /// What it is taken to be.
    pub(crate) prior: f64,
    /// How far from that it may well be, as a multiple of the noise of one observation.
    pub(crate) spread: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// A linear model under bounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ridge {
    coefficients: Vec<Coefficient>,
    /// Sums of products of inputs, row by row.
    gram: Vec<f64>,
    /// Sums of products of inputs and outputs.
    moment: Vec<f64>,
    solution: Vec<f64>,
    /// Weight of all observations, faded.
    weight: f64,
}

impl Ridge {
    pub(crate) fn new(coefficients: Vec<Coefficient>) -> Ridge {
        let size = coefficients.len();
        Ridge {
            gram: vec![0.0; size * size],
            moment: vec![0.0; size],
            solution: coefficients.iter().map(|one| one.prior).collect(),
            weight: 0.0,
            coefficients,
        }
    }

    /// The coefficients as they are now.
    pub(crate) fn solution(&self) -> &[f64] {
        &self.solution
    }

    /// How many observations stand behind it, faded ones counted less.
    pub(crate) fn weight(&self) -> f64 {
        self.weight
    }

    pub(crate) fn predict(&self, inputs: &[f64]) -> f64 {
        self.solution.iter().zip(inputs).map(|(one, input)| one * input).sum()
    }

    /// Takes an observation and solves again.
    pub(crate) fn learn(&mut self, inputs: &[f64], output: f64, weight: f64, keep: f64) {
        self.add(inputs, output, weight, keep);
        self.solve();
    }

    /// Takes an observation. What was there before counts `keep` times as much from now on.
    pub(crate) fn add(&mut self, inputs: &[f64], output: f64, weight: f64, keep: f64) {
        let sound = inputs.iter().chain([&output]).all(|one| one.abs() <= MOST);
        if !sound || inputs.len() != self.moment.len() {
            return;
        }
        let size = inputs.len();
        for (row, input) in inputs.iter().enumerate() {
            for (column, other) in inputs.iter().enumerate() {
                let cell = &mut self.gram[row * size + column];
                *cell = *cell * keep + weight * input * other;
            }
            self.moment[row] = self.moment[row] * keep + weight * input * output;
        }
        self.weight = self.weight * keep + weight;
    }

    /// Finds the coefficients of least error, by going down along one at a time.
    pub(crate) fn solve(&mut self) {
        let size = self.moment.len();
        for _ in 0..SWEEPS {
            let mut moved = 0.0_f64;
            for row in 0..size {
                let Coefficient { prior, spread, low, high } = self.coefficients[row];
                let precision = 1.0 / (spread * spread).max(1e-18);
                let others: f64 = (0..size)
                    .filter(|column| *column != row)
                    .map(|column| self.gram[row * size + column] * self.solution[column])
                    .sum();
                let best = (self.moment[row] - others + precision * prior)
                    / (self.gram[row * size + row] + precision);
                let best = if best.is_finite() { best.clamp(low, high) } else { prior };
                moved = moved.max((best - self.solution[row]).abs() / spread.max(1e-9));
                self.solution[row] = best;
            }
            if moved < 1e-9 {
                break;
            }
        }
    }

    /// Forgets all data.
    pub(crate) fn reset(&mut self) {
        *self = Ridge::new(std::mem::take(&mut self.coefficients));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(prior: f64, spread: f64) -> Coefficient {
        Coefficient { prior, spread, low: -1e9, high: 1e9 }
    }

    #[test]
    fn starts_at_its_prior() {
        let ridge = Ridge::new(vec![free(2.0, 1.0), free(-1.0, 1.0)]);
        assert_eq!(ridge.predict(&[1.0, 3.0]), -1.0);
        assert_eq!(ridge.weight(), 0.0);
    }

    #[test]
    fn finds_a_line() {
        let mut ridge = Ridge::new(vec![free(0.0, 100.0), free(0.0, 100.0)]);
        for x in 0..20 {
            ridge.learn(&[1.0, f64::from(x)], 3.0 + 2.0 * f64::from(x), 1.0, 1.0);
        }
        assert!((ridge.solution()[0] - 3.0).abs() < 0.01, "{:?}", ridge.solution());
        assert!((ridge.solution()[1] - 2.0).abs() < 0.01, "{:?}", ridge.solution());
    }

    #[test]
    fn one_observation_moves_a_sure_prior_little() {
        let mut ridge = Ridge::new(vec![free(1.0, 0.1)]);
        ridge.learn(&[1.0], 2.0, 1.0, 1.0);
        assert!(ridge.solution()[0] < 1.02, "{:?}", ridge.solution());
    }

    #[test]
    fn stays_within_bounds_whatever_the_data_say() {
        let mut ridge =
            Ridge::new(vec![Coefficient { prior: 1.0, spread: 10.0, low: 0.0, high: 3.0 }]);
        (0..50).for_each(|_| ridge.learn(&[1.0], -5.0, 1.0, 1.0));
        assert_eq!(ridge.solution(), [0.0]);
        (0..500).for_each(|_| ridge.learn(&[1.0], 50.0, 1.0, 0.9));
        assert_eq!(ridge.solution(), [3.0]);
    }

    #[test]
    fn old_data_fade_only_where_asked_to() {
        let learned = |keep| {
            let mut ridge = Ridge::new(vec![free(0.0, 100.0)]);
            (0..50).for_each(|_| ridge.learn(&[1.0], 1.0, 1.0, keep));
            (0..20).for_each(|_| ridge.learn(&[1.0], 2.0, 1.0, keep));
            ridge.solution()[0]
        };
        assert!(learned(0.8) > 1.95);
        assert!(learned(1.0) < 1.35);
    }

    #[test]
    fn what_is_not_a_number_teaches_nothing() {
        let mut ridge = Ridge::new(vec![free(1.0, 1.0)]);
        ridge.learn(&[f64::NAN], 1.0, 1.0, 1.0);
        ridge.learn(&[1.0], f64::INFINITY, 1.0, 1.0);
        ridge.learn(&[1.0, 2.0], 1.0, 1.0, 1.0);
        assert_eq!(ridge.solution(), [1.0]);
    }
}
