//! The last few values of something, and where they lie.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Values that are kept.
const KEPT: usize = 63;
/// The newest of them, which are looked at for a change.
const NEWEST: usize = 5;
/// How far the newest have to be from the others, as a factor.
const CHANGE: f64 = 1.05;

/// Larger values are no measurement.
const MOST: f64 = 1e18;

/// A short history of one quantity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recent {
    values: VecDeque<f64>,
    centre: f64,
    count: u64,
}

impl Recent {
    /// Takes a value; what is not a number, or negative, is no measurement.
    pub(crate) fn push(&mut self, value: f64) {
        if !(0.0..=MOST).contains(&value) {
            return;
        }
        if self.values.len() == KEPT {
            self.values.pop_front();
        }
        self.values.push_back(value);
        self.count += 1;
        self.centre = self.find_centre();
    }

    /// The median, or that of the newest if they are all off the others; `None` without values.
    pub(crate) fn centre(&self) -> Option<f64> {
        (!self.values.is_empty()).then_some(self.centre)
    }

    /// Values that it was ever given.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    fn find_centre(&self) -> f64 {
        let split = self.values.len().saturating_sub(NEWEST);
        let newest = sorted(self.values.iter().skip(split));
        if split >= NEWEST - 1 {
            let older = sorted(self.values.iter().take(split));
            let above = newest[0] > older[(older.len() * 3) / 4] * CHANGE;
            let below = newest[newest.len() - 1] * CHANGE < older[older.len() / 4];
            if above || below {
                return middle(&newest);
            }
        }
        middle(&sorted(self.values.iter()))
    }
}

/// The median of numbers in any order; 0 if there are none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    middle(&values)
}

fn sorted<'a>(values: impl Iterator<Item = &'a f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.copied().collect();
    values.sort_by(f64::total_cmp);
    values
}

fn middle(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => (sorted[even / 2 - 1] + sorted[even / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[f64], centre: Option<f64>) {
        let mut recent = Recent::default();
        values.iter().for_each(|value| recent.push(*value));
        assert_eq!(recent.centre(), centre, "{values:?}");
    }

    #[test]
    fn a_stray_value_does_not_move_the_centre() {
        check(&[1.0, 1.1, 0.9, 50.0, 1.0], Some(1.0));
    }

    #[test]
    fn a_lasting_change_is_followed() {
        check(&[1.0, 1.1, 0.9, 1.0, 1.0, 1.7, 1.8, 1.7, 1.6, 1.7], Some(1.7));
        check(&[2.0, 2.1, 1.9, 2.0, 2.0, 1.0, 1.1, 1.0, 0.9, 1.0], Some(1.0));
    }

    #[test]
    fn noise_is_not_taken_for_a_change() {
        check(&[1.0, 1.2, 0.8, 1.0, 1.1, 1.2, 1.1, 1.2, 0.9, 1.1], Some(1.1));
    }

    #[test]
    fn what_cannot_be_measured_is_left_out() {
        check(&[], None);
        check(&[f64::NAN, -1.0, f64::INFINITY], None);
    }

    #[test]
    fn keeps_a_few_values_only() {
        let mut recent = Recent::default();
        (0..1000).for_each(|value| recent.push(f64::from(value)));
        assert_eq!((recent.values.len(), recent.count()), (KEPT, 1000));
    }
}
