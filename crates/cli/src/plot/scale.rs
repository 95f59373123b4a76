//! From values to places, and the round values that are written beside an axis.

/// How values become places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scale {
    /// Equal differences are equally far apart.
    Linear { low: f64, high: f64 },
    /// Equal ratios are.
    Log { low: f64, high: f64 },
}

impl Scale {
    /// From zero to a round value above all of these.
    pub(super) fn from_zero(values: impl IntoIterator<Item = f64>) -> Scale {
        let most = values.into_iter().filter(|value| value.is_finite()).fold(0.0, f64::max);
        let high = if most > 0.0 { most * 1.05 } else { 1.0 };
        Scale::Linear { low: 0.0, high }
    }

    /// Around all of these that are above zero.
    pub(super) fn log(values: impl IntoIterator<Item = f64>) -> Scale {
        let positive = values.into_iter().filter(|value| value.is_finite() && *value > 0.0);
        let (low, high) = positive
            .fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
        match low <= high {
            true => Scale::Log { low: low / 1.15, high: high * 1.15 },
            false => Scale::Log { low: 1.0, high: 10.0 },
        }
    }

    /// Its lowest and its highest value.
    pub(super) fn ends(self) -> (f64, f64) {
        match self {
            Scale::Linear { low, high } | Scale::Log { low, high } => (low, high),
        }
    }

    /// Where a value is: 0 at the low end, 1 at the high end.
    pub(super) fn place(self, value: f64) -> f64 {
        let part = match self {
            Scale::Linear { low, high } => (value - low) / (high - low),
            Scale::Log { low, high } => (value.max(low) / low).ln() / (high / low).ln(),
        };
        part.clamp(0.0, 1.0)
    }

    /// Round values, few enough to be read.
    pub(super) fn ticks(self) -> Vec<f64> {
        match self {
            Scale::Linear { low, high } => {
                let step = round_step((high - low) / 5.0);
                let first = (low / step).ceil() as i64;
                (first..).map(|tick| tick as f64 * step).take_while(|tick| *tick <= high).collect()
            }
            Scale::Log { low, high } => {
                let decades = (high / low).log10();
                let within: &[f64] = if decades > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
                let first = low.log10().floor() as i32;
                let last = high.log10().ceil() as i32;
                let all = (first..=last)
                    .flat_map(|decade| within.iter().map(move |part| part * 10f64.powi(decade)));
                all.filter(|tick| *tick >= low && *tick <= high).collect()
            }
        }
    }
}

/// The next larger one of 1, 2 and 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    let decade = 10f64.powf(step.log10().floor());
    let rounds = [1.0, 2.0, 5.0, 10.0].map(|part| part * decade);
    rounds.into_iter().find(|round| *round >= step * 0.999).unwrap_or(10.0 * decade)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(
            Scale::Linear { low: 0.0, high: 0.32 }.ticks(),
            [0.0, 0.1, 0.2, 0.30000000000000004]
        );
        assert_eq!(Scale::Log { low: 0.9, high: 30.0 }.ticks(), [1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(Scale::Log { low: 0.5, high: 5000.0 }.ticks(), [1.0, 10.0, 100.0, 1000.0]);
    }

    #[test]
    fn equal_ratios_are_equally_far_apart_on_a_log_scale_only() {
        let (log, linear) =
            (Scale::Log { low: 1.0, high: 100.0 }, Scale::Linear { low: 0.0, high: 100.0 });
        assert!((log.place(10.0) - 0.5).abs() < 1e-12);
        assert!((linear.place(10.0) - 0.1).abs() < 1e-12);
    }

    #[test]
    fn nothing_to_show_still_gives_an_axis() {
        assert!(!Scale::log([]).ticks().is_empty());
        assert!(Scale::from_zero([0.0, f64::NAN]).place(0.5).is_finite());
        assert!(!Scale::log([7.0]).ticks().is_empty() || Scale::log([7.0]).place(7.0) > 0.0);
    }
}
