//! Refinement: changes the predictor by what it observed, and takes the change back unless it made
//! errors clearly smaller: one that helps by chance does harm later.
//!
//! Of the latest mixes of each strategy every third is put aside. A refinement learns from the
//! others and is judged by those it did not see.

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::advice::Refinement;
use crate::experts::{Experts, Miss};
use crate::gain::{is_clear, mean};
use crate::interference::Interference;
use crate::memory::Memory;
use crate::predictor::{Observation, Predictor, Views};
use crate::recent::median;
use crate::record::RefinementRecord;
use crate::strategy::Strategy;
use crate::validation::Metric;

/// Observations that are too few to refine by.
const TOO_FEW: usize = 6;
/// The latest mixes, among which every third is put aside.
const JUDGED: usize = 36;
/// The same for a window: it is for what is recent, and judged by that.
const JUDGED_WINDOW: usize = 9;
/// The latest mixes, by which a window is fitted.
const WINDOW: usize = 24;
/// The latest mixes of a device, by which its pace is found.
const PACE: usize = 5;
/// How clearly errors have to fall, in standard errors: few are judged by, and one that was kept by
/// chance is soon refined again.
const CLEAR: f64 = 1.0;
/// How much of what was learned stays with each observation that is gone over again.
const KEEP: f64 = 0.97;

/// What a refinement may change.
struct Before {
    devices: BTreeMap<String, (Interference, Memory)>,
    experts: Views,
}

impl Predictor {
    /// Refines how a metric is predicted; throughput follows from latency. What it did, and what
    /// came of it, is in the record. If errors on what was put aside are not clearly smaller than
    /// before, the predictor is exactly as it was.
    pub fn refine(
        &mut self,
        refinement: Refinement,
        metric: Metric,
        reason: &str,
        now: SystemTime,
    ) -> RefinementRecord {
        let usable = |observation: &&Observation| {
            let measured = metric != Metric::Memory || observation.memory_bytes.is_some();
            measured && self.devices.contains_key(&observation.device)
        };
        let all: Vec<Observation> = self.observations.iter().filter(usable).cloned().collect();
        let judged = if refinement == Refinement::Window { JUDGED_WINDOW } else { JUDGED };
        let put_aside = put_aside(&all, judged);
        let part = |aside: bool| -> Vec<&Observation> {
            let of_part = all.iter().zip(&put_aside).filter(|(_, put)| **put == aside);
            of_part.map(|(one, _)| one).collect()
        };
        let (judged, learned) = (part(true), part(false));
        let before_each = self.errors(metric, &judged);
        let mut record = RefinementRecord {
            timestamp: now,
            method: refinement.name().to_owned(),
            reason: reason.to_owned(),
            metric: metric.name().to_owned(),
            error_before: mean(&before_each),
            error_after: 0.0,
            learned_from: learned.len(),
            judged_by: judged.len(),
            kept: false,
        };
        if all.len() < TOO_FEW {
            record.error_after = record.error_before;
            return record;
        }
        let before = self.before();
        match metric {
            Metric::Memory => self.refine_memory(refinement, &learned),
            Metric::Latency | Metric::Throughput => self.refine_latency(refinement, &learned),
        }
        let after_each = self.errors(metric, &judged);
        record.error_after = mean(&after_each);
        let gain = |(before, after): (&f64, &f64)| before - after;
        let gains: Vec<f64> = before_each.iter().zip(&after_each).map(gain).collect();
        record.kept = is_clear(&gains, CLEAR);
        if !record.kept {
            self.restore(before);
        }
        record
    }

    fn refine_latency(&mut self, refinement: Refinement, learned: &[&Observation]) {
        match refinement {
            Refinement::Incremental => {
                for one in learned {
                    let seconds = one.latency_seconds * (-self.expert_log(one) - one.pace).exp();
                    if let Some(known) = self.devices.get_mut(&one.device) {
                        known.interference.learn(&one.outline, one.strategy, seconds, KEEP);
                    }
                }
            }
            Refinement::Window => {
                self.experts.latency = Experts::default();
                let window = &learned[learned.len().saturating_sub(WINDOW)..];
                for key in devices(window) {
                    self.fit_window(&key, window);
                }
            }
            Refinement::Weighted => {
                self.experts.latency = Experts::default();
                let misses = self.misses(Metric::Latency, learned);
                self.experts.latency = Experts::of(&misses);
            }
        }
    }

    /// Finds the pace of a device by the latest mixes, and all else by those of the window.
    fn fit_window(&mut self, key: &str, window: &[&Observation]) {
        let own: Vec<&Observation> =
            window.iter().filter(|one| one.device == key).copied().collect();
        let Some(known) = self.devices.get_mut(key) else { return };
        let off = |one: &&Observation| {
            let estimated = known.interference.together(&one.outline, one.strategy).seconds;
            (one.latency_seconds / estimated).ln()
        };
        let newest = &own[own.len().saturating_sub(PACE)..];
        let pace = median(newest.iter().map(off));
        let shift = known.interference.pace.log() + pace;
        known.interference.pace.shift(pace);
        // Mixes from before a change of pace would be taken for interference.
        let same_pace =
            |one: &&&Observation| (off_pace(one, shift, &known.interference)).abs() < 0.25;
        let recent: Vec<&Observation> = own.iter().filter(same_pace).copied().collect();
        if recent.len() < TOO_FEW {
            return;
        }
        known.interference.start_over();
        for one in recent {
            let seconds = one.latency_seconds * (-shift).exp();
            known.interference.learn(&one.outline, one.strategy, seconds, 1.0);
        }
    }

    fn refine_memory(&mut self, refinement: Refinement, learned: &[&Observation]) {
        match refinement {
            Refinement::Incremental => self.learn_memory(learned, KEEP),
            Refinement::Window => {
                self.experts.memory = Experts::default();
                let window = &learned[learned.len().saturating_sub(WINDOW)..];
                for key in devices(window) {
                    if let Some(known) = self.devices.get_mut(&key) {
                        known.memory.start_over();
                    }
                }
                self.learn_memory(window, 1.0);
            }
            Refinement::Weighted => {
                self.experts.memory = Experts::default();
                let misses = self.misses(Metric::Memory, learned);
                self.experts.memory = Experts::of(&misses);
            }
        }
    }

    fn learn_memory(&mut self, learned: &[&Observation], keep: f64) {
        for one in learned {
            if let (Some(known), Some(bytes)) =
                (self.devices.get_mut(&one.device), one.memory_bytes)
            {
                known.memory.learn(&one.outline.memory, bytes, keep);
            }
        }
    }

    /// What would be estimated now for a mix that ran before, and what it took.
    fn again(&self, metric: Metric, one: &Observation) -> Option<(f64, f64)> {
        let known = self.devices.get(&one.device)?;
        let (backend, models) = (&one.backend, one.outline.models);
        Some(match metric {
            Metric::Memory => {
                let experts = self.experts.memory.log(backend, one.strategy, models);
                let bytes = known.memory.bytes(&one.outline.memory, &known.prior());
                (bytes * experts.exp(), one.memory_bytes?)
            }
            Metric::Latency | Metric::Throughput => {
                let together = known.interference.together(&one.outline, one.strategy);
                (together.seconds * self.expert_log(one).exp(), one.latency_seconds)
            }
        })
    }

    fn expert_log(&self, one: &Observation) -> f64 {
        self.experts.latency.log(&one.backend, one.strategy, one.outline.models)
    }

    fn misses<'a>(&self, metric: Metric, learned: &[&'a Observation]) -> Vec<Miss<'a>> {
        let miss = |one: &&'a Observation| {
            let (estimated, measured) = self.again(metric, one)?;
            Some(Miss {
                backend: &one.backend,
                strategy: one.strategy,
                models: one.outline.models,
                log: (measured / estimated).ln(),
            })
        };
        learned.iter().filter_map(miss).collect()
    }

    fn errors(&self, metric: Metric, judged: &[&Observation]) -> Vec<f64> {
        let error = |one: &&Observation| {
            let (estimated, measured) = self.again(metric, one)?;
            Some(match metric {
                Metric::Throughput => (measured / estimated - 1.0).abs(),
                Metric::Latency | Metric::Memory => (estimated / measured - 1.0).abs(),
            })
        };
        judged.iter().filter_map(error).collect()
    }

    fn before(&self) -> Before {
        let parts = |(key, known): (&String, &crate::knowledge::Knowledge)| {
            (key.clone(), (known.interference.clone(), known.memory.clone()))
        };
        Before { devices: self.devices.iter().map(parts).collect(), experts: self.experts.clone() }
    }

    fn restore(&mut self, before: Before) {
        for (key, (interference, memory)) in before.devices {
            if let Some(known) = self.devices.get_mut(&key) {
                known.interference = interference;
                known.memory = memory;
            }
        }
        self.experts = before.experts;
    }
}

/// Which observations are put aside: of the latest, every third of each device and strategy.
/// Strategies often take turns, so every third of all could be all of one.
fn put_aside(all: &[Observation], latest: usize) -> Vec<bool> {
    let mut aside = vec![false; all.len()];
    let mut turns: BTreeMap<(&str, Strategy), usize> = BTreeMap::new();
    for (one, aside) in all.iter().zip(&mut aside).rev().take(latest) {
        let turn = turns.entry((&one.device, one.strategy)).or_default();
        *aside = *turn % 3 == 1;
        *turn += 1;
    }
    aside
}

/// How far a mix is off, were the pace of its device this one: a logarithm.
fn off_pace(one: &Observation, pace: f64, interference: &Interference) -> f64 {
    let together = interference.together(&one.outline, one.strategy);
    (one.latency_seconds * together.pace / together.seconds).ln() - pace
}

fn devices(observations: &[&Observation]) -> Vec<String> {
    let mut keys: Vec<String> = observations.iter().map(|one| one.device.clone()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interference::Interference;
    use crate::memory::MemoryOutline;
    use crate::mix::Mix;
    use crate::outline::Outline;
    use crate::world::World;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    /// A predictor that was told of mixes behind its back: it learned nothing from them yet.
    fn told(count: usize, seconds: impl Fn(usize, Strategy) -> f64) -> Predictor {
        let mut predictor = Predictor::new();
        let world = World::new(1);
        predictor.meet(&world.device);
        for number in 0..count {
            let strategy = Strategy::ALL[number % 3];
            let growths = [1e7 * (1 + number % 4) as f64, 1e6, 0.0, 0.0, 0.0, 1e6];
            let memory = MemoryOutline { start: Some(2e8), growths, values: 0.0 };
            let times = [0.01 * (1 + number % 5) as f64, 0.0, 0.0, 0.0, 0.0];
            predictor.observations.push_back(Observation {
                device: world.device.key.clone(),
                backend: world.device.backend.clone(),
                strategy,
                outline: Outline { times, jobs: 2, models: 2, memory, ..Outline::default() },
                pace: 0.0,
                latency_seconds: times[0] * seconds(number, strategy),
                memory_bytes: Some(2e8 + 2.2 * growths[0] + 2e6),
            });
        }
        predictor
    }

    fn check(
        predictor: &mut Predictor,
        refinement: Refinement,
        metric: Metric,
    ) -> RefinementRecord {
        let before = predictor.clone();
        let record = predictor.refine(refinement, metric, "a test", NOW);
        assert!(!record.kept || record.error_after < record.error_before, "{record:?}");
        assert_eq!(*predictor != before, record.kept, "{record:?}");
        record
    }

    #[test]
    fn every_refinement_of_latency_mends_a_bias() {
        for refinement in Refinement::ALL {
            let mut predictor = told(60, |_, _| 1.25);
            let record = check(&mut predictor, refinement, Metric::Latency);
            assert!(record.kept, "{record:?}");
            assert!(record.error_after < 0.6 * record.error_before, "{record:?}");
        }
    }

    #[test]
    fn every_refinement_of_memory_mends_a_bias() {
        for refinement in Refinement::ALL {
            let record = check(&mut told(60, |_, _| 1.0), refinement, Metric::Memory);
            assert!(record.kept, "{record:?}");
        }
    }

    #[test]
    fn a_refinement_that_makes_errors_larger_is_taken_back() {
        // What is put aside is right as it is; what is learned from is not.
        let put_aside = |number: usize| number >= 24 && (59 - number) / 3 % 3 == 1;
        let seconds = |number, _| if put_aside(number) { 1.0 } else { 1.6 };
        for refinement in Refinement::ALL {
            let record = check(&mut told(60, seconds), refinement, Metric::Latency);
            assert!(!record.kept, "{record:?}");
            assert!(record.error_after >= record.error_before);
        }
    }

    #[test]
    fn experts_mend_strategies_that_are_off_to_different_sides() {
        let seconds = |_, strategy| match strategy {
            Strategy::Parallel => 1.4,
            Strategy::Sequential => 1.0,
            Strategy::Batched => 0.8,
        };
        let record = check(&mut told(60, seconds), Refinement::Weighted, Metric::Latency);
        assert!(record.kept && record.error_after < 0.08, "{record:?}");
    }

    #[test]
    fn too_few_mixes_change_nothing() {
        for refinement in Refinement::ALL {
            let record = check(&mut told(5, |_, _| 2.0), refinement, Metric::Latency);
            assert!(!record.kept);
            assert_eq!(record.error_after, record.error_before);
        }
        check(&mut Predictor::new(), Refinement::Window, Metric::Memory);
    }

    #[test]
    fn learned_and_judged_are_all_and_apart() {
        let record = check(&mut told(60, |_, _| 1.2), Refinement::Incremental, Metric::Latency);
        assert_eq!((record.learned_from, record.judged_by), (48, 12));
        assert_eq!((record.method.as_str(), record.reason.as_str()), ("incremental", "a test"));
    }

    #[test]
    fn mixes_of_devices_that_are_gone_are_left_out() {
        let mut predictor = told(60, |_, _| 1.5);
        predictor.devices.clear();
        let record = check(&mut predictor, Refinement::Window, Metric::Latency);
        assert_eq!((record.learned_from, record.judged_by), (0, 0));
    }

    #[test]
    fn a_refined_predictor_says_something_else() {
        let mut world = World::new(1);
        world.load_all();
        let mix: Mix = world.mix(&[0, 1, 2], Strategy::Parallel);
        let mut predictor = told(60, |_, _| 1.25);
        let before = predictor.estimate(&mix);
        check(&mut predictor, Refinement::Window, Metric::Latency);
        let after = predictor.estimate(&mix);
        assert!(after.latency_seconds.value > 1.1 * before.latency_seconds.value);
        assert_ne!(predictor.devices[&world.device.key].interference, Interference::default());
    }
}
