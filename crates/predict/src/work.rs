//! The inputs of the linear cost model: a run's work as a few sums, and what it is like.

use serde::{Deserialize, Serialize};

use crate::features::{Features, OperatorClass};

/// Inputs of the linear model.
pub(crate) const INPUTS: usize = 11;
/// Numbers that say what a run is like.
const TRAITS: usize = 11;

/// No run takes more of anything.
const MOST_WORK: f64 = 1e21;

/// What each input stands for, and the class that it counts for.
pub(crate) const LABELS: [&str; INPUTS] = [
    "start of the run",
    "nodes",
    "matmul",
    "convolution",
    "attention",
    "control",
    "memory of products",
    "normalisation",
    "elementwise",
    "gather",
    "memory of control",
];

/// A run's work: times a vector of unit costs, its seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Work(pub(crate) [f64; INPUTS]);

impl Work {
    pub(crate) fn of(features: &Features) -> Work {
        let class = |class: OperatorClass| features.class(class);
        let bytes = |of: OperatorClass| class(of).bytes;
        let work = [
            1.0,
            features.nodes(),
            class(OperatorClass::Matmul).flops,
            class(OperatorClass::Convolution).flops,
            class(OperatorClass::Attention).flops,
            class(OperatorClass::Control).flops,
            bytes(OperatorClass::Matmul)
                + bytes(OperatorClass::Convolution)
                + bytes(OperatorClass::Attention),
            bytes(OperatorClass::Normalisation),
            bytes(OperatorClass::Elementwise),
            bytes(OperatorClass::Gather),
            bytes(OperatorClass::Control),
        ];
        // A sum of what cannot be is still a number.
        Work(work.map(|one| if one.is_finite() { one.clamp(0.0, MOST_WORK) } else { MOST_WORK }))
    }

    /// Whether it is the same work. Numbers that were written and read again may differ by a hair.
    pub(crate) fn is(&self, other: &Work) -> bool {
        self.0.iter().zip(&other.0).all(|(one, two)| (one - two).abs() <= 1e-9 * one.abs())
    }

    pub(crate) fn seconds(&self, unit_costs: &[f64; INPUTS]) -> f64 {
        self.0.iter().zip(unit_costs).map(|(work, cost)| work * cost).sum()
    }
}

/// What a run is like, whatever its size in memory: models of one architecture come out alike at
/// any width, because they have the same nodes in the same proportion.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Likeness([f64; TRAITS]);

impl Likeness {
    pub(crate) fn of(features: &Features) -> Likeness {
        let nodes = features.nodes().max(1.0);
        let mut traits = [0.0; TRAITS];
        for (share, work) in traits.iter_mut().zip(&features.work) {
            *share = 4.0 * work.nodes / nodes;
        }
        let product = &features.work[OperatorClass::Matmul.index()];
        let flops = features.flops().max(1.0);
        traits[7] = 0.5 * nodes.ln();
        traits[8] = 0.25 * (flops / nodes).ln();
        traits[9] = 0.3 * (product.flops.max(1.0) / product.bytes.max(1.0)).ln();
        traits[10] = 0.15 * features.elements().ln();
        Likeness(traits.map(|one| if one.is_finite() { one } else { 0.0 }))
    }

    /// How alike two runs are: 1 for equal ones, near 0 for those that have little in common.
    pub(crate) fn to(&self, other: &Likeness) -> f64 {
        let squares = self.0.iter().zip(&other.0).map(|(one, two)| (one - two) * (one - two));
        (-2.0 * squares.sum::<f64>()).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::ClassWork;

    fn layers(layers: f64, width: f64, tokens: f64) -> Features {
        let mut features = Features { batch: 1, sequence: tokens as usize, ..Features::default() };
        features.work[0] = ClassWork {
            flops: layers * 24.0 * width * width * tokens,
            bytes: layers * (48.0 * width * width + 60.0 * width * tokens),
            nodes: layers * 6.0,
        };
        features.work[4] = ClassWork {
            flops: layers * width * tokens,
            bytes: layers * 30.0 * width * tokens,
            nodes: layers * 8.0,
        };
        features
    }

    #[test]
    fn the_same_architecture_at_another_width_is_more_alike_than_another_one() {
        let likeness = |features: &Features| Likeness::of(features);
        let base = likeness(&layers(6.0, 384.0, 128.0));
        let wider = likeness(&layers(6.0, 512.0, 128.0));
        let mut other = layers(6.0, 384.0, 128.0);
        other.work.swap(0, 1);
        assert_eq!(base.to(&base), 1.0);
        assert!(base.to(&wider) > 0.5, "{}", base.to(&wider));
        assert!(base.to(&likeness(&other)) < 0.01);
    }

    #[test]
    fn work_of_nothing_is_the_start_of_a_run() {
        let work = Work::of(&Features::default());
        assert_eq!(work.0.iter().sum::<f64>(), 1.0);
        assert!(Likeness::of(&Features::default()).0.iter().all(|one| one.is_finite()));
    }
}
