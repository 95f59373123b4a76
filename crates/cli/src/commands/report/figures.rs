//! What a report says in numbers: errors of predictions, in all and by what they belong to.

use holdfast_predict::ValidationRecord;
use serde::Serialize;

use crate::output::plural;

/// How good the predictions of a group were.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Errors {
    /// What the group is.
    pub(crate) of: String,
    /// Executions in it.
    pub(crate) count: usize,
    pub(crate) latency: Error,
    pub(crate) throughput: Error,
    /// `None` where memory was never measured.
    pub(crate) memory: Option<Error>,
    /// The part of the executions whose latency lay in the 90 % interval.
    pub(crate) covered: f64,
}

/// Error rates of one metric.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Error {
    pub(crate) median: f64,
    pub(crate) mean: f64,
}

impl Errors {
    /// Of all, then by backend, by strategy and by number of models.
    pub(crate) fn all(records: &[ValidationRecord]) -> Vec<Errors> {
        let all: Vec<&ValidationRecord> = records.iter().collect();
        let groups = [
            Errors::by(records, |record| format!("on {}", record.hardware_platform)),
            Errors::by(records, |record| record.execution_strategy.to_string()),
            Errors::by(records, |record| plural(record.model_count, "model")),
        ];
        Errors::of("all", &all).into_iter().chain(groups.into_iter().flatten()).collect()
    }

    /// `None` for nothing.
    pub(crate) fn of(name: &str, records: &[&ValidationRecord]) -> Option<Errors> {
        let latency = |record: &&ValidationRecord| record.latency_error_rate();
        let throughput = |record: &&ValidationRecord| record.throughput_error_rate();
        let memory = records.iter().filter_map(|record| record.memory_error_rate());
        let covered = records.iter().filter(|record| {
            (record.predicted_latency_low..=record.predicted_latency_high)
                .contains(&record.actual_latency)
        });
        Some(Errors {
            of: name.to_owned(),
            count: records.len(),
            latency: Error::of(records.iter().map(latency))?,
            throughput: Error::of(records.iter().map(throughput))?,
            memory: Error::of(memory),
            covered: covered.count() as f64 / records.len() as f64,
        })
    }

    /// One group for each name that `key` gives, in the order of the names.
    pub(crate) fn by<'a>(
        records: &'a [ValidationRecord],
        key: impl Fn(&'a ValidationRecord) -> String,
    ) -> Vec<Errors> {
        let mut groups: std::collections::BTreeMap<String, Vec<&ValidationRecord>> =
            std::collections::BTreeMap::new();
        for record in records {
            groups.entry(key(record)).or_default().push(record);
        }
        groups.iter().filter_map(|(name, records)| Errors::of(name, records)).collect()
    }
}

impl Error {
    fn of(rates: impl Iterator<Item = f64>) -> Option<Error> {
        let mut rates: Vec<f64> = rates.collect();
        rates.sort_by(f64::total_cmp);
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        Some(Error { median: median(&rates)?, mean })
    }
}

/// The middle of sorted values.
fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted.get(middle).copied(),
        _ => Some((sorted.get(middle.checked_sub(1)?)? + sorted.get(middle)?) / 2.0),
    }
}

/// The median of each value and those up to `window` before it: what a noisy series does.
pub(crate) fn rolling_median(values: &[f64], window: usize) -> Vec<Option<f64>> {
    let at = |end: usize| {
        let mut part = values[end.saturating_sub(window.saturating_sub(1))..=end].to_vec();
        part.sort_by(f64::total_cmp);
        median(&part)
    };
    (0..values.len()).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_an_even_number_lies_between_two() {
        assert_eq!(median(&[1.0, 2.0, 4.0]), Some(2.0));
        assert_eq!(median(&[1.0, 2.0, 4.0, 8.0]), Some(3.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_rolling_median_looks_back_and_never_ahead() {
        let rolled = rolling_median(&[1.0, 9.0, 2.0, 3.0], 3);
        assert_eq!(rolled, [Some(1.0), Some(5.0), Some(2.0), Some(3.0)]);
    }
}
