//! What an estimate is made of, put into words.

use crate::estimate::{Term, TermSource};
use crate::features::Features;
use crate::runs::{Part, Runs};
use crate::work::{LABELS, Work};

/// Terms that an estimate lists at most.
pub(crate) const TERMS: usize = 96;
/// Parts of a run that are smaller than this are not listed.
const WORTH_LISTING: f64 = 0.05;

/// Terms as they come up.
#[derive(Default)]
pub(crate) struct Terms(Vec<Term>);

impl Terms {
    pub(crate) fn add(&mut self, what: String, value: f64, unit: &str, source: TermSource) {
        if self.0.len() < TERMS && value.is_finite() {
            self.0.push(Term { what, value, unit: unit.to_owned(), source });
        }
    }

    pub(crate) fn seconds(&mut self, model: &str, what: &str, seconds: f64, source: TermSource) {
        self.add([model, ": ", what].concat(), seconds, "s", source);
    }

    pub(crate) fn into_vec(self) -> Vec<Term> {
        self.0
    }
}

/// What one piece takes: as a whole if it was measured, else by kinds of work.
pub(crate) fn piece_terms(
    terms: &mut Terms,
    label: &str,
    features: &Features,
    compute: &Part,
    transfer: &Part,
    runs: &Runs,
) {
    match compute.source {
        TermSource::Measured | TermSource::Interpolated => {
            terms.seconds(label, "compute", compute.seconds, compute.source);
        }
        TermSource::Fitted | TermSource::Prior => {
            let work = Work::of(features);
            let sum = runs.fit.sum(&work);
            let parts = work.0.iter().zip(runs.fit.unit_costs()).map(|(work, cost)| work * cost);
            let mut small = 0.0;
            for (work, part) in LABELS.iter().zip(parts) {
                match part >= WORTH_LISTING * sum {
                    true => terms.seconds(label, work, part, compute.source),
                    false => small += part,
                }
            }
            terms.seconds(label, "other work", small, compute.source);
            let alike = compute.seconds - sum;
            if alike.abs() > 0.01 * sum {
                terms.seconds(label, "as runs that are alike", alike, compute.source);
            }
        }
    }
    if transfer.seconds > 0.0 {
        terms.seconds(label, "transfer", transfer.seconds, transfer.source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_terms_is_bounded_and_holds_numbers_only() {
        let mut terms = Terms::default();
        terms.seconds("a", "compute", f64::NAN, TermSource::Prior);
        (0..500).for_each(|_| terms.seconds("a", "compute", 1.0, TermSource::Measured));
        let terms = terms.into_vec();
        assert_eq!(terms.len(), TERMS);
        assert_eq!(terms[0].what, "a: compute");
        assert!(terms.iter().all(|term| term.value == 1.0));
    }
}
