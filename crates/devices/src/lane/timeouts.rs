//! How long a lane may take before it counts as hung.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::segment::ModelKind;

/// Limits for operations that come without a deadline of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeouts {
    /// A load may go this long without a sign of progress.
    pub load: Duration,
    /// A run of a segment about which nothing is known yet.
    pub run: Duration,
    /// However fast a segment was before, a run gets at least this.
    pub run_at_least: Duration,
    /// A run may take this many times as long as the slowest before it.
    pub run_over_slowest: f64,
    /// A tensor put or got, beyond its bytes.
    pub transfer: Duration,
    /// The slowest connection that is put up with.
    pub bytes_per_second: f64,
    /// Factors on the above for a kind of model.
    pub kinds: BTreeMap<ModelKind, f64>,
    /// From how many bytes on inputs count as large.
    pub large_input_bytes: u64,
    /// The factor for large inputs.
    pub large_input: f64,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            load: Duration::from_secs(60),
            run: Duration::from_secs(60),
            run_at_least: Duration::from_secs(10),
            run_over_slowest: 20.0,
            transfer: Duration::from_secs(15),
            bytes_per_second: 2e6,
            kinds: [
                (ModelKind::Vision, 2.0),
                (ModelKind::Audio, 2.0),
                (ModelKind::Generation, 4.0),
                (ModelKind::Multimodal, 4.0),
            ]
            .into(),
            large_input_bytes: 4 << 20,
            large_input: 4.0,
        }
    }
}

/// How a segment ran before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slowest {
    pub(crate) took: Duration,
    pub(crate) input_bytes: u64,
}

impl Timeouts {
    /// For a load: how long without a sign of progress.
    pub(crate) fn for_load(&self, kind: ModelKind) -> Duration {
        scaled(self.load, self.kind(kind))
    }

    /// For a run with inputs of so many bytes.
    pub(crate) fn for_run(
        &self,
        kind: ModelKind,
        input_bytes: u64,
        slowest: Option<Slowest>,
    ) -> Duration {
        let large = if input_bytes >= self.large_input_bytes { self.large_input } else { 1.0 };
        let factor = self.kind(kind) * large;
        let unknown = scaled(self.run, factor);
        let limit = slowest.map_or(unknown, |slowest| {
            // Attention takes time by the square of the input.
            let more = (input_bytes as f64 / slowest.input_bytes.max(1) as f64).max(1.0).powi(2);
            let known = scaled(slowest.took, self.run_over_slowest * more * factor);
            // However long it may take by this reckoning, a hang has to be noticed some time.
            known
                .max(self.run_at_least)
                .min(scaled(unknown.max(slowest.took), self.run_over_slowest))
        });
        limit.saturating_add(self.moving(input_bytes))
    }

    /// For a tensor put or got.
    pub(crate) fn for_transfer(&self, bytes: u64) -> Duration {
        self.transfer.saturating_add(self.moving(bytes))
    }

    fn moving(&self, bytes: u64) -> Duration {
        scaled(Duration::from_secs(1), bytes as f64 / self.bytes_per_second.max(1.0))
    }

    fn kind(&self, kind: ModelKind) -> f64 {
        self.kinds.get(&kind).copied().unwrap_or(1.0)
    }
}

/// No wait is longer. Past this, clocks and timers overflow.
pub(crate) const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// A duration times a factor, within what clocks can take.
fn scaled(duration: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(duration.as_secs_f64() * factor).unwrap_or(LONGEST).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(kind: ModelKind, input_bytes: u64, slowest: Option<(u64, u64)>) -> u64 {
        let slowest = slowest.map(|(millis, input_bytes)| Slowest {
            took: Duration::from_millis(millis),
            input_bytes,
        });
        Timeouts::default().for_run(kind, input_bytes, slowest).as_secs()
    }

    #[test]
    fn kinds_and_large_inputs_get_more_time() {
        assert_eq!(run(ModelKind::Text, 1000, None), 60);
        assert_eq!(run(ModelKind::Generation, 1000, None), 240);
        assert_eq!(run(ModelKind::Text, 8_000_000, None), 240 + 4);
    }

    #[test]
    fn a_segment_that_was_fast_gets_less_time_but_never_too_little() {
        assert_eq!(run(ModelKind::Text, 1000, Some((10, 1000))), 10);
        assert_eq!(run(ModelKind::Text, 1000, Some((1000, 1000))), 20);
    }

    #[test]
    fn a_longer_input_gets_more_than_the_slowest_short_one() {
        assert_eq!(run(ModelKind::Text, 4000, Some((1000, 1000))), 320);
        assert_eq!(run(ModelKind::Text, 10, Some((1000, 1000))), 20);
    }

    #[test]
    fn a_run_after_a_tiny_one_does_not_wait_for_days() {
        assert_eq!(run(ModelKind::Text, 100_000, Some((300, 24))), 20 * 60);
    }

    #[test]
    fn factors_count_for_segments_that_ran_before_too() {
        assert_eq!(run(ModelKind::Generation, 1000, Some((1000, 1000))), 80);
    }

    #[test]
    fn no_time_makes_it_overflow() {
        let slowest = Slowest { took: Duration::MAX, input_bytes: 0 };
        let limit = Timeouts::default().for_run(ModelKind::Text, u64::MAX, Some(slowest));
        assert!(limit <= LONGEST * 2);
    }

    #[test]
    fn a_user_can_set_the_factor_of_a_kind() {
        let mut timeouts = Timeouts::default();
        timeouts.kinds.insert(ModelKind::Text, 10.0);
        assert_eq!(timeouts.for_run(ModelKind::Text, 0, None).as_secs(), 600);
        assert_eq!(timeouts.for_load(ModelKind::Text).as_secs(), 600);
        assert_eq!(timeouts.for_load(ModelKind::Other).as_secs(), 60);
    }

    #[test]
    fn a_large_tensor_gets_time_for_its_bytes() {
        assert_eq!(Timeouts::default().for_transfer(20_000_000).as_secs(), 25);
    }
}
