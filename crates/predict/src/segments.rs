//! What was measured of each segment on one device: the history that dominates an estimate.

use std::collections::BTreeMap;

use holdfast_graph::Digest;
use serde::{Deserialize, Serialize};

use crate::features::Features;
use crate::fit::{Fit, SAMPLES, Sample};
use crate::recent::Recent;
use crate::work::{Likeness, Work};

/// Segments that are kept for a device.
pub(crate) const SEGMENTS: usize = 192;
/// Sizes that are kept of a segment.
pub(crate) const SIZES: usize = 12;

/// How much the mean over all sizes of a segment counts for one that was not measured: a single
/// size can be off by chance.
const MEAN: f64 = 0.4;

/// Segments of a device by what identifies them. The one not used for longest makes room.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Segments {
    by_digest: BTreeMap<Digest, Segment>,
    /// Counts up with each use.
    turn: u64,
}

/// One segment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Segment {
    sizes: Vec<Size>,
    /// Seconds of first runs after loading.
    pub(crate) first: Recent,
    /// Seconds of loading.
    pub(crate) load: Recent,
    /// Bytes of activations at the worst moment of any run since it was loaded.
    pub(crate) held_bytes: f64,
    used: u64,
}

/// A segment on inputs of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Size {
    batch: usize,
    sequence: usize,
    work: Work,
    likeness: Likeness,
    pub(crate) compute: Recent,
    pub(crate) transfer: Recent,
    used: u64,
}

impl Segments {
    pub(crate) fn get(&self, segment: &Digest) -> Option<&Segment> {
        self.by_digest.get(segment)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_digest.len()
    }

    /// The segment, to be added to.
    pub(crate) fn touch(&mut self, digest: Digest) -> &mut Segment {
        self.turn += 1;
        if !self.by_digest.contains_key(&digest) && self.by_digest.len() >= SEGMENTS {
            let oldest = self.by_digest.iter().min_by_key(|(_, segment)| segment.used);
            if let Some(oldest) = oldest.map(|(digest, _)| *digest) {
                self.by_digest.remove(&oldest);
            }
        }
        let segment = self.by_digest.entry(digest).or_default();
        segment.used = self.turn;
        segment
    }

    /// What a fit can learn from, the segments used last first.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        let mut segments: Vec<_> = self.by_digest.iter().collect();
        segments.sort_by_key(|(digest, segment)| (u64::MAX - segment.used, **digest));
        let mut samples = Vec::new();
        for (digest, segment) in segments {
            let weight = 1.0 / (segment.sizes.len().max(1) as f64).sqrt();
            let sample = |size: &Size| {
                let seconds = size.compute.centre().filter(|seconds| *seconds > 0.0)?;
                let Size { work, likeness, .. } = *size;
                Some(Sample { segment: *digest, work, likeness, seconds, weight })
            };
            samples.extend(segment.sizes.iter().filter_map(sample));
        }
        samples.truncate(SAMPLES);
        samples
    }
}

impl Size {
    /// Whether it is the size of these features. Of several inputs the longest row alone does not
    /// tell: a decoder that looks at a long text does more with each word that it has written.
    fn is(&self, features: &Features, work: &Work) -> bool {
        (self.batch, self.sequence) == (features.batch, features.sequence) && self.work.is(work)
    }
}

impl Segment {
    /// What was measured at exactly this size.
    pub(crate) fn size(&self, features: &Features) -> Option<&Size> {
        let work = Work::of(features);
        self.sizes.iter().find(|size| size.is(features, &work))
    }

    /// The size, to be added to, and whether it is new.
    pub(crate) fn touch(&mut self, features: &Features) -> (&mut Size, bool) {
        let turn = self.sizes.iter().map(|size| size.used).max().unwrap_or(0) + 1;
        let work = Work::of(features);
        let found = self.sizes.iter().position(|size| size.is(features, &work));
        let index = found.unwrap_or_else(|| {
            if self.sizes.len() >= SIZES {
                let oldest = (0..self.sizes.len()).min_by_key(|index| self.sizes[*index].used);
                self.sizes.swap_remove(oldest.unwrap_or(0));
            }
            self.sizes.push(Size {
                batch: features.batch,
                sequence: features.sequence,
                work,
                likeness: Likeness::of(features),
                compute: Recent::default(),
                transfer: Recent::default(),
                used: turn,
            });
            self.sizes.len() - 1
        });
        let size = &mut self.sizes[index];
        size.used = turn;
        (size, found.is_none())
    }

    /// Seconds at a size at which it never ran, from those at which it did, and the runs behind
    /// them. What the fit gets wrong about this segment is carried over along the logarithm of
    /// the input's size, and half as steeply beyond what was measured.
    pub(crate) fn between(&self, features: &Features, fit: &Fit) -> Option<(f64, u64)> {
        let place = features.elements().ln();
        let sequence = (features.sequence.max(1) as f64).ln();
        let mut known: Vec<Known> = Vec::with_capacity(self.sizes.len());
        let mut runs = 0;
        for size in &self.sizes {
            let Some(seconds) = size.compute.centre().filter(|seconds| *seconds > 0.0) else {
                continue;
            };
            runs += size.compute.count();
            let own = (size.sequence.max(1) as f64).ln();
            known.push(Known {
                place: (size.batch.max(1) as f64).ln() + own,
                sequence_off: (own - sequence).abs(),
                log_ratio: (seconds / fit.sum(&size.work)).ln(),
            });
        }
        let nearest = |known: &[Known], keep: &dyn Fn(&Known) -> bool| {
            let off = |one: &Known| ((one.place - place).abs(), one.sequence_off);
            let order = |one: &&Known, two: &&Known| {
                let (one, two) = (off(one), off(two));
                one.0.total_cmp(&two.0).then(one.1.total_cmp(&two.1))
            };
            known.iter().filter(|one| keep(one)).min_by(order).copied()
        };
        let below = nearest(&known, &|one| one.place <= place + 1e-9);
        let above = nearest(&known, &|one| one.place > place + 1e-9);
        let log_ratio = match (below, above) {
            (Some(below), Some(above)) => {
                let along = (place - below.place) / (above.place - below.place).max(1e-9);
                below.log_ratio + along * (above.log_ratio - below.log_ratio)
            }
            (Some(edge), None) => {
                let next = nearest(&known, &|one| one.place < edge.place - 1e-9);
                edge.log_ratio + beyond(&edge, next, place)
            }
            (None, Some(edge)) => {
                let next = nearest(&known, &|one| one.place > edge.place + 1e-9);
                edge.log_ratio + beyond(&edge, next, place)
            }
            (None, None) => return None,
        };
        let mean = known.iter().map(|one| one.log_ratio).sum::<f64>() / known.len() as f64;
        let log_ratio = log_ratio + MEAN * (mean - log_ratio);
        Some((fit.sum(&Work::of(features)) * log_ratio.exp(), runs))
    }
}

#[derive(Clone, Copy)]
struct Known {
    place: f64,
    sequence_off: f64,
    log_ratio: f64,
}

/// What changes from the last size that was measured to one beyond it.
fn beyond(edge: &Known, next: Option<Known>, place: f64) -> f64 {
    let Some(next) = next else { return 0.0 };
    let slope = (edge.log_ratio - next.log_ratio) / (edge.place - next.place);
    (0.5 * slope * (place - edge.place)).clamp(-0.4, 0.4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceProfile;
    use crate::features::ClassWork;
    use crate::prior::Prior;

    fn features(batch: usize, sequence: usize) -> Features {
        let elements = (batch * sequence) as f64;
        let mut features = Features { batch, sequence, ..Features::default() };
        features.work[0] = ClassWork { flops: 1e7 * elements, bytes: 1e4 * elements, nodes: 40.0 };
        features
    }

    fn fit() -> Fit {
        let profile = DeviceProfile::made_up("cpu");
        Fit::shipped(&Prior::of(&profile))
    }

    /// A segment whose time has a fixed part of which the fit knows nothing.
    fn truth(features: &Features) -> f64 {
        0.004 + 2.0 * fit().sum(&Work::of(features))
    }

    fn measured(sizes: &[(usize, usize)]) -> Segment {
        let mut segment = Segment::default();
        for (batch, sequence) in sizes {
            let features = features(*batch, *sequence);
            segment.touch(&features).0.compute.push(truth(&features));
        }
        segment
    }

    fn check(segment: &Segment, size: (usize, usize), within: f64) {
        let features = features(size.0, size.1);
        let (seconds, runs) = segment.between(&features, &fit()).expect("was measured");
        let off = (seconds / truth(&features) - 1.0).abs();
        assert!(off <= within, "{size:?}: {off:.3} off");
        assert!(runs > 0);
    }

    #[test]
    fn sizes_between_measured_ones_are_close() {
        let segment = measured(&[(1, 16), (1, 64), (1, 256)]);
        check(&segment, (1, 32), 0.12);
        check(&segment, (4, 32), 0.12);
    }

    #[test]
    fn a_size_beyond_is_further_off_but_sane() {
        check(&measured(&[(1, 16), (1, 64)]), (1, 256), 0.5);
        check(&measured(&[(1, 64)]), (2, 64), 0.5);
    }

    #[test]
    fn sizes_with_one_longest_row_and_other_work_are_told_apart() {
        let of = |tokens: f64| {
            let mut features = features(1, 32_768);
            features.work[0] = ClassWork { flops: 1e7 * tokens, bytes: 1e4 * tokens, nodes: 40.0 };
            features
        };
        let mut segment = Segment::default();
        for tokens in [1.0, 100.0] {
            segment.touch(&of(tokens)).0.compute.push(tokens);
        }
        let centre = |tokens: f64| segment.size(&of(tokens)).and_then(|size| size.compute.centre());
        assert_eq!([1.0, 100.0, 50.0].map(centre), [Some(1.0), Some(100.0), None]);
        assert!(!segment.touch(&of(100.0)).1, "it is the same size again");
        // It is kept as text and read again.
        let text = serde_json::to_string(&segment).expect("numbers");
        let mut read: Segment = serde_json::from_str(&text).expect("the same");
        assert!(!read.touch(&of(1.0)).1);
    }

    #[test]
    fn a_segment_that_never_ran_says_nothing() {
        assert!(Segment::default().between(&features(1, 16), &fit()).is_none());
    }

    #[test]
    fn the_size_and_the_segment_not_used_for_longest_make_room() {
        let mut segments = Segments::default();
        for number in 0..SEGMENTS as u32 + 20 {
            let segment = segments.touch(Digest::of(&number.to_le_bytes()));
            for batch in 1..SIZES + 5 {
                segment.touch(&features(batch, 8));
            }
            assert!(segment.sizes.len() <= SIZES);
        }
        assert_eq!(segments.len(), SEGMENTS);
        assert!(segments.get(&Digest::of(&0_u32.to_le_bytes())).is_none());
        let last = segments.get(&Digest::of(&(SEGMENTS as u32 + 19).to_le_bytes()));
        let last = last.expect("was used last");
        assert!(last.size(&features(1, 8)).is_none());
        assert!(last.size(&features(SIZES + 4, 8)).is_some());
    }
}
