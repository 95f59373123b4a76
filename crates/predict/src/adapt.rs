//! Settings that follow what was measured: thresholds where strategies really change places.
//!
//! A setting changes only if the change would have made a clear difference on what was compared,
//! so that noise does not move it back and forth.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::gain::{is_clear, mean};
use crate::recent::median;
use crate::record::SettingChange;
use crate::settings::{
    BackendSettings, LEAST_MEMORY, MOST_BATCHED, MOST_MEMORY, MOST_MODELS, Setting, Settings,
};
use crate::strategy::Strategy;

/// Comparisons that it takes to change anything.
const ENOUGH: usize = 5;
/// Comparisons that are looked at: the latest.
const LATEST: usize = 200;
/// What a change has to gain, as a part of the best strategy's cost.
const GAIN: f64 = 0.02;
/// How clear that has to be, in standard errors: a setting stays for long.
const CLEAR: f64 = 2.0;
/// The part of the memory there is that may be used.
const MEMORY_PART: f64 = 0.8;
/// By how much the memory there is has to differ to change a setting.
const MEMORY_CHANGE: f64 = 0.1;

/// Strategies that were measured on the same workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StrategyComparison {
    /// The backend.
    pub backend: String,
    /// Models that ran together.
    pub model_count: usize,
    /// The size of groups that `batched` ran with.
    pub batching_size: usize,
    /// Seconds that each strategy took.
    pub seconds: Vec<(Strategy, f64)>,
    /// Bytes of memory that the device could have used, where that is known.
    pub available_memory_bytes: Option<u64>,
}

impl StrategyComparison {
    fn of(&self, strategy: Strategy) -> Option<f64> {
        let found = self.seconds.iter().find(|(measured, _)| *measured == strategy);
        found.map(|(_, seconds)| *seconds).filter(|seconds| seconds.is_finite() && *seconds > 0.0)
    }

    fn best(&self) -> Option<f64> {
        Strategy::ALL.into_iter().filter_map(|one| self.of(one)).min_by(f64::total_cmp)
    }

    /// What choosing a strategy costs more than the best one, as a part of that.
    fn regret(&self, strategy: Strategy) -> f64 {
        match (self.of(strategy), self.best()) {
            (Some(seconds), Some(best)) => (seconds / best - 1.0).min(2.0),
            _ => 0.0,
        }
    }
}

impl Settings {
    /// Follows what was measured on a backend, the oldest comparison first. With fewer than five
    /// comparisons of the backend nothing changes.
    pub fn update(
        &mut self,
        backend: &str,
        comparisons: &[StrategyComparison],
        now: SystemTime,
    ) -> Vec<SettingChange> {
        let own: Vec<&StrategyComparison> = comparisons
            .iter()
            .filter(|one| one.backend == backend && one.best().is_some())
            .collect();
        let own = &own[own.len().saturating_sub(LATEST)..];
        if own.len() < ENOUGH {
            return Vec::new();
        }
        let settings = self.get(backend);
        let mut wanted = thresholds(settings, own);
        wanted.extend(batching_size(settings, own));
        wanted.extend(memory_threshold(settings, own));
        let mut changes = Vec::new();
        for (setting, value, reason) in wanted {
            // What is not allowed stays as it was.
            changes.extend(self.change(backend, setting, value, reason, now).ok().flatten());
        }
        changes
    }
}

type Wanted = (Setting, u64, String);

/// The thresholds that would have cost least, if that is clearly less than those in force.
fn thresholds(settings: BackendSettings, comparisons: &[&StrategyComparison]) -> Vec<Wanted> {
    let regrets = |settings: &BackendSettings| -> Vec<f64> {
        let one = |comparison: &&StrategyComparison| {
            comparison.regret(settings.strategy(comparison.model_count))
        };
        comparisons.iter().map(one).collect()
    };
    let now = regrets(&settings);
    let mut counts: Vec<usize> =
        comparisons.iter().map(|comparison| comparison.model_count.min(MOST_MODELS)).collect();
    counts.sort_unstable();
    counts.dedup();
    // Only numbers of models that were measured can be told apart.
    let mut parallel = vec![settings.parallel_threshold, 0];
    parallel.extend(&counts);
    let mut sequential = vec![settings.sequential_threshold, MOST_MODELS + 1];
    sequential.extend(&counts);
    let mut best = (mean(&now), settings);
    for (parallel, sequential) in
        parallel.iter().flat_map(|parallel| sequential.iter().map(move |other| (*parallel, *other)))
    {
        let candidate = BackendSettings {
            parallel_threshold: parallel,
            sequential_threshold: sequential,
            ..settings
        };
        let cost = mean(&regrets(&candidate));
        if parallel < sequential && cost < best.0 - 1e-9 {
            best = (cost, candidate);
        }
    }
    let (_, candidate) = best;
    // Only what would run otherwise says anything about it.
    let changes = |comparison: &StrategyComparison| {
        let models = comparison.model_count;
        settings.strategy(models) != candidate.strategy(models)
    };
    let of_changed = |regrets: &[f64]| -> Vec<f64> {
        let changed = comparisons.iter().zip(regrets).filter(|(one, _)| changes(one));
        changed.map(|(_, regret)| *regret).collect()
    };
    let (now, then) = (of_changed(&now), of_changed(&regrets(&candidate)));
    let gains: Vec<f64> = now.iter().zip(&then).map(|(now, then)| now - then).collect();
    if gains.len() < ENOUGH || mean(&gains) < GAIN || !is_clear(&gains, CLEAR) {
        return Vec::new();
    }
    let reason = format!(
        "on {} comparisons the strategies chosen so would have been {:.1} % off the best, not \
         {:.1} %",
        gains.len(),
        mean(&then) * 100.0,
        mean(&now) * 100.0
    );
    let parallel = (Setting::ParallelThreshold, candidate.parallel_threshold as u64);
    let sequential = (Setting::SequentialThreshold, candidate.sequential_threshold as u64);
    // In the order in which they do not cross on the way.
    let order = match candidate.parallel_threshold >= settings.sequential_threshold {
        true => [sequential, parallel],
        false => [parallel, sequential],
    };
    order.into_iter().map(|(setting, value)| (setting, value, reason.clone())).collect()
}

/// The size of groups that did best beside the other strategies, if several were tried.
fn batching_size(settings: BackendSettings, comparisons: &[&StrategyComparison]) -> Option<Wanted> {
    let mut by_size: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for comparison in comparisons {
        let others = [Strategy::Parallel, Strategy::Sequential];
        let other = others.into_iter().filter_map(|one| comparison.of(one)).min_by(f64::total_cmp);
        if let (Some(batched), Some(other)) = (comparison.of(Strategy::Batched), other) {
            let size = comparison.batching_size.clamp(1, MOST_BATCHED);
            by_size.entry(size).or_default().push(batched / other);
        }
    }
    by_size.retain(|_, ratios| ratios.len() >= ENOUGH);
    let score = |ratios: &Vec<f64>| median(ratios.iter().copied());
    let now = score(by_size.get(&settings.batching_size)?);
    let (size, ratios) = by_size.iter().min_by(|one, two| score(one.1).total_cmp(&score(two.1)))?;
    let best = score(ratios);
    let reason = format!(
        "groups of {size} took {best:.2} of the best other strategy's time, groups of {} {now:.2}",
        settings.batching_size
    );
    (best < now * (1.0 - GAIN)).then_some((Setting::BatchingSize, *size as u64, reason))
}

/// Most of the memory there is, if that has changed.
fn memory_threshold(
    settings: BackendSettings,
    comparisons: &[&StrategyComparison],
) -> Option<Wanted> {
    let available: Vec<f64> = comparisons
        .iter()
        .filter_map(|one| one.available_memory_bytes.map(|bytes| bytes as f64))
        .collect();
    if available.len() < ENOUGH {
        return None;
    }
    let latest = median(available[available.len() - ENOUGH..].iter().copied());
    let wanted = ((latest * MEMORY_PART) as u64).clamp(LEAST_MEMORY, MOST_MEMORY);
    let off = (wanted as f64 / settings.memory_threshold as f64).ln().abs();
    let reason = format!("{:.0} % of {:.0} MB that were there", MEMORY_PART * 100.0, latest / 1e6);
    (off > MEMORY_CHANGE).then_some((Setting::MemoryThreshold, wanted, reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Noise;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn compared(models: usize, parallel: f64, sequential: f64, batched: f64) -> StrategyComparison {
        StrategyComparison {
            backend: "cpu".into(),
            model_count: models,
            batching_size: 4,
            seconds: vec![
                (Strategy::Parallel, parallel),
                (Strategy::Sequential, sequential),
                (Strategy::Batched, batched),
            ],
            available_memory_bytes: None,
        }
    }

    /// A machine on which models in parallel are in each other's way.
    fn slow_in_parallel() -> Vec<StrategyComparison> {
        (2..8).map(|models| compared(models, 1.3, 1.0, 1.15)).collect()
    }

    #[test]
    fn thresholds_follow_what_was_measured() {
        let mut settings = Settings::default();
        let changes = settings.update("cpu", &slow_in_parallel(), NOW);
        assert!(!changes.is_empty());
        assert!(changes.iter().all(|change| change.reason.contains("6 comparisons")));
        for models in 2..8 {
            assert_eq!(settings.get("cpu").strategy(models), Strategy::Sequential, "{models}");
        }
    }

    #[test]
    fn four_comparisons_or_those_of_another_backend_are_not_enough() {
        let mut settings = Settings::default();
        assert!(settings.update("cpu", &slow_in_parallel()[..4], NOW).is_empty());
        assert!(settings.update("wasm", &slow_in_parallel(), NOW).is_empty());
        assert_eq!(settings, Settings::default());
    }

    #[test]
    fn noise_does_not_move_thresholds_back_and_forth() {
        let mut noise = Noise::new(5);
        let mut settings = Settings::default();
        let mut comparisons = Vec::new();
        let mut changes = 0;
        for step in 0..200 {
            let mut off = || 1.0 + 0.01 * noise.normal();
            comparisons.push(compared(2 + step % 6, off(), off(), off()));
            changes += settings.update("cpu", &comparisons, NOW).len();
        }
        assert!(changes <= 2, "{changes} changes");
    }

    #[test]
    fn a_second_update_on_the_same_data_changes_nothing() {
        let mut settings = Settings::default();
        settings.update("cpu", &slow_in_parallel(), NOW);
        assert!(settings.update("cpu", &slow_in_parallel(), NOW).is_empty());
    }

    #[test]
    fn groups_grow_where_larger_ones_do_better() {
        let mut comparisons: Vec<_> = (0..6).map(|_| compared(6, 1.0, 1.2, 0.95)).collect();
        comparisons.extend(
            (0..6).map(|_| StrategyComparison { batching_size: 8, ..compared(6, 1.0, 1.2, 0.8) }),
        );
        let mut settings = Settings::default();
        settings.update("cpu", &comparisons, NOW);
        assert_eq!(settings.get("cpu").batching_size, 8);
    }

    #[test]
    fn memory_follows_what_is_there_within_bounds() {
        let with = |bytes| {
            let one = compared(2, 1.0, 1.0, 1.0);
            vec![StrategyComparison { available_memory_bytes: Some(bytes), ..one }; 6]
        };
        let mut settings = Settings::default();
        settings.update("cpu", &with(1 << 30), NOW);
        assert_eq!(settings.get("cpu").memory_threshold, 858_993_459);
        assert!(settings.update("cpu", &with((1 << 30) + (40 << 20)), NOW).is_empty());
        settings.update("cpu", &with(0), NOW);
        assert_eq!(settings.get("cpu").memory_threshold, LEAST_MEMORY);
    }

    #[test]
    fn what_was_not_measured_is_left_out() {
        let broken = vec![compared(3, f64::NAN, 0.0, -1.0); 9];
        assert!(Settings::default().update("cpu", &broken, NOW).is_empty());
    }
}
