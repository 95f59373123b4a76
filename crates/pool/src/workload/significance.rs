//! Whether one way is faster than another, or only was this time.

/// Above this many pairs, not all signs are tried but so many.
const EXACT_PAIRS: usize = 12;
const SAMPLES: u64 = 4096;
/// More say nothing new.
const MOST_PAIRS: usize = 64;

/// How sure it is that the first of each pair is smaller: one less the probability that pairs which
/// differ only by chance would look at least like that, in whichever direction: which one is the
/// first was decided by the same measurements. Measurements of one round are a pair, so that what
/// disturbs a round disturbs both.
pub(super) fn confidence(pairs: &[(f64, f64)]) -> f64 {
    let pairs = pairs.iter().take(MOST_PAIRS);
    let differences: Vec<f64> = pairs.map(|(one, other)| other - one).collect();
    if differences.is_empty() {
        return 0.0;
    }
    let seen: f64 = differences.iter().sum();
    // Rounding must not make the sum of the same numbers smaller than itself.
    let limit = seen * (1.0 - 1e-12);
    if seen <= 0.0 {
        return 0.0;
    }
    let flipped = |signs: u64| -> f64 {
        let signed = |(at, difference): (usize, &f64)| match signs >> at & 1 {
            0 => *difference,
            _ => -difference,
        };
        differences.iter().enumerate().map(signed).sum()
    };
    let (tried, as_large) = if differences.len() <= EXACT_PAIRS {
        let all = 1u64 << differences.len();
        (all, (0..all).filter(|&signs| flipped(signs).abs() >= limit).count())
    } else {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let drawn = std::iter::repeat_with(move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        });
        let as_large = drawn.take(SAMPLES as usize).filter(|&signs| flipped(signs).abs() >= limit);
        // What was seen is one of the ways to flip.
        (SAMPLES + 1, as_large.count() + 1)
    };
    1.0 - as_large as f64 / tried as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_always_smaller_is_sure_as_far_as_the_number_of_rounds_allows() {
        let pairs = |count: usize| vec![(1.0, 1.1); count];
        assert_eq!(confidence(&pairs(5)), 1.0 - 2.0 / 32.0);
        assert!(confidence(&pairs(40)) > 0.999);
    }

    #[test]
    fn what_is_as_often_larger_is_not() {
        let pairs = [(1.0, 1.1), (1.1, 1.0), (1.0, 1.1), (1.1, 1.0)];
        assert!(confidence(&pairs) < 0.7, "{}", confidence(&pairs));
        assert_eq!(confidence(&[(1.0, 1.0); 6]), 0.0);
        assert_eq!(confidence(&[]), 0.0);
    }

    #[test]
    fn what_is_larger_is_surely_not_smaller() {
        assert!(confidence(&[(2.0, 1.0); 6]) < 0.01);
    }
}
