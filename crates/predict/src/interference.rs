//! What jobs that run together do to each other, beyond sharing what the device can do.
//!
//! Two models, both linear, both starting at "nothing": how long the times with each crowd really
//! take and what each job adds, for a device; and a factor that depends on what the jobs are
//! like, for a device and a strategy.

use serde::{Deserialize, Serialize};

use crate::outline::Outline;
use crate::pace::Pace;
use crate::ridge::{Coefficient, Ridge};
use crate::sharing::CROWDS;
use crate::strategy::Strategy;

/// What a job's overhead is counted in.
const OVERHEAD_SECONDS: f64 = 1e-3;
/// How much of what was learned stays with each new observation.
pub(crate) const KEEP: f64 = 0.995;
/// Mixes of a strategy before they say anything about the pace of the device.
const SETTLED: u64 = 24;
/// Numbers that say what the jobs of a mix are like.
pub(crate) const TRAITS: usize = 5;

/// Interference on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Interference {
    pub(crate) pace: Pace,
    crowds: Ridge,
    traits: [Ridge; 3],
    mixes: [u64; 3],
}

impl Default for Interference {
    fn default() -> Interference {
        let crowd = Coefficient { prior: 1.0, spread: 3.0, low: 0.4, high: 4.0 };
        let job = Coefficient { prior: 0.0, spread: 10.0, low: 0.0, high: 20.0 };
        let mut crowds = vec![crowd; CROWDS];
        // A job alone takes what was measured: there is little to be learned.
        crowds[0].spread = 1.0;
        crowds.push(job);
        let one = Coefficient { prior: 0.0, spread: 1.2, low: -0.7, high: 0.7 };
        let trait_of_jobs = Coefficient { prior: 0.0, spread: 0.8, low: -0.3, high: 0.3 };
        let mut traits = vec![trait_of_jobs; TRAITS];
        traits[0] = one;
        let traits = Ridge::new(traits);
        Interference {
            pace: Pace::default(),
            crowds: Ridge::new(crowds),
            traits: [traits.clone(), traits.clone(), traits],
            mixes: [0; 3],
        }
    }
}

/// What a mix takes, and what that is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Together {
    /// Seconds, pace and all.
    pub(crate) seconds: f64,
    /// Seconds by plain sharing.
    pub(crate) shared: f64,
    /// Seconds that the jobs' overhead adds.
    pub(crate) overhead: f64,
    /// The factor of how the crowds really fare.
    pub(crate) crowds: f64,
    /// The factor of what the jobs are like.
    pub(crate) traits: f64,
    /// The factor of the pace.
    pub(crate) pace: f64,
}

impl Interference {
    /// Mixes of a strategy that were learned from.
    pub(crate) fn mixes(&self, strategy: Strategy) -> u64 {
        self.mixes[strategy as usize]
    }

    /// Mixes that were learned from.
    pub(crate) fn all_mixes(&self) -> u64 {
        self.mixes.iter().sum()
    }

    pub(crate) fn together(&self, outline: &Outline, strategy: Strategy) -> Together {
        let inputs = crowd_inputs(outline);
        let shared: f64 = outline.times.iter().sum();
        let overhead = self.crowds.solution()[CROWDS] * inputs[CROWDS];
        let crowded = self.crowds.predict(&inputs).max(shared * 0.1);
        let traits = self.traits[strategy as usize].predict(&outline.traits).clamp(-1.0, 1.0);
        let pace = self.pace.log().exp();
        Together {
            seconds: crowded * traits.exp() * pace,
            shared,
            overhead,
            crowds: (crowded - overhead) / shared.max(f64::MIN_POSITIVE),
            traits: traits.exp(),
            pace,
        }
    }

    /// Learns from a mix that took `seconds`, once what experts know is taken off.
    pub(crate) fn observe(&mut self, outline: &Outline, strategy: Strategy, seconds: f64) {
        let surprise = (seconds / self.together(outline, strategy).seconds).ln();
        let certain = outline.certainty();
        if certain >= 0.5 && self.mixes(strategy) >= SETTLED {
            self.pace.observe_mix(surprise);
        }
        self.learn(outline, strategy, seconds * (-self.pace.log()).exp(), KEEP);
    }

    /// Learns from a mix that takes `seconds` at the pace of 1.
    pub(crate) fn learn(&mut self, outline: &Outline, strategy: Strategy, seconds: f64, keep: f64) {
        let now = self.together(outline, strategy);
        let surprise = (seconds * now.pace / now.seconds).ln();
        if !surprise.is_finite() {
            return;
        }
        // What is far off is more likely an accident than something to learn.
        let weight = outline.certainty() * (0.15 / surprise.abs().max(0.15));
        let plain = seconds / now.traits;
        let inputs = crowd_inputs(outline).map(|input| input / plain);
        self.crowds.learn(&inputs, 1.0, weight, keep);
        let crowded = self.crowds.predict(&crowd_inputs(outline));
        let rest = (seconds / crowded.max(f64::MIN_POSITIVE)).ln().clamp(-1.0, 1.0);
        self.traits[strategy as usize].learn(&outline.traits, rest, weight, keep);
        self.mixes[strategy as usize] += 1;
    }

    /// Forgets everything but the pace.
    pub(crate) fn start_over(&mut self) {
        let pace = self.pace.clone();
        *self = Interference { pace, ..Interference::default() };
    }
}

fn crowd_inputs(outline: &Outline) -> [f64; CROWDS + 1] {
    let mut inputs = [0.0; CROWDS + 1];
    inputs[..CROWDS].copy_from_slice(&outline.times);
    inputs[CROWDS] = outline.jobs as f64 * OVERHEAD_SECONDS;
    inputs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(times: [f64; CROWDS], jobs: usize) -> Outline {
        Outline { times, jobs, ..Outline::default() }
    }

    #[test]
    fn knows_of_none_at_first() {
        let outline = outline([1.0, 2.0, 0.0, 0.0, 0.0], 3);
        let together = Interference::default().together(&outline, Strategy::Parallel);
        assert_eq!((together.seconds, together.shared), (3.0, 3.0));
        assert_eq!((together.crowds, together.traits, together.pace), (1.0, 1.0, 1.0));
    }

    #[test]
    fn learns_that_two_at_once_are_slower_than_plain_sharing() {
        let mut interference = Interference::default();
        for step in 0..60 {
            let pair = outline([0.0, 0.05 + 0.001 * f64::from(step % 7), 0.0, 0.0, 0.0], 2);
            interference.observe(&pair, Strategy::Parallel, pair.times[1] * 1.3);
            let alone = outline([0.08, 0.0, 0.0, 0.0, 0.0], 2);
            interference.observe(&alone, Strategy::Sequential, 0.08);
        }
        let pair = outline([0.0, 0.06, 0.0, 0.0, 0.0], 2);
        let off = interference.together(&pair, Strategy::Parallel).seconds / (0.06 * 1.3) - 1.0;
        assert!(off.abs() < 0.05, "{off}");
        let alone = outline([0.08, 0.0, 0.0, 0.0, 0.0], 2);
        let off = interference.together(&alone, Strategy::Sequential).seconds / 0.08 - 1.0;
        assert!(off.abs() < 0.03, "{off}");
    }

    #[test]
    fn one_mix_changes_little() {
        let mut interference = Interference::default();
        let pair = outline([0.0, 0.05, 0.0, 0.0, 0.0], 2);
        interference.observe(&pair, Strategy::Parallel, 5.0);
        let seconds = interference.together(&pair, Strategy::Parallel).seconds;
        assert!(seconds < 0.15, "{seconds}");
    }

    #[test]
    fn what_is_no_number_teaches_nothing() {
        let mut interference = Interference::default();
        let pair = outline([0.0, 0.05, 0.0, 0.0, 0.0], 2);
        interference.learn(&pair, Strategy::Parallel, f64::NAN, 1.0);
        assert_eq!(interference, Interference::default());
    }
}
