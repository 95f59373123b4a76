//! Times in a fixed amount of memory, exact to about six percent.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Sixteen steps for each doubling, from a microsecond to over an hour.
const STEPS: usize = 16;
const DOUBLINGS: usize = 32;

/// How long something took, many times over.
pub(crate) struct Histogram {
    counts: Box<[u64; STEPS * DOUBLINGS]>,
    count: u64,
    total: Duration,
    longest: Duration,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: Box::new([0; STEPS * DOUBLINGS]),
            count: 0,
            total: Duration::ZERO,
            longest: Duration::ZERO,
        }
    }
}

/// A summary of times, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// How many there were.
    pub count: u64,
    /// Their mean.
    pub mean_ms: f64,
    /// Half were no longer.
    pub p50_ms: f64,
    /// 95 of 100 were no longer.
    pub p95_ms: f64,
    /// 99 of 100 were no longer.
    pub p99_ms: f64,
    /// The longest.
    pub longest_ms: f64,
}

impl Histogram {
    pub(crate) fn add(&mut self, took: Duration) {
        self.counts[place(took)] += 1;
        self.count += 1;
        self.total = self.total.saturating_add(took);
        self.longest = self.longest.max(took);
    }

    pub(crate) fn summary(&self) -> Times {
        let mean = self.total.as_secs_f64() * 1e3 / self.count.max(1) as f64;
        Times {
            count: self.count,
            mean_ms: mean,
            p50_ms: self.quantile(0.50),
            p95_ms: self.quantile(0.95),
            p99_ms: self.quantile(0.99),
            longest_ms: self.longest.as_secs_f64() * 1e3,
        }
    }

    fn quantile(&self, share: f64) -> f64 {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (place, count) in self.counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen >= wanted {
                return upper(place).min(self.longest).as_secs_f64() * 1e3;
            }
        }
        0.0
    }
}

/// Where a time is counted.
fn place(took: Duration) -> usize {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    if micros < STEPS as u64 {
        return micros as usize;
    }
    let doubling = micros.ilog2() as usize - STEPS.ilog2() as usize;
    let step = (micros >> doubling) as usize - STEPS;
    ((doubling + 1) * STEPS + step).min(STEPS * DOUBLINGS - 1)
}

/// The end of what is counted at a place.
fn upper(place: usize) -> Duration {
    let (row, step) = (place / STEPS, place % STEPS);
    let micros = match row {
        0 => step as u64 + 1,
        _ => ((STEPS + step + 1) as u64) << (row - 1),
    };
    Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_counted_close_to_itself() {
        for micros in (0..40).map(|power| 1u64 << power).flat_map(|m| [m - 1, m, m + m / 3]) {
            let took = Duration::from_micros(micros.min(1 << 35));
            let end = upper(place(took));
            assert!(end >= took, "{took:?} {end:?}");
            let within = took.mul_f64(1.07) + Duration::from_micros(1);
            assert!(end <= within, "{took:?} {end:?}");
        }
        assert!(place(Duration::MAX) < STEPS * DOUBLINGS);
    }

    #[test]
    fn quantiles_are_close() {
        let mut times = Histogram::default();
        (1..=1000).for_each(|ms| times.add(Duration::from_millis(ms)));
        let summary = times.summary();
        assert_eq!(summary.count, 1000);
        let close = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.07;
        assert!(close(summary.mean_ms, 500.5) && close(summary.p50_ms, 500.0), "{summary:?}");
        assert!(close(summary.p95_ms, 950.0) && close(summary.p99_ms, 990.0), "{summary:?}");
        assert_eq!(summary.longest_ms, 1000.0);
        assert_eq!(Histogram::default().summary(), Times::default());
    }
}
