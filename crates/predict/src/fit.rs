//! The cost of a run of which nothing was measured, from runs of other segments.
//!
//! Seconds are a sum of work times unit costs that cannot be negative. The unit costs are fitted
//! to relative errors and held near what ships for the backend, scaled to this device as a whole.
//! What the sum gets wrong about runs that are alike is then taken off by a weighted mean.

use holdfast_graph::Digest;
use serde::{Deserialize, Serialize};

use crate::prior::Prior;
use crate::recent::median;
use crate::ridge::{Coefficient, Ridge};
use crate::work::{INPUTS, Likeness, Work};

/// Samples that a fit looks at.
pub(crate) const SAMPLES: usize = 128;
/// How far a unit cost may well be from the shipped one, once all are scaled alike, as a multiple
/// of the noise of a sample.
const SPREAD: f64 = 6.0;
/// How much likeness it takes to trust runs that are alike.
const DOUBT: f64 = 0.3;

/// A run that was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) segment: Digest,
    pub(crate) work: Work,
    pub(crate) likeness: Likeness,
    pub(crate) seconds: f64,
    /// Below 1 where a segment has several samples.
    pub(crate) weight: f64,
}

/// Unit costs of a device, and what they get wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Fit {
    unit_costs: [f64; INPUTS],
    misses: Vec<Miss>,
    segments: usize,
}

/// What the sum gets wrong about one run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Miss {
    segment: Digest,
    likeness: Likeness,
    log_ratio: f64,
    weight: f64,
}

impl Fit {
    /// What ships.
    pub(crate) fn shipped(prior: &Prior) -> Fit {
        Fit { unit_costs: prior.unit_costs(), misses: Vec::new(), segments: 0 }
    }

    /// The fit to what was measured.
    pub(crate) fn to(samples: &[Sample], prior: &Prior) -> Fit {
        let shipped = prior.unit_costs();
        let samples = &samples[..samples.len().min(SAMPLES)];
        if samples.is_empty() {
            return Fit::shipped(prior);
        }
        let ratio = |sample: &Sample| (sample.seconds / sample.work.seconds(&shipped)).ln();
        let trust = samples.len() as f64 / (samples.len() as f64 + 0.5);
        let scale = (trust * median(samples.iter().map(ratio))).exp();
        let scaled = shipped.map(|cost| cost * scale);
        let mut unit_costs = scaled;
        // The second pass weighs what the first one could not explain less.
        for _ in 0..2 {
            unit_costs = solve(samples, &scaled, &unit_costs);
        }
        let miss = |sample: &Sample| Miss {
            segment: sample.segment,
            likeness: sample.likeness,
            log_ratio: (sample.seconds / sample.work.seconds(&unit_costs)).ln().clamp(-2.0, 2.0),
            weight: sample.weight,
        };
        let mut segments: Vec<Digest> = samples.iter().map(|sample| sample.segment).collect();
        segments.sort_unstable();
        segments.dedup();
        Fit { unit_costs, misses: samples.iter().map(miss).collect(), segments: segments.len() }
    }

    /// Segments that it was fitted to.
    pub(crate) fn segments(&self) -> usize {
        self.segments
    }

    pub(crate) fn unit_costs(&self) -> &[f64; INPUTS] {
        &self.unit_costs
    }

    /// Seconds by the sum alone: what sizes of one segment are compared by.
    pub(crate) fn sum(&self, work: &Work) -> f64 {
        work.seconds(&self.unit_costs)
    }

    /// Seconds of a run of a segment that was not measured, and what runs that are alike change.
    pub(crate) fn seconds(&self, work: &Work, likeness: &Likeness) -> (f64, f64) {
        let (mut weighted, mut weight) = (0.0, DOUBT);
        for miss in &self.misses {
            let alike = miss.likeness.to(likeness) * miss.weight;
            weighted += alike * miss.log_ratio;
            weight += alike;
        }
        let change = (weighted / weight).exp();
        (self.sum(work) * change, change)
    }
}

fn solve(samples: &[Sample], scaled: &[f64; INPUTS], now: &[f64; INPUTS]) -> [f64; INPUTS] {
    let one = Coefficient { prior: 1.0, spread: SPREAD, low: 0.0, high: 30.0 };
    let mut ridge = Ridge::new(vec![one; INPUTS]);
    for sample in samples {
        let seconds = sample.work.seconds(now);
        let off = (sample.seconds / seconds).ln().abs();
        // Between the measured and the fitted time, so that neither direction is cheaper.
        let middle = (sample.seconds * seconds).sqrt();
        let mut parts = [0.0; INPUTS];
        for (part, (work, cost)) in parts.iter_mut().zip(sample.work.0.iter().zip(scaled)) {
            *part = work * cost / middle;
        }
        let weight = sample.weight * (0.3 / off.max(0.3));
        ridge.add(&parts, sample.seconds / middle, weight, 1.0);
    }
    ridge.solve();
    let mut costs = *scaled;
    for (cost, factor) in costs.iter_mut().zip(ridge.solution()) {
        *cost *= factor;
    }
    // A device on which nothing costs anything does not exist.
    costs[0] = costs[0].max(scaled[0] * 1e-3);
    costs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceProfile;
    use crate::features::{ClassWork, Features};

    fn prior() -> Prior {
        Prior::of(&DeviceProfile::made_up("cpu"))
    }

    fn features(layers: f64, width: f64, tokens: f64) -> Features {
        let mut features = Features { batch: 1, sequence: tokens as usize, ..Features::default() };
        let matmul = layers * 24.0 * width * width * tokens;
        let plain = layers * 40.0 * width * tokens;
        features.work[0] = ClassWork { flops: matmul, bytes: plain * 2.0, nodes: layers * 6.0 };
        features.work[3] = ClassWork { flops: plain, bytes: plain, nodes: layers * 2.0 };
        features.work[4] = ClassWork { flops: plain, bytes: plain, nodes: layers * 8.0 };
        features
    }

    fn sample(features: &Features, name: &str, seconds: f64) -> Sample {
        Sample {
            segment: Digest::of(name.as_bytes()),
            work: Work::of(features),
            likeness: Likeness::of(features),
            seconds,
            weight: 1.0,
        }
    }

    /// A machine that is nothing like the prior.
    fn truth(features: &Features) -> f64 {
        let mut costs = prior().unit_costs();
        for (cost, factor) in costs.iter_mut().zip([2.0, 4.0, 2.5, 1.0, 1.0, 1.0, 1.5, 3.0, 1.2]) {
            *cost *= factor;
        }
        Work::of(features).seconds(&costs)
    }

    #[test]
    fn without_samples_it_is_what_ships() {
        let fit = Fit::to(&[], &prior());
        assert_eq!(fit, Fit::shipped(&prior()));
        assert_eq!(fit.segments(), 0);
    }

    #[test]
    fn ten_other_models_are_enough_for_a_new_one() {
        let sizes = [(2.0, 128.0), (3.0, 192.0), (4.0, 256.0), (6.0, 320.0), (12.0, 384.0)];
        let samples: Vec<Sample> = sizes
            .iter()
            .flat_map(|(layers, width)| [(*layers, *width, 16.0), (*layers, *width, 128.0)])
            .map(|(layers, width, tokens)| {
                let features = features(layers, width, tokens);
                sample(&features, &format!("{layers}{width}"), truth(&features))
            })
            .collect();
        let fit = Fit::to(&samples, &prior());
        for (layers, width, tokens) in [(8.0, 512.0, 64.0), (5.0, 224.0, 32.0), (1.0, 96.0, 16.0)] {
            let new = features(layers, width, tokens);
            let (seconds, _) = fit.seconds(&Work::of(&new), &Likeness::of(&new));
            let off = (seconds / truth(&new) - 1.0).abs();
            assert!(off < 0.1, "{layers} layers of {width}: {off:.3} off");
        }
    }

    #[test]
    fn one_strange_sample_does_not_spoil_the_others() {
        let mut samples: Vec<Sample> = (1..12)
            .map(|layers| {
                let features = features(f64::from(layers), 256.0, 64.0);
                sample(&features, &layers.to_string(), truth(&features))
            })
            .collect();
        samples[5].seconds *= 8.0;
        let fit = Fit::to(&samples, &prior());
        let new = features(4.5, 288.0, 64.0);
        let off = (fit.sum(&Work::of(&new)) / truth(&new)).ln().abs();
        assert!(off < 0.3, "{off}");
    }
}
