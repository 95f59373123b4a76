//! What to do about errors: which refinement, and why.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::record::ValidationRecord;
use crate::trend::{sign_test, trend};
use crate::validation::Metric;

/// Validations that it takes to advise anything.
const ENOUGH: usize = 12;
/// The latest of them, in which bias is looked for.
const LATEST: usize = 20;
/// A bias, a trend or a difference that could be chance more often than this is none.
const SIGNIFICANT: f64 = 0.05;
/// Biases of groups further apart than this are different patterns: a logarithm.
const APART: f64 = 0.12;

/// How a predictor is refined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refinement {
    /// Goes over what was observed once more and moves a little: recursive least squares.
    Incremental,
    /// Forgets what is old and fits anew to what is recent.
    Window,
    /// Lets experts on backends, strategies and numbers of models speak, weighed by how right
    /// each was lately.
    Weighted,
}

impl Refinement {
    /// All of them.
    pub const ALL: [Refinement; 3] =
        [Refinement::Incremental, Refinement::Window, Refinement::Weighted];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Refinement::Incremental => "incremental",
            Refinement::Window => "window",
            Refinement::Weighted => "weighted",
        }
    }
}

impl fmt::Display for Refinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Refinement {
    type Err = String;

    fn from_str(text: &str) -> Result<Refinement, String> {
        let known = Refinement::ALL.into_iter().find(|refinement| refinement.name() == text);
        known.ok_or_else(|| {
            format!("`{text}` is not a refinement: use incremental, window or weighted")
        })
    }
}

/// A refinement that should help.
#[derive(Clone, Debug, PartialEq)]
pub struct RefinementAdvice {
    /// What is predicted badly.
    pub metric: Metric,
    /// What should help.
    pub refinement: Refinement,
    /// Why, for people.
    pub reason: String,
}

/// Advises on validations of the predictor as it is, the oldest first.
pub(crate) fn advise(records: &[&ValidationRecord], threshold: f64) -> Vec<RefinementAdvice> {
    // Throughput follows from latency, and so does what is advised on it.
    let metrics = [Metric::Latency, Metric::Memory];
    metrics.into_iter().filter_map(|metric| advise_on(metric, records, threshold)).collect()
}

fn advise_on(
    metric: Metric,
    records: &[&ValidationRecord],
    threshold: f64,
) -> Option<RefinementAdvice> {
    let latest = &records[records.len().saturating_sub(LATEST)..];
    let errors: Vec<f64> = latest.iter().filter_map(|record| metric.error_rate(record)).collect();
    if errors.len() < ENOUGH {
        return None;
    }
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let newest = &errors[errors.len() - ENOUGH..];
    let now = newest.iter().sum::<f64>() / newest.len() as f64;
    let biases: Vec<f64> = latest.iter().filter_map(|record| metric.bias(record)).collect();
    let advice = |refinement, reason| Some(RefinementAdvice { metric, refinement, reason });
    // Below a third of the threshold there is nothing to gain.
    if mean.max(now) < threshold / 3.0 {
        return None;
    }
    if let Some((low, high)) = patterns(metric, latest) {
        let reason = format!(
            "errors of {} differ: {} is {:+.0} % off, {} {:+.0} %",
            metric.name(),
            high.0,
            high.1.exp_m1() * 100.0,
            low.0,
            low.1.exp_m1() * 100.0
        );
        return advice(Refinement::Weighted, reason);
    }
    let high = biases.iter().filter(|bias| **bias > 0.0).count();
    let one_sided = sign_test(high, biases.len());
    if one_sided < SIGNIFICANT {
        let side = if 2 * high > biases.len() { "low" } else { "high" };
        let reason = format!(
            "{} is predicted too {side}, {:.0} % off on average (p = {one_sided:.3})",
            metric.name(),
            mean * 100.0
        );
        return advice(Refinement::Window, reason);
    }
    let found = trend(&errors);
    if now > threshold && found.tau > 0.0 && found.p_value < SIGNIFICANT {
        let reason = format!(
            "errors of {} grow (τ = {:.2}, p = {:.3})",
            metric.name(),
            found.tau,
            found.p_value
        );
        return advice(Refinement::Window, reason);
    }
    let mean = mean * 100.0;
    advice(Refinement::Incremental, format!("{} is {mean:.0} % off, to no side", metric.name()))
}

/// The groups, by backend or by strategy, that are most apart, if any are.
fn patterns(
    metric: Metric,
    records: &[&ValidationRecord],
) -> Option<((String, f64), (String, f64))> {
    let by = |group: &dyn Fn(&ValidationRecord) -> String| {
        let mut groups: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for record in records {
            if let Some(bias) = metric.bias(record) {
                groups.entry(group(record)).or_default().push(bias);
            }
        }
        let mut means: Vec<(String, f64, f64)> = groups
            .into_iter()
            .filter(|(_, biases)| biases.len() >= 3)
            .map(|(group, biases)| {
                let count = biases.len() as f64;
                let mean = biases.iter().sum::<f64>() / count;
                let square = biases.iter().map(|bias| (bias - mean).powi(2)).sum::<f64>();
                (group, mean, square / (count - 1.0) / count)
            })
            .collect();
        means.sort_by(|one, two| one.1.total_cmp(&two.1));
        let (low, high) = (means.first()?.clone(), means.last()?.clone());
        let apart = high.1 - low.1;
        // Two and a half standard errors: the two were picked for being apart.
        let clear = apart > APART && apart > 2.5 * (low.2 + high.2).sqrt();
        clear.then_some(((low.0, low.1), (high.0, high.1)))
    };
    by(&|record| record.hardware_platform.clone())
        .or_else(|| by(&|record| record.execution_strategy.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Noise;
    use crate::strategy::Strategy;
    use crate::validation::tests::record;

    fn advised(records: &[ValidationRecord]) -> Option<RefinementAdvice> {
        let records: Vec<&ValidationRecord> = records.iter().collect();
        advise(&records, 0.15).into_iter().next()
    }

    fn check(records: &[ValidationRecord], refinement: Option<Refinement>) {
        let advice = advised(records);
        assert_eq!(advice.as_ref().map(|one| one.refinement), refinement, "{advice:?}");
    }

    #[test]
    fn a_bias_calls_for_a_window() {
        let records: Vec<_> = (0..12).map(|_| record("cpu", Strategy::Parallel, 1.3)).collect();
        check(&records, Some(Refinement::Window));
        let reason = advised(&records).expect("advice").reason;
        assert!(reason.contains("too low"), "{reason}");
    }

    #[test]
    fn errors_to_no_side_call_for_small_steps() {
        let mut noise = Noise::new(9);
        let off = |step: usize, size: f64| match step % 2 {
            0 => 1.0 + size,
            _ => 1.0 - size,
        };
        let records: Vec<_> = (0..16)
            .map(|step| record("cpu", Strategy::Parallel, off(step, 0.1 + 0.02 * noise.uniform())))
            .collect();
        check(&records, Some(Refinement::Incremental));
    }

    #[test]
    fn backends_or_strategies_that_differ_call_for_experts() {
        let backends: Vec<_> = (0..16)
            .map(|step| match step % 2 {
                0 => record("cpu", Strategy::Parallel, 1.3),
                _ => record("wasm", Strategy::Parallel, 0.8),
            })
            .collect();
        check(&backends, Some(Refinement::Weighted));
        let strategies: Vec<_> = (0..16)
            .map(|step| match step % 2 {
                0 => record("cpu", Strategy::Parallel, 1.3),
                _ => record("cpu", Strategy::Sequential, 1.0),
            })
            .collect();
        check(&strategies, Some(Refinement::Weighted));
        let reason = advised(&strategies).expect("advice").reason;
        assert!(reason.contains("parallel is +30 % off"), "{reason}");
    }

    #[test]
    fn few_validations_or_small_errors_call_for_nothing() {
        check(&vec![record("cpu", Strategy::Parallel, 2.0); 5], None);
        check(&vec![record("cpu", Strategy::Parallel, 1.03); 40], None);
        check(&[], None);
    }

    #[test]
    fn names_are_read_back() {
        for refinement in Refinement::ALL {
            assert_eq!(refinement.name().parse(), Ok(refinement));
        }
        assert!("none".parse::<Refinement>().is_err());
    }
}
