//! Whether a change is an improvement, or chance.

/// The mean of what was gained, one by one; 0 of nothing.
pub(crate) fn mean(gains: &[f64]) -> f64 {
    gains.iter().sum::<f64>() / gains.len().max(1) as f64
}

/// Whether so much was gained on average that it is hardly chance: more than so many standard errors
/// of the mean.
pub(crate) fn is_clear(gains: &[f64], standard_errors: f64) -> bool {
    let (count, gain) = (gains.len() as f64, mean(gains));
    let squares: f64 = gains.iter().map(|one| (one - gain).powi(2)).sum();
    let error = (squares / (count - 1.0).max(1.0) / count).sqrt();
    gain > 0.0 && gain > standard_errors * error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(gains: &[f64], clear: bool) {
        assert_eq!(is_clear(gains, 1.0), clear, "{gains:?}");
    }

    #[test]
    fn a_gain_nearly_everywhere_is_clear() {
        check(&[0.1, 0.12, 0.08, 0.1, -0.01], true);
        check(&[0.01; 4], true);
    }

    #[test]
    fn a_gain_that_one_of_them_made_is_not() {
        check(&[1.0, -0.1, 0.0, 0.0, 0.0], false);
    }

    #[test]
    fn neither_are_losses_nor_nothing() {
        check(&[-0.1; 4], false);
        check(&[0.0; 4], false);
        check(&[], false);
        check(&[f64::NAN, 1.0], false);
    }
}
