//! Rotary position embedding: queries and keys are turned by angles that grow with position.

use crate::layers::Net;

/// Cosines and sines of the angles: [batch, 1, length, head].
pub(crate) struct Rotary {
    cosine: String,
    sine: String,
}

impl Rotary {
    pub(crate) fn build(net: &mut Net<'_>, position_ids: &str) -> Rotary {
        let frequencies = frequencies(net.size().head());
        let frequencies = net.constant(&[1, frequencies.len(), 1], &frequencies);
        let positions = net.unsqueeze(position_ids, 1);
        let positions = net.cast(&positions, holdfast_graph::DataType::F32);
        let angles = net.op("MatMul", &[&frequencies, &positions]);
        let angles = net.transpose(&angles, &[0, 2, 1]);
        let angles = net.concat(&[&angles, &angles], -1);
        let cosine = net.op("Cos", &[&angles]);
        let cosine = net.unsqueeze(&cosine, 1);
        let sine = net.op("Sin", &[&angles]);
        let sine = net.unsqueeze(&sine, 1);
        Rotary { cosine, sine }
    }

    /// `x * cos + (-second half, first half) * sin`.
    pub(crate) fn turn(&self, net: &mut Net<'_>, x: &str) -> String {
        let half = net.size().head() as i64 / 2;
        let start = net.list(&[0i64]);
        let middle = net.list(&[half]);
        let end = net.list(&[i64::MAX]);
        let kept = net.op("Mul", &[x, &self.cosine]);
        let first = net.slice(x, &start, &middle, 3);
        let second = net.slice(x, &middle, &end, 3);
        let second = net.op("Neg", &[&second]);
        let crossed = net.concat(&[&second, &first], -1);
        let crossed = net.op("Mul", &[&crossed, &self.sine]);
        net.op("Add", &[&kept, &crossed])
    }
}

/// `10000^(-2i/head)` for every pair of dimensions.
fn frequencies(head: usize) -> Vec<f32> {
    let pairs = head / 2;
    (0..pairs).map(|pair| (1.0 / power(10_000.0, pair as f64 / pairs as f64)) as f32).collect()
}

/// A power with an exponent from 0 up to 1, by roots and products only: the standard
/// library's may differ in the last bit from platform to platform.
fn power(base: f64, exponent: f64) -> f64 {
    let (mut power, mut root, mut rest) = (1.0, base, exponent);
    // As many binary digits as a number has.
    for _ in 0..53 {
        root = root.sqrt();
        rest *= 2.0;
        if rest >= 1.0 {
            power *= root;
            rest -= 1.0;
        }
    }
    power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_those_of_the_standard_library() {
        for step in 0..24 {
            let exponent = f64::from(step) / 24.0;
            let expected = 10_000f64.powf(exponent);
            assert!((power(10_000.0, exponent) / expected - 1.0).abs() < 1e-12, "{exponent}");
        }
    }

    #[test]
    fn frequencies_start_at_one_and_fall() {
        let frequencies = frequencies(16);
        assert_eq!(frequencies[0], 1.0);
        assert!(frequencies.is_sorted_by(|one, next| one > next));
    }
}
