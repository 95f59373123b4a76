//! Times of answers, in a bounded amount of memory.

use std::time::Duration;

/// Times that are kept. Up to here percentiles are exact, beyond it they are of a fair sample.
const KEPT: usize = 1 << 20;

/// How long answers took.
#[derive(Clone, Default)]
pub(super) struct Latencies {
    count: u64,
    total: Duration,
    kept: Vec<Duration>,
    state: u64,
}

impl Latencies {
    pub(super) fn add(&mut self, took: Duration) {
        self.count += 1;
        self.total += took;
        if self.kept.len() < KEPT {
            self.kept.push(took);
            return;
        }
        // Each of all has the same chance to be among those that are kept.
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let place = (self.state >> 11) % self.count;
        if let Some(kept) = usize::try_from(place).ok().and_then(|at| self.kept.get_mut(at)) {
            *kept = took;
        }
    }

    /// All of the other's, too.
    pub(super) fn merge(&mut self, other: Latencies) {
        let (count, total) = (self.count + other.count, self.total + other.total);
        other.kept.into_iter().for_each(|took| self.add(took));
        (self.count, self.total) = (count, total);
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The mean, and the times that 50, 95 and 99 of 100 did not pass; nothing if there is none.
    pub(super) fn summary(&self) -> Option<Summary> {
        let mut sorted = self.kept.clone();
        sorted.sort_unstable();
        let rank = |percent: usize| (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        let at = |percent| sorted.get(rank(percent)).copied();
        let mean = self.total.div_f64(self.count.max(1) as f64);
        Some(Summary { mean, p50: at(50)?, p95: at(95)?, p99: at(99)? })
    }
}

/// A summary of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) mean: Duration,
    pub(super) p50: Duration,
    pub(super) p95: Duration,
    pub(super) p99: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(milliseconds: impl IntoIterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::default();
        milliseconds.into_iter().for_each(|ms| latencies.add(Duration::from_millis(ms)));
        latencies
    }

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let ms = Duration::from_millis;
        let summary = of((1..=200).rev()).summary().unwrap();
        assert_eq!((summary.p50, summary.p95, summary.p99), (ms(100), ms(190), ms(198)));
        assert_eq!(summary.mean, ms(100) + Duration::from_micros(500));
        let one = of([7]).summary().unwrap();
        assert_eq!(one, Summary { mean: ms(7), p50: ms(7), p95: ms(7), p99: ms(7) });
    }

    #[test]
    fn without_answers_there_is_no_summary() {
        assert_eq!(Latencies::default().summary(), None);
    }

    #[test]
    fn merged_times_are_all_of_them() {
        let mut all = of(1..=100);
        all.merge(of(101..=200));
        assert_eq!(all.summary(), of(1..=200).summary());
        assert_eq!(all.count(), 200);
    }

    #[test]
    fn memory_is_bounded_and_the_count_is_not() {
        let all = of((0..KEPT as u64 + 1000).map(|at| at % 10));
        assert_eq!(all.kept.len(), KEPT);
        assert_eq!(all.count(), KEPT as u64 + 1000);
        assert_eq!(all.summary().unwrap().p50, Duration::from_millis(4));
    }
}
