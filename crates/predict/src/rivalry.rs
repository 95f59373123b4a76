//! How strategies differ on the same workload.
//!
//! What is unknown of the models of a workload, or disturbs a moment, touches every way to run it
//! alike. It cancels out in a comparison, so that the ratio of two ways is known much better than
//! either of them; and to choose between them, only the ratio counts.

use serde::{Deserialize, Serialize};

use crate::interference::TRAITS;
use crate::outline::Outline;
use crate::recent::median;
use crate::ridge::{Coefficient, Ridge};
use crate::strategy::Strategy;

/// How much of what was learned stays with each new comparison.
const KEEP: f64 = 0.99;
/// Comparisons after which what they say counts as much as two estimates side by side.
const TRUSTED: f64 = 5.0;
/// Rounds of a comparison that counts once.
const USUAL: f64 = 5.0;
/// Rounds after which a comparison counts half of what it ever can: workloads differ by more than
/// what is measured of one, so that ever more rounds of the same say little.
const HALF: f64 = 2.0;
/// A ratio beyond this is an accident: a logarithm.
const LIMIT: f64 = 1.0;

/// What comparisons on one device showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rivalry {
    /// Of each strategy, beside one after the other, beyond plain sharing.
    beyond: [Ridge; 3],
}

/// The logarithm of what a strategy takes over what one after the other takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) log: f64,
    /// How much it counts beside two estimates: from 0, not at all, to 1.
    pub(crate) trust: f64,
}

impl Default for Rivalry {
    fn default() -> Rivalry {
        let bounded = |spread| Coefficient { prior: 0.0, spread, low: -LIMIT, high: LIMIT };
        let mut coefficients = vec![bounded(2.0); TRAITS];
        coefficients[0] = bounded(4.0);
        let ridge = Ridge::new(coefficients);
        Rivalry { beyond: [ridge.clone(), ridge.clone(), ridge] }
    }
}

impl Rivalry {
    /// What comparisons say of a strategy beside running the same one after the other.
    pub(crate) fn ratio(&self, strategy: Strategy, of: &Outline, sequential: &Outline) -> Ratio {
        let ridge = &self.beyond[strategy as usize];
        let log = shared(of, sequential) + ridge.predict(&of.traits);
        let trust = ridge.weight() / (ridge.weight() + TRUSTED);
        Ratio { log: log.clamp(-LIMIT, LIMIT), trust }
    }

    /// Learns from the logarithms of a ratio that was measured in so many rounds.
    pub(crate) fn learn(
        &mut self,
        strategy: Strategy,
        of: &Outline,
        sequential: &Outline,
        rounds: &[f64],
    ) {
        if rounds.is_empty() {
            return;
        }
        let beyond = median(rounds.iter().copied()) - shared(of, sequential);
        let part = |rounds: f64| rounds / (rounds + HALF);
        if beyond.abs() <= LIMIT {
            let weight = part(rounds.len() as f64) / part(USUAL);
            self.beyond[strategy as usize].learn(&of.traits, beyond, weight, KEEP);
        }
    }
}

/// The ratio by plain sharing.
fn shared(of: &Outline, sequential: &Outline) -> f64 {
    let all = |outline: &Outline| outline.times.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    (all(of) / all(sequential)).ln().clamp(-LIMIT, LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Noise;

    fn outline(seconds: f64, jobs: f64) -> Outline {
        let traits = [1.0, jobs.ln() - 1.0, 0.1, 0.2, 0.3];
        Outline { times: [seconds, 0.0, 0.0, 0.0, 0.0], traits, ..Outline::default() }
    }

    #[test]
    fn knows_plain_sharing_and_does_not_insist_on_it() {
        let (of, sequential) = (outline(0.5, 3.0), outline(1.0, 3.0));
        let ratio = Rivalry::default().ratio(Strategy::Parallel, &of, &sequential);
        assert_eq!(ratio, Ratio { log: 0.5f64.ln(), trust: 0.0 });
    }

    #[test]
    fn finds_a_small_difference_although_times_vary_much_more() {
        let mut noise = Noise::new(7);
        let mut rivalry = Rivalry::default();
        for _ in 0..30 {
            // Nobody knows what this workload takes, but both ways take as much more or less.
            let seconds = noise.normal().exp();
            let jobs = 2.0 + noise.below(5) as f64;
            let (of, sequential) = (outline(0.6 * seconds, jobs), outline(seconds, jobs));
            let measured = 0.6f64.ln() + 0.1 * (jobs.ln() - 1.0) + 0.03 * noise.normal();
            rivalry.learn(Strategy::Parallel, &of, &sequential, &[measured; 5]);
        }
        for jobs in [2.0, 6.0f64] {
            let ratio = rivalry.ratio(Strategy::Parallel, &outline(0.6, jobs), &outline(1.0, jobs));
            let expected = 0.6f64.ln() + 0.1 * (jobs.ln() - 1.0);
            assert!((ratio.log - expected).abs() < 0.03, "{ratio:?}, expected {expected}");
            assert!(ratio.trust > 0.8, "{ratio:?}");
        }
    }

    #[test]
    fn one_strategy_says_nothing_of_another() {
        let mut rivalry = Rivalry::default();
        let (of, sequential) = (outline(1.0, 3.0), outline(1.0, 3.0));
        (0..20).for_each(|_| rivalry.learn(Strategy::Batched, &of, &sequential, &[0.3; 5]));
        let ratio = |strategy| rivalry.ratio(strategy, &of, &sequential);
        assert_eq!(ratio(Strategy::Parallel), Ratio { log: 0.0, trust: 0.0 });
        assert!(ratio(Strategy::Batched).log > 0.25);
    }

    #[test]
    fn an_accident_teaches_nothing() {
        let mut rivalry = Rivalry::default();
        let (of, sequential) = (outline(1.0, 3.0), outline(1.0, 3.0));
        for measured in [f64::NAN, f64::INFINITY, 3.0] {
            rivalry.learn(Strategy::Parallel, &of, &sequential, &[measured]);
        }
        rivalry.learn(Strategy::Parallel, &of, &sequential, &[]);
        assert_eq!(rivalry, Rivalry::default());
    }

    #[test]
    fn one_round_that_was_disturbed_says_nothing_and_more_rounds_say_more() {
        let (of, sequential) = (outline(1.0, 3.0), outline(1.0, 3.0));
        let learned = |rounds: &[f64]| {
            let mut rivalry = Rivalry::default();
            (0..10).for_each(|_| rivalry.learn(Strategy::Parallel, &of, &sequential, rounds));
            rivalry.ratio(Strategy::Parallel, &of, &sequential)
        };
        let calm = learned(&[0.1; 5]);
        assert_eq!(calm, learned(&[0.1, 0.1, 0.9, 0.1, 0.1]));
        assert!(learned(&[0.1]).trust < calm.trust);
    }
}
