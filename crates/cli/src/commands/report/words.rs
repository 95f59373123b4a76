//! What a report says, for all formats.

use std::time::SystemTime;

use holdfast_history::{InferenceSummary, Overview};
use holdfast_predict::{
    ErrorTrend, OptimizationImpact, RefinementRecord, SettingChange, Strategy, ValidationRecord,
};

use super::figures::{Error, Errors};
use crate::output::{bytes, plural};

/// How a strategy without sharing is called.
pub(crate) const UNSHARED: &str = "unshared";

pub(crate) const ERROR_HEADER: [&str; 7] = [
    "of",
    "executions",
    "latency, median",
    "latency, mean",
    "throughput, mean",
    "memory, mean",
    "in the 90 % interval",
];
pub(super) const IMPACT_HEADER: [&str; 7] =
    ["workload", "backend", "compared with", "chosen", "latency", "throughput", "memory"];
pub(super) const TREND_HEADER: [&str; 5] =
    ["metric", "direction", "strength (τ)", "by chance (p)", "mean error"];
pub(super) const REFINEMENT_HEADER: [&str; 6] =
    ["when", "metric", "method", "why", "error before → after", "kept"];
pub(super) const SETTING_HEADER: [&str; 5] = ["when", "backend", "setting", "change", "why"];
pub(super) const INFERENCE_HEADER: [&str; 7] =
    ["model", "backend", "answers", "failed", "compute p50", "p90", "reused"];

/// What all of it says, in a few sentences.
pub(super) fn summary(errors: &[Errors]) -> String {
    let Some(errors) = errors.first() else {
        return "Nothing was predicted and measured yet. `holdfast validate` does that on mixes of \
                your models."
            .to_owned();
    };
    let memory = errors.memory.map_or(String::new(), |memory| {
        format!(" Memory was off by {} on average.", percent(memory.mean))
    });
    format!(
        "{} were predicted before they ran. Latency was off by {} in the middle and by {} on \
         average; {} of the measurements lay in the 90 % interval.{memory}",
        plural(errors.count, "execution"),
        percent(errors.latency.median),
        percent(errors.latency.mean),
        percent(errors.covered),
    )
}

/// One execution, in a line.
pub(super) fn execution(record: &ValidationRecord) -> String {
    format!(
        "{}, {}, {}: predicted {}, measured {}",
        models(record.model_count),
        record.hardware_platform,
        record.execution_strategy,
        ms(record.predicted_latency),
        ms(record.actual_latency)
    )
}

pub(crate) fn error_row(errors: &Errors) -> Vec<String> {
    let mean = |error: Option<Error>| error.map_or("–".to_owned(), |error| percent(error.mean));
    vec![
        errors.of.clone(),
        errors.count.to_string(),
        percent(errors.latency.median),
        percent(errors.latency.mean),
        percent(errors.throughput.mean),
        mean(errors.memory),
        percent(errors.covered),
    ]
}

pub(super) fn impact_row(impact: &OptimizationImpact) -> Vec<String> {
    let change = |before: f64, after: f64| format!("{:+.1} %", (after / before - 1.0) * 1e2);
    let memory = impact.baseline_memory.zip(impact.optimized_memory);
    vec![
        models(impact.model_count),
        impact.hardware_platform.clone(),
        impact.baseline_strategy.clone(),
        impact.optimized_strategy.clone(),
        format!(
            "{} → {} ({})",
            ms(impact.baseline_latency),
            ms(impact.optimized_latency),
            change(impact.baseline_latency, impact.optimized_latency)
        ),
        change(impact.baseline_throughput, impact.optimized_throughput),
        memory.map_or("–".to_owned(), |(before, after)| change(before, after)),
    ]
}

/// What was compared, beside its bars.
pub(super) fn workload(impact: &OptimizationImpact) -> String {
    format!("{}, {}", models(impact.model_count), impact.hardware_platform)
}

/// What a strategy took in one comparison, as far as it was measured.
pub(super) fn latency_of(strategy: Strategy, ways: &[&OptimizationImpact]) -> Option<f64> {
    let chosen = ways.iter().find(|way| way.optimized_strategy == strategy.name());
    let baseline = || ways.iter().find(|way| way.baseline_strategy == strategy.name());
    chosen.map(|way| way.optimized_latency).or_else(|| Some(baseline()?.baseline_latency))
}

pub(super) fn trend_row(trend: &ErrorTrend) -> Vec<String> {
    vec![
        trend.metric.clone(),
        trend.direction.clone(),
        format!("{:+.2}", trend.strength),
        probability(trend.p_value),
        percent(trend.mean_error_rate),
    ]
}

pub(super) fn refinement_row(refinement: &RefinementRecord) -> Vec<String> {
    vec![
        when(refinement.timestamp),
        refinement.metric.clone(),
        refinement.method.clone(),
        refinement.reason.clone(),
        format!("{} → {}", percent(refinement.error_before), percent(refinement.error_after)),
        if refinement.kept { "yes" } else { "no, rolled back" }.to_owned(),
    ]
}

/// A refinement, in a line.
pub(super) fn refinement(refinement: &RefinementRecord) -> String {
    format!(
        "{} refined ({}): {} → {}",
        refinement.metric,
        refinement.method,
        percent(refinement.error_before),
        percent(refinement.error_after)
    )
}

pub(super) fn setting_row(change: &SettingChange) -> Vec<String> {
    vec![
        when(change.timestamp),
        change.hardware_platform.clone(),
        change.setting.clone(),
        format!("{} → {}", change.before, change.after),
        change.reason.clone(),
    ]
}

pub(super) fn inference_row(summary: &InferenceSummary) -> Vec<String> {
    let time = |seconds: Option<f64>| seconds.map_or("–".to_owned(), |s| ms(s * 1e3));
    vec![
        summary.model.clone(),
        summary.backend.clone(),
        summary.answered.to_string(),
        summary.failed.to_string(),
        time(summary.compute_p50_seconds),
        time(summary.compute_p90_seconds),
        bytes(summary.reused_bytes),
    ]
}

/// What did not have to be computed; `None` if there was nothing.
pub(super) fn reused(overview: &Overview) -> Option<String> {
    let reused: u64 = overview.inferences.iter().map(|summary| summary.reused_bytes).sum();
    (reused > 0).then(|| format!("{} of tensors did not have to be computed again.", bytes(reused)))
}

/// `1 model`, `3 models`.
pub(super) fn models(count: usize) -> String {
    plural(count, "model")
}

/// A probability, which is never nothing.
fn probability(p: f64) -> String {
    if p < 0.001 { "< 0.001".to_owned() } else { format!("{p:.3}") }
}

pub(crate) fn percent(rate: f64) -> String {
    format!("{:.1} %", rate * 1e2)
}

pub(crate) fn ms(milliseconds: f64) -> String {
    match milliseconds {
        ms if ms >= 100.0 => format!("{ms:.0} ms"),
        ms => format!("{ms:.1} ms"),
    }
}

/// Day and time, in UTC.
pub(crate) fn when(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!("{year}-{month:02}-{day:02} {:02}:{:02}", rest / 3600, rest % 3600 / 60)
}

/// The date of a day since 1970, by the rules of the Gregorian calendar: years begin in March here,
/// so that the day which is not always there comes last.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year + era * 400 + later, month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_small_probability_is_not_none() {
        assert_eq!(
            (probability(0.0004), probability(0.0123)),
            ("< 0.001".to_owned(), "0.012".to_owned())
        );
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds| when(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01 00:00");
        assert_eq!(at(951_782_400), "2000-02-29 00:00");
        assert_eq!(at(1_795_000_000), "2026-11-18 11:06");
    }
}
