//! What the pool counts while it works. Bounded: histograms and fixed sets of names.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::histogram::Histogram;
use crate::request::{Answer, RunError};

/// Plans that are remembered as refused.
const REFUSED_PLANS: usize = 16;

/// Counts since the pool was made.
pub(crate) struct Account {
    pub(crate) since: Instant,
    pub(crate) answered: u64,
    pub(crate) rows_in_batches: u64,
    pub(crate) requests_in_batches: u64,
    pub(crate) batches: u64,
    pub(crate) loads: Loads,
    pub(crate) unloads: u64,
    /// Requests that went on elsewhere, or again, after a device failed under them.
    pub(crate) failovers: u64,
    pub(crate) devices_gone: u64,
    /// The most devices that were there at once.
    pub(crate) most_devices: usize,
    pub(crate) errors: BTreeMap<&'static str, u64>,
    /// Plans that would have changed answers, the last ones.
    pub(crate) refused_plans: VecDeque<String>,
    pub(crate) queue: Histogram,
    pub(crate) transfer: Histogram,
    pub(crate) compute: Histogram,
    pub(crate) readback: Histogram,
    recent: Recent,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Loads {
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
}

impl Default for Account {
    fn default() -> Account {
        Account {
            since: Instant::now(),
            answered: 0,
            rows_in_batches: 0,
            requests_in_batches: 0,
            batches: 0,
            loads: Loads::default(),
            unloads: 0,
            failovers: 0,
            devices_gone: 0,
            most_devices: 0,
            errors: BTreeMap::new(),
            refused_plans: VecDeque::new(),
            queue: Histogram::default(),
            transfer: Histogram::default(),
            compute: Histogram::default(),
            readback: Histogram::default(),
            recent: Recent::default(),
        }
    }
}

impl Account {
    /// Notes an answer.
    pub(crate) fn answer(&mut self, answer: &Answer) {
        self.answered += 1;
        self.recent.add(self.since.elapsed());
        let steps = &answer.outcome.steps;
        let compute: Duration = steps.iter().map(|step| step.run).sum();
        let readback: Duration = steps.iter().map(|step| step.readback).sum();
        self.queue.add(answer.queued);
        self.compute.add(compute);
        self.readback.add(readback);
        self.transfer.add(answer.transfer);
    }

    /// Notes that a plan is not used.
    pub(crate) fn refuse_plan(&mut self, refused: String) {
        if !self.refused_plans.contains(&refused) {
            self.refused_plans.push_back(refused);
        }
        while self.refused_plans.len() > REFUSED_PLANS {
            self.refused_plans.pop_front();
        }
    }

    /// Notes that there is none.
    pub(crate) fn error(&mut self, error: &RunError) {
        *self.errors.entry(error.class()).or_default() += 1;
    }

    /// Notes a batch.
    pub(crate) fn batch(&mut self, requests: usize, rows: usize) {
        self.batches += 1;
        self.requests_in_batches += requests as u64;
        self.rows_in_batches += rows as u64;
    }

    /// Answers per second, over the last minute or since the start.
    pub(crate) fn throughput(&self) -> f64 {
        self.recent.per_second(self.since.elapsed())
    }
}

/// Answers by the second, for a minute.
struct Recent {
    counts: [u64; SECONDS as usize],
    /// The second that was counted last.
    last: u64,
}

const SECONDS: u64 = 60;

impl Default for Recent {
    fn default() -> Recent {
        Recent { counts: [0; SECONDS as usize], last: 0 }
    }
}

impl Recent {
    fn add(&mut self, at: Duration) {
        let second = at.as_secs();
        for passed in (self.last + 1..=second).take(SECONDS as usize) {
            self.counts[(passed % SECONDS) as usize] = 0;
        }
        self.last = self.last.max(second);
        self.counts[(second % SECONDS) as usize] += 1;
    }

    fn per_second(&self, now: Duration) -> f64 {
        let second = now.as_secs();
        let is_recent = |age: &u64| *age <= self.last && self.last - age + SECONDS > second;
        let counted = (0..SECONDS).filter(is_recent);
        let count: u64 =
            counted.map(|age| self.counts[((self.last - age) % SECONDS) as usize]).sum();
        let span = now.as_secs_f64().min((SECONDS - 1) as f64 + now.as_secs_f64().fract());
        if span > 0.0 { count as f64 / span } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_is_of_the_last_minute() {
        let mut recent = Recent::default();
        let seconds = Duration::from_secs;
        for second in 0..200 {
            (0..5).for_each(|_| recent.add(seconds(second)));
        }
        assert!((recent.per_second(seconds(200)) - 5.0).abs() < 0.1);
        // Half a minute later half of it has passed, and later all of it.
        assert!((recent.per_second(seconds(229)) - 2.5).abs() < 0.2);
        assert_eq!(recent.per_second(seconds(500)), 0.0);
    }

    #[test]
    fn a_young_pool_is_not_averaged_over_a_minute() {
        let mut recent = Recent::default();
        (0..10).for_each(|_| recent.add(Duration::from_secs(1)));
        assert_eq!(recent.per_second(Duration::from_secs(2)), 5.0);
        assert_eq!(Recent::default().per_second(Duration::ZERO), 0.0);
    }
}
