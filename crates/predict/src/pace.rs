//! How fast a device is now, compared with how fast it was when its segments were measured.
//!
//! A background load slows everything down alike. Kept apart from what single segments cost, such
//! a change is learned once, not anew for each segment, and is not counted twice when segments
//! are measured again.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::recent::median;

/// Surprises that are looked at together.
const SURPRISES: usize = 6;
/// Runs that make one surprise: they are short, and a moment is not a change.
const RUNS: usize = 3;
/// How large they have to be to be a change: a logarithm.
const CHANGE: f64 = 0.12;
/// How far a single run moves the pace.
const RUN_GAIN: f64 = 0.01;
/// How far a single mix does.
const MIX_GAIN: f64 = 0.02;
/// The pace never goes beyond this: a logarithm.
const LIMIT: f64 = 3.0;

/// The pace of one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pace {
    log: f64,
    surprises: VecDeque<f64>,
    /// Runs that do not make a surprise yet: of which segment, and how far off.
    runs: Vec<(u64, f64)>,
}

impl Pace {
    /// The logarithm of the factor by which everything takes longer.
    pub(crate) fn log(&self) -> f64 {
        self.log
    }

    /// Takes the logarithm of measured over expected of a run. `segment` tells segments apart:
    /// that one of them changed does not make a device slow.
    pub(crate) fn observe_run(&mut self, segment: u64, surprise: f64) {
        if !surprise.is_finite() {
            return;
        }
        self.shift(RUN_GAIN * surprise.clamp(-0.1, 0.1));
        self.runs.push((segment, surprise));
        if self.runs.len() < RUNS {
            return;
        }
        let runs = std::mem::take(&mut self.runs);
        if runs.iter().any(|(other, _)| *other != runs[0].0) {
            self.surprise(median(runs.iter().map(|(_, surprise)| *surprise)));
        }
    }

    /// The same of a mix.
    pub(crate) fn observe_mix(&mut self, surprise: f64) {
        if surprise.is_finite() {
            self.shift(MIX_GAIN * surprise.clamp(-0.1, 0.1));
            self.surprise(surprise);
        }
    }

    fn surprise(&mut self, surprise: f64) {
        if self.surprises.len() == SURPRISES {
            self.surprises.pop_front();
        }
        self.surprises.push_back(surprise);
        if self.is_change() {
            self.shift(median(self.surprises.iter().copied()));
            self.surprises.clear();
        }
    }

    /// Moves it by hand: a refinement has found out better.
    pub(crate) fn shift(&mut self, by: f64) {
        if by.is_finite() {
            self.log = (self.log + by).clamp(-LIMIT, LIMIT);
        }
    }

    /// Whether all the latest surprises point the same way, and far enough.
    fn is_change(&self) -> bool {
        let above = self.surprises.iter().all(|surprise| *surprise > CHANGE / 3.0);
        let below = self.surprises.iter().all(|surprise| *surprise < -CHANGE / 3.0);
        let far = median(self.surprises.iter().map(|surprise| surprise.abs())) > CHANGE;
        self.surprises.len() == SURPRISES && (above || below) && far
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(mixes: &[f64]) -> f64 {
        let mut pace = Pace::default();
        mixes.iter().for_each(|surprise| pace.observe_mix(*surprise));
        pace.log()
    }

    #[test]
    fn a_change_of_everything_is_taken_over() {
        let log = after(&[0.5, 0.55, 0.52, 0.5, 0.53, 0.54]);
        assert!((log - 0.53).abs() < 0.03, "{log}");
        let mut pace = Pace::default();
        (0..18).for_each(|run| pace.observe_run(run % 3, -0.5));
        assert!((pace.log() + 0.5).abs() < 0.04, "{pace:?}");
    }

    #[test]
    fn a_change_of_one_segment_is_not() {
        let mut pace = Pace::default();
        (0..40).for_each(|_| pace.observe_run(1, 0.5));
        assert!(pace.log() < 0.05, "{pace:?}");
    }

    #[test]
    fn a_slow_moment_is_not() {
        let mut pace = Pace::default();
        (0..12).for_each(|run| pace.observe_run(run, 0.5));
        (0..8).for_each(|run| pace.observe_run(run, 0.0));
        assert!(pace.log() < 0.02, "{pace:?}");
    }

    #[test]
    fn noise_is_not() {
        let log = after(&[0.2, -0.2, 0.3, 0.2, -0.1, 0.2]);
        assert!(log.abs() < 0.02, "{log}");
    }

    #[test]
    fn stays_within_its_limit() {
        let mut pace = Pace::default();
        for run in 0..500 {
            pace.observe_run(run, 9.0);
            pace.observe_mix(9.0);
        }
        pace.observe_mix(f64::NAN);
        pace.observe_run(1, f64::NAN);
        assert_eq!(pace.log(), LIMIT);
        assert!(pace.surprises.len() <= SURPRISES && pace.runs.len() <= RUNS);
    }
}
