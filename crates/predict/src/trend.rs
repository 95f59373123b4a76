//! Whether numbers rise or fall over time, by ranks: the Mann-Kendall test.
//!
//! Ranks do not care how large a stray error is, nor what errors are distributed like.

/// A trend of numbers in the order of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Trend {
    /// Kendall's τ (b: ties are taken off), from -1 to 1.
    pub(crate) tau: f64,
    /// The probability of one this strong by chance.
    pub(crate) p_value: f64,
}

/// Looks for a trend. Fewer than four numbers have none.
pub(crate) fn trend(values: &[f64]) -> Trend {
    let count = values.len();
    if count < 4 {
        return Trend { tau: 0.0, p_value: 1.0 };
    }
    let mut score = 0.0;
    for (index, later) in values.iter().enumerate() {
        for earlier in &values[..index] {
            score += match later.total_cmp(earlier) {
                std::cmp::Ordering::Less => -1.0,
                std::cmp::Ordering::Equal => 0.0,
                std::cmp::Ordering::Greater => 1.0,
            };
        }
    }
    let n = count as f64;
    let spread = |n: f64| n * (n - 1.0) * (2.0 * n + 5.0);
    let (mut variance, mut tied_pairs) = (spread(n), 0.0);
    for ties in ties(values) {
        variance -= spread(ties);
        tied_pairs += ties * (ties - 1.0) / 2.0;
    }
    variance /= 18.0;
    let pairs = n * (n - 1.0) / 2.0;
    if variance <= 0.0 || tied_pairs >= pairs {
        return Trend { tau: 0.0, p_value: 1.0 };
    }
    let tau = score / (pairs * (pairs - tied_pairs)).sqrt();
    // One step of the score is taken off, because it jumps and the normal distribution does not.
    let z = (score.abs() - 1.0).max(0.0) / variance.sqrt();
    Trend { tau: tau.clamp(-1.0, 1.0), p_value: two_sided(z) }
}

/// The probability that as many of `count` coins, or more, fall on the same side.
pub(crate) fn sign_test(above: usize, count: usize) -> f64 {
    if count == 0 {
        return 1.0;
    }
    let more = above.max(count - above) as f64;
    let n = count as f64;
    two_sided(((more - n / 2.0 - 0.5).max(0.0)) / (n / 4.0).sqrt())
}

/// The probability that a standard normal number is further from 0 than `z`.
pub(crate) fn two_sided(z: f64) -> f64 {
    // The complementary error function by a rational approximation, off by 1.2e-7 at most.
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.5 * x);
    let series = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let polynomial = series.iter().rev().fold(0.0, |sum, coefficient| sum * t + coefficient);
    (t * (polynomial - x * x).exp()).clamp(0.0, 1.0)
}

/// Sizes of groups of equal numbers.
fn ties(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.chunk_by(|one, two| one == two).map(|group| group.len() as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Noise;

    #[test]
    fn numbers_that_rise_have_a_trend_and_those_that_fall_the_opposite_one() {
        let rising: Vec<f64> = (0..12).map(f64::from).collect();
        let falling: Vec<f64> = rising.iter().map(|value| -value).collect();
        assert_eq!(trend(&rising).tau, 1.0);
        assert_eq!(trend(&falling).tau, -1.0);
        assert!(trend(&rising).p_value < 0.001);
    }

    #[test]
    fn noise_seldom_has_one() {
        let mut noise = Noise::new(3);
        let found = (0..400).filter(|_| {
            let values: Vec<f64> = (0..20).map(|_| noise.uniform()).collect();
            trend(&values).p_value < 0.05
        });
        let found = found.count();
        assert!(found < 36, "{found} of 400");
    }

    #[test]
    fn equal_numbers_and_too_few_have_none() {
        assert_eq!(trend(&[0.5; 20]), Trend { tau: 0.0, p_value: 1.0 });
        assert_eq!(trend(&[1.0, 2.0, 3.0]), Trend { tau: 0.0, p_value: 1.0 });
    }

    #[test]
    fn ties_are_taken_off() {
        let trend = trend(&[1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]);
        assert!(trend.tau > 0.9 && trend.tau <= 1.0, "{trend:?}");
        assert!(trend.p_value < 0.01, "{trend:?}");
    }

    #[test]
    fn probabilities_are_those_of_the_tables() {
        assert!((two_sided(1.96) - 0.05).abs() < 1e-4);
        assert!((two_sided(0.0) - 1.0).abs() < 1e-6);
        assert!(sign_test(10, 10) < 0.01);
        assert!(sign_test(5, 10) > 0.5);
        assert_eq!(sign_test(0, 0), 1.0);
    }
}
