//! Which strategy to run a workload with.

use serde::{Deserialize, Serialize};

use crate::estimate::{Estimate, TermSource};
use crate::mix::Mix;
use crate::predictor::Predictor;
use crate::settings::Settings;
use crate::strategy::{Goal, Strategy};

/// The strategy to use, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// The strategy.
    pub strategy: Strategy,
    /// What each strategy would take, in the order in which they were given.
    pub estimates: Vec<(Strategy, Estimate)>,
    /// Why this one, for people.
    pub why: String,
}

/// A strategy under comparison.
struct Candidate<'a> {
    strategy: Strategy,
    estimate: &'a Estimate,
    /// What is to be small.
    cost: f64,
    /// How much of that comparisons say.
    trust: f64,
    fits: bool,
}

impl Predictor {
    /// Compares ways to run the same workload, one mix for each strategy. `None` if there are
    /// none to compare.
    ///
    /// A strategy that would take more memory than `memory_threshold` is left out while another
    /// one takes less. Where estimates are too close to tell, the settings decide.
    pub fn recommend(
        &self,
        mixes: &[Mix],
        goal: Goal,
        settings: &Settings,
    ) -> Option<Recommendation> {
        let first = mixes.first()?;
        let settings = settings.get(&first.device.backend);
        let estimates: Vec<(Strategy, Estimate)> =
            mixes.iter().map(|mix| (mix.strategy, self.estimate(mix))).collect();
        let seconds: Vec<f64> =
            estimates.iter().map(|(_, estimate)| estimate.latency_seconds.value).collect();
        let compared = self.side_by_side(mixes, &seconds);
        let candidate = |((strategy, estimate), (seconds, trust))| -> Candidate<'_> {
            let estimate: &Estimate = estimate;
            let fits = estimate.memory_bytes.value <= settings.memory_threshold as f64;
            let (cost, trust) = match goal {
                // Of one workload, that which takes the least time gives the most answers a second.
                Goal::Latency | Goal::Throughput => (seconds, trust),
                // Comparisons are about time.
                Goal::Memory => (estimate.memory_bytes.value, 0.0),
            };
            Candidate { strategy, estimate, cost, trust, fits }
        };
        let each = estimates.iter().map(|(strategy, estimate)| (*strategy, estimate));
        let all: Vec<Candidate<'_>> = each.zip(compared).map(candidate).collect();
        let some_fit = all.iter().any(|candidate| candidate.fits);
        let left_out = all.iter().filter(|candidate| some_fit && !candidate.fits).count();
        let fitting = || all.iter().filter(|candidate| candidate.fits || !some_fit);
        let best = fitting().min_by(|one, two| one.cost.total_cmp(&two.cost))?;
        let source = estimates.iter().map(|(_, one)| one.latency_seconds.source).max()?;
        let unsure = too_close(source);
        // Two are told apart as well as the one that less is known of.
        let is_close = |candidate: &&Candidate<'_>| {
            let trust = best.trust.min(candidate.trust);
            let apart = unsure + trust * (COMPARED_TOO_CLOSE - unsure);
            candidate.cost <= best.cost * (1.0 + apart)
        };
        let close: Vec<&Candidate<'_>> = fitting().filter(is_close).collect();
        let preferred = settings.strategy(first.answers.max(1));
        let (chosen, mut why) = choose(best, &close, preferred, goal);
        if left_out > 0 {
            why.push_str("; others would take more memory than memory_threshold");
        } else if !some_fit {
            why.push_str("; all of them take more memory than memory_threshold");
        }
        Some(Recommendation { strategy: chosen, estimates, why })
    }
}

/// The same where many comparisons have shown how strategies differ on the device.
const COMPARED_TOO_CLOSE: f64 = 0.01;

/// How close estimates are that cannot be told apart. They are of the same pieces, so most of
/// what is unknown is unknown of all of them alike: closer than their intervals. Replayed runs
/// of `bench predict` chose best with this.
fn too_close(source: TermSource) -> f64 {
    match source {
        TermSource::Measured | TermSource::Interpolated => 0.05,
        TermSource::Fitted => 0.07,
        TermSource::Prior => 0.1,
    }
}

fn choose(
    best: &Candidate<'_>,
    close: &[&Candidate<'_>],
    preferred: Strategy,
    goal: Goal,
) -> (Strategy, String) {
    let figure = |candidate: &Candidate<'_>| match goal {
        Goal::Latency => format!("{:.2} ms", candidate.estimate.latency_seconds.value * 1e3),
        Goal::Throughput => {
            format!("{:.1} answers a second", candidate.estimate.throughput_per_second.value)
        }
        Goal::Memory => format!("{:.0} MB", candidate.estimate.memory_bytes.value / 1e6),
    };
    if let [_] = close {
        return (best.strategy, format!("best {goal}: {}", figure(best)));
    }
    // Least memory is often a tie, and then time counts.
    if goal == Goal::Memory {
        let quickest = close.iter().min_by(|one, two| {
            let seconds = |one: &Candidate<'_>| one.estimate.latency_seconds.value;
            seconds(one).total_cmp(&seconds(two))
        });
        let strategy = quickest.map_or(best.strategy, |candidate| candidate.strategy);
        let why = format!("as little memory as others ({}), and the least time", figure(best));
        return (strategy, why);
    }
    let by_settings = close.iter().find(|candidate| candidate.strategy == preferred);
    match by_settings {
        Some(candidate) => {
            let why = format!(
                "too close to tell ({}), and the settings say {preferred}",
                figure(candidate)
            );
            (preferred, why)
        }
        None => (best.strategy, format!("best {goal} by a little: {}", figure(best))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::settings::Setting;
    use crate::world::World;

    fn ways(world: &mut World, strategies: &[Strategy]) -> Vec<Mix> {
        world.load_all();
        let jobs = world.mix(&[0, 1, 2, 3], Strategy::Parallel).stages.remove(0);
        strategies.iter().map(|strategy| world.arrange(jobs.clone(), *strategy)).collect()
    }

    fn recommend(mixes: &[Mix], goal: Goal, settings: &Settings) -> Recommendation {
        Predictor::new().recommend(mixes, goal, settings).expect("something to compare")
    }

    #[test]
    fn two_cores_are_better_than_one() {
        let mixes = ways(&mut World::new(3), &Strategy::ALL);
        for goal in [Goal::Latency, Goal::Throughput] {
            let recommendation = recommend(&mixes, goal, &Settings::default());
            assert_ne!(recommendation.strategy, Strategy::Sequential, "{}", recommendation.why);
            assert_eq!(recommendation.estimates.len(), 3);
        }
    }

    #[test]
    fn comparisons_decide_although_estimates_say_otherwise() {
        let mut world = World::new(3);
        let mixes = ways(&mut world, &Strategy::ALL);
        let mut predictor = Predictor::new();
        let chosen = |predictor: &Predictor| {
            let settings = Settings::default();
            predictor.recommend(&mixes, Goal::Latency, &settings).expect("some").strategy
        };
        assert_eq!(chosen(&predictor), Strategy::Parallel);
        // Whatever each takes, all at once takes a tenth more than one after the other here.
        for step in 0..20 {
            let seconds = 0.1 * f64::from(1 + step % 5);
            let taken = |mix: &Mix| match mix.strategy {
                Strategy::Parallel => 1.1 * seconds,
                Strategy::Sequential => seconds,
                Strategy::Batched => 1.05 * seconds,
            };
            let rounds: Vec<[f64; 5]> = mixes.iter().map(|mix| [taken(mix); 5]).collect();
            let measured: Vec<(&Mix, &[f64])> =
                mixes.iter().zip(&rounds).map(|(mix, rounds)| (mix, &rounds[..])).collect();
            predictor.observe_comparison(&measured);
        }
        assert_eq!(chosen(&predictor), Strategy::Sequential);
    }

    #[test]
    fn rounds_are_compared_within_themselves() {
        let mut world = World::new(3);
        let mixes = ways(&mut world, &[Strategy::Parallel, Strategy::Sequential]);
        let mut predictor = Predictor::new();
        // All at once takes a tenth more in every round, while the machine gets slower and faster;
        // the medians of the two say the opposite, as some rounds of one are not measured.
        let plain = [1.0, 3.0, 3.0, 3.0, 1.0];
        let crowded = [1.1, 3.3, f64::NAN, f64::NAN, 1.1];
        for _ in 0..60 {
            predictor.observe_comparison(&[(&mixes[0], &crowded), (&mixes[1], &plain)]);
        }
        let chosen = predictor.recommend(&mixes, Goal::Latency, &Settings::default());
        assert_eq!(chosen.expect("some").strategy, Strategy::Sequential);
    }

    #[test]
    fn what_is_known_of_two_tells_them_apart_whatever_is_known_of_a_third() {
        let mut world = World::new(3);
        let mixes = ways(&mut world, &Strategy::ALL);
        let mut predictor = Predictor::new();
        // One at a time is better by three percent. Nobody ever tried the third way.
        for _ in 0..60 {
            predictor.observe_comparison(&[(&mixes[0], &[1.03; 9]), (&mixes[1], &[1.0; 9])]);
        }
        let told = predictor.side_by_side(&mixes, &[1.0, 1.0, 1.5]);
        assert!(told[0].1 > 0.9 && told[1].1 == 1.0 && told[2].1 == 0.0, "{told:?}");
    }

    #[test]
    fn comparisons_of_what_makes_no_sense_teach_nothing() {
        let mixes = ways(&mut World::new(3), &Strategy::ALL);
        let mut predictor = Predictor::new();
        predictor.observe_comparison(&[]);
        predictor.observe_comparison(&[(&mixes[0], &[1.0]), (&mixes[2], &[2.0])]);
        predictor.observe_comparison(&[(&mixes[0], &[f64::NAN]), (&mixes[1], &[-1.0])]);
        predictor.observe_comparison(&[(&mixes[0], &[]), (&mixes[1], &[1.0])]);
        assert_eq!(predictor, Predictor::new());
    }

    #[test]
    fn settings_decide_where_estimates_cannot() {
        let mut world = World::new(3);
        let mut mixes = ways(&mut world, &[Strategy::Sequential, Strategy::Sequential]);
        mixes[1].strategy = Strategy::Batched;
        let mut settings = Settings::default();
        let now = SystemTime::UNIX_EPOCH;
        settings.set("cpu", Setting::ParallelThreshold, 0, now).unwrap();
        let recommendation = recommend(&mixes, Goal::Latency, &settings);
        assert_eq!(recommendation.strategy, Strategy::Batched);
        assert!(recommendation.why.contains("settings"), "{}", recommendation.why);
        settings.set("cpu", Setting::SequentialThreshold, 1, now).unwrap();
        let recommendation = recommend(&mixes, Goal::Latency, &settings);
        assert_eq!(recommendation.strategy, Strategy::Sequential);
    }

    #[test]
    fn a_strategy_that_takes_too_much_memory_is_left_out_if_another_does_not() {
        let mut mixes = ways(&mut World::new(3), &[Strategy::Parallel, Strategy::Sequential]);
        mixes[0].memory_now = Some(8e9);
        let recommendation = recommend(&mixes, Goal::Latency, &Settings::default());
        assert_eq!(recommendation.strategy, Strategy::Sequential);
        assert!(recommendation.why.contains("memory_threshold"), "{}", recommendation.why);
        mixes[1].memory_now = Some(9e9);
        let recommendation = recommend(&mixes, Goal::Latency, &Settings::default());
        assert_eq!(recommendation.strategy, Strategy::Parallel, "{}", recommendation.why);
    }

    #[test]
    fn with_as_little_memory_time_counts() {
        let mixes = ways(&mut World::new(3), &[Strategy::Sequential, Strategy::Parallel]);
        let recommendation = recommend(&mixes, Goal::Memory, &Settings::default());
        assert_eq!(recommendation.strategy, Strategy::Parallel, "{}", recommendation.why);
    }

    #[test]
    fn nothing_to_compare_is_no_recommendation() {
        let none = Predictor::new().recommend(&[], Goal::Latency, &Settings::default());
        assert_eq!(none, None);
    }
}
