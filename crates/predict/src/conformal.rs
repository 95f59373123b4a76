//! Intervals that hold what they promise: from how far earlier estimates were off.
//!
//! Conformal prediction on logarithms of measured over predicted: an interval reaches as far as
//! nine of ten earlier estimates of the same kind were off. Kinds are told apart by device and by
//! how much was known. Newer misses count more, and the share of intervals that missed moves how
//! wide the next ones are (adaptive conformal inference, Gibbs and Candès 2021), so that coverage
//! holds while a machine changes.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::estimate::{Quantity, TermSource};

/// Share of measurements that may lie outside.
const MISSES: f64 = 0.1;
/// Misses that are kept of each kind.
pub(crate) const WINDOW: usize = 200;
/// Misses of a kind that are enough to go by.
const ENOUGH: usize = 20;
/// Misses from which on both sides are looked at apart.
const TWO_SIDED: usize = 80;
/// How much less an older miss counts than the next newer one.
const FADE: f64 = 0.985;
/// How fast the width follows the share of misses.
const GAIN: f64 = 0.05;
/// What shipped widths weigh, in misses.
const SHIPPED_WEIGHT: f64 = 8.0;

/// How far off estimates are: logarithms of what to multiply the value with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reach {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Reach {
    fn even(width: f64) -> Reach {
        Reach { low: -width, high: width }
    }

    pub(crate) fn around(self, value: f64, source: TermSource) -> Quantity {
        let low = value * self.low.min(0.0).exp();
        let high = value * self.high.max(0.0).exp();
        Quantity { value, low: low.min(value), high: high.max(value), source }
    }
}

/// Misses of one kind of estimates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Window {
    misses: VecDeque<f64>,
    /// Share of misses that the next interval aims at.
    aim: f64,
    reach: Reach,
}

impl Default for Window {
    fn default() -> Window {
        Window { misses: VecDeque::new(), aim: MISSES, reach: Reach::default() }
    }
}

impl Window {
    fn observe(&mut self, miss: f64) {
        if self.misses.len() >= ENOUGH {
            let outside = miss < self.reach.low || miss > self.reach.high;
            let missed = if outside { 1.0 } else { 0.0 };
            self.aim = (self.aim + GAIN * (MISSES - missed)).clamp(0.02, 0.3);
        }
        if self.misses.len() == WINDOW {
            self.misses.pop_front();
        }
        self.misses.push_back(miss);
        self.reach = self.find_reach();
    }

    fn find_reach(&self) -> Reach {
        let newest = self.misses.len() as i32 - 1;
        let mut weight = FADE.powi(newest);
        let mut weighed = Vec::with_capacity(self.misses.len());
        for miss in &self.misses {
            weighed.push((*miss, weight));
            weight /= FADE;
        }
        let order = |one: &(f64, f64), two: &(f64, f64)| one.0.total_cmp(&two.0);
        if weighed.len() < TWO_SIDED {
            weighed.iter_mut().for_each(|(miss, _)| *miss = miss.abs());
            weighed.sort_unstable_by(order);
            return Reach::even(quantile(weighed.iter(), 1.0 - self.aim));
        }
        weighed.sort_unstable_by(order);
        let share = 1.0 - self.aim / 2.0;
        Reach { low: quantile(weighed.iter().rev(), share), high: quantile(weighed.iter(), share) }
    }
}

/// The first of sorted numbers that a share of all is not beyond, one that is yet to come
/// included.
fn quantile<'a>(sorted: impl Iterator<Item = &'a (f64, f64)> + Clone, share: f64) -> f64 {
    let all: f64 = sorted.clone().map(|(_, weight)| weight).sum();
    let wanted = share * (all + 1.0);
    let (mut below, mut last) = (0.0, 0.0);
    for (number, weight) in sorted {
        below += weight;
        last = *number;
        if below >= wanted {
            return last;
        }
    }
    // Not even all of them are enough: somewhat further than the worst.
    last * 1.1 + 0.01 * last.signum()
}

/// Misses by how much was known, from [`TermSource::Measured`] to [`TermSource::Prior`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Misses([Window; 4]);

impl Misses {
    pub(crate) fn observe(&mut self, source: TermSource, miss: f64) {
        if miss.is_finite() {
            self.0[source as usize].observe(miss.clamp(-20.0, 20.0));
        }
    }

    #[cfg(test)]
    pub(crate) fn longest(&self) -> usize {
        self.0.iter().map(|window| window.misses.len()).max().unwrap_or(0)
    }
}

/// How far an estimate reaches: by misses of this device, else by those of its backend, else by
/// what ships, and between these as long as there are few.
pub(crate) fn reach(
    device: &Misses,
    backend: Option<&Misses>,
    source: TermSource,
    shipped: f64,
) -> Reach {
    let own = &device.0[source as usize];
    if own.misses.len() >= ENOUGH {
        return own.reach;
    }
    let others = backend.map(|backend| &backend.0[source as usize]);
    let fallback = match others {
        Some(window) if window.misses.len() >= ENOUGH => window.reach,
        _ => Reach::even(shipped),
    };
    let count = own.misses.len() as f64;
    let worst = own.misses.iter().fold(0.0_f64, |worst, miss| worst.max(miss.abs())) * 1.1;
    let mix = |fallback: f64, worst: f64| {
        (fallback * SHIPPED_WEIGHT + worst * count) / (SHIPPED_WEIGHT + count)
    };
    Reach { low: mix(fallback.low, -worst), high: mix(fallback.high, worst) }
}

/// How far estimates of latency reach that nothing is known of: logarithms.
pub(crate) fn shipped_latency(source: TermSource) -> f64 {
    match source {
        TermSource::Measured => 0.3,
        TermSource::Interpolated => 0.45,
        TermSource::Fitted => 0.7,
        TermSource::Prior => 1.4,
    }
}

/// The same for memory.
pub(crate) fn shipped_memory(source: TermSource) -> f64 {
    match source {
        TermSource::Measured => 0.08,
        TermSource::Interpolated => 0.15,
        TermSource::Fitted => 0.3,
        TermSource::Prior => 0.8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Noise;

    /// The share of `count` misses that the interval of the moment held.
    fn coverage(count: usize, miss: impl Fn(usize, &mut Noise) -> f64) -> f64 {
        let mut noise = Noise::new(7);
        let mut misses = Misses::default();
        let (mut held, mut seen) = (0.0, 0.0);
        for step in 0..count {
            let miss = miss(step, &mut noise);
            let reach = reach(&misses, None, TermSource::Measured, 0.3);
            if step >= 60 {
                held += f64::from(u8::from(reach.low <= miss && miss <= reach.high));
                seen += 1.0;
            }
            misses.observe(TermSource::Measured, miss);
        }
        held / seen
    }

    #[test]
    fn nine_of_ten_lie_inside() {
        let share = coverage(1500, |_, noise| 0.05 * noise.normal());
        assert!((0.87..0.93).contains(&share), "{share}");
    }

    #[test]
    fn also_where_misses_lean_to_one_side() {
        let share = coverage(1500, |_, noise| 0.05 * noise.normal().abs().powi(2));
        assert!((0.86..0.94).contains(&share), "{share}");
    }

    #[test]
    fn also_while_noise_grows() {
        let share = coverage(1500, |step, noise| (0.02 + step as f64 * 1e-4) * noise.normal());
        assert!((0.86..0.94).contains(&share), "{share}");
    }

    #[test]
    fn without_data_it_is_as_wide_as_shipped() {
        let reach = reach(&Misses::default(), None, TermSource::Prior, 1.4);
        assert_eq!((reach.low, reach.high), (-1.4, 1.4));
    }

    #[test]
    fn a_new_device_goes_by_others_of_its_backend() {
        let mut backend = Misses::default();
        (0..50).for_each(|step| backend.observe(TermSource::Measured, f64::from(step % 5) * 0.01));
        let narrow = reach(&Misses::default(), Some(&backend), TermSource::Measured, 0.3);
        assert!(narrow.high < 0.1, "{narrow:?}");
        let other_kind = reach(&Misses::default(), Some(&backend), TermSource::Prior, 1.4);
        assert_eq!(other_kind.high, 1.4);
    }

    #[test]
    fn keeps_a_bounded_window_of_numbers() {
        let mut misses = Misses::default();
        (0..1000).for_each(|_| misses.observe(TermSource::Fitted, 0.1));
        misses.observe(TermSource::Fitted, f64::NAN);
        assert_eq!(misses.longest(), WINDOW);
    }

    #[test]
    fn an_interval_holds_its_value_even_if_all_misses_lean() {
        let quantity = Reach { low: 0.1, high: 0.3 }.around(2.0, TermSource::Measured);
        assert!(quantity.covers(quantity.value));
    }
}
