//! The report as a page: one HTML file that needs nothing else.

use std::collections::BTreeMap;

use holdfast_history::Overview;
use holdfast_predict::{OptimizationImpact, Strategy, ValidationRecord};

use super::figures::{Errors, rolling_median};
use super::words::{self, UNSHARED};
use crate::html::{self, escape, table};
use crate::plot::{self, Group, Line, Mark, Point, Shape, Timeline};

/// Errors above this are worth a refinement, unless it is set otherwise.
const THRESHOLD: f64 = 0.15;
/// Executions that a line over time looks back.
const WINDOW: usize = 9;

/// The whole page.
pub(super) fn page(overview: &Overview, errors: &[Errors]) -> String {
    let sections = [
        accuracy(overview, errors),
        over_time(overview),
        strategies(overview),
        memory(overview),
        sharing(overview),
        learning(overview),
        inferences(overview),
    ];
    let body = format!("<p>{}</p>\n{}", escape(&words::summary(errors)), sections.concat());
    // A number and its sign stay on one line.
    let body = body.replace(" %", "\u{a0}%");
    html::page("Holdfast: what was predicted, and what it was", plot::STYLE, &body)
}

/// A section; nothing if there is nothing to show.
fn section(title: &str, content: &str) -> String {
    match content.is_empty() {
        true => String::new(),
        false => format!("<section>\n<h2>{}</h2>\n{content}</section>\n", escape(title)),
    }
}

fn figure(caption: &str, plot: &str) -> String {
    format!("<figure>\n<figcaption>{}</figcaption>\n{plot}\n</figure>\n", escape(caption))
}

fn accuracy(overview: &Overview, errors: &[Errors]) -> String {
    let records = &overview.validations;
    if records.is_empty() {
        return String::new();
    }
    let backends = names(records, |record| record.hardware_platform.clone());
    let series: Vec<&str> = backends.keys().map(String::as_str).collect();
    let point = |record: &ValidationRecord| Point {
        series: backends[&record.hardware_platform],
        measured: record.actual_latency,
        predicted: record.predicted_latency,
        low: record.predicted_latency_low,
        high: record.predicted_latency_high,
        about: words::execution(record),
    };
    let points: Vec<Point> = records.iter().map(point).collect();
    let latency = figure(
        "Latency of every execution. On the dashed line, prediction and measurement are equal; the thin lines are 90 % intervals.",
        &plot::scatter("predicted and measured latency", "ms", &series, &points, short),
    );
    let rows: Vec<Vec<String>> = errors.iter().map(words::error_row).collect();
    let bars: Vec<Group> = errors.iter().map(bars).collect();
    let shown = figure(
        "Median error, by backend, strategy and number of models.",
        &plot::groups("median error", &["latency", "memory"], &bars, words::percent),
    );
    let table = table("Errors, as parts of what was measured", &words::ERROR_HEADER, &rows);
    section("How good the predictions were", &(latency + &shown + &table))
}

fn bars(errors: &Errors) -> Group {
    let memory = errors.memory.map(|memory| memory.median);
    Group { name: errors.of.clone(), bars: vec![Some(errors.latency.median), memory] }
}

fn over_time(overview: &Overview) -> String {
    let records = &overview.validations;
    if records.len() < 2 {
        return String::new();
    }
    let rates: Vec<f64> = records.iter().map(ValidationRecord::latency_error_rate).collect();
    let single = rates.iter().map(|rate| Some(*rate)).collect();
    let marks =
        overview.refinements.iter().filter(|refinement| refinement.kept).map(|refinement| {
            let earlier = records.iter().filter(|record| record.timestamp <= refinement.timestamp);
            Mark { before: earlier.count(), about: words::refinement(refinement) }
        });
    let plot = plot::timeline(&Timeline {
        title: "error of latency over time",
        x: "execution",
        y: "error of latency",
        lines: vec![
            Line { name: "one execution", values: single, shape: Shape::Dots },
            Line {
                name: "median of 9",
                values: rolling_median(&rates, WINDOW),
                shape: Shape::Line,
            },
        ],
        marks: marks.collect(),
        limit: Some(THRESHOLD),
        write: words::percent,
    });
    let caption = "Error of every execution. Dotted upright lines: the predictor was refined. Dashed: the threshold.";
    section("Errors over time", &figure(caption, &plot))
}

/// Strategies that were compared on the same workload.
fn strategies(overview: &Overview) -> String {
    let compared = impacts(overview, |impact| !impact.baseline_strategy.ends_with(UNSHARED));
    // What one comparison measured was recorded at one moment.
    let comparisons: Vec<&[&OptimizationImpact]> =
        compared.chunk_by(|one, next| one.timestamp == next.timestamp).collect();
    let groups: Vec<Group> = latest(&comparisons)
        .iter()
        .map(|ways| Group {
            name: words::workload(ways[0]),
            bars: Strategy::ALL.map(|strategy| words::latency_of(strategy, ways)).into(),
        })
        .collect();
    let caption = "Latency of the same workload under each strategy, in runs that took turns.";
    let names = Strategy::ALL.map(Strategy::name);
    side_by_side("Strategies side by side", caption, &names, &groups, &compared)
}

/// What sharing changed, measured on the same workload.
fn sharing(overview: &Overview) -> String {
    let compared = impacts(overview, |impact| impact.baseline_strategy.ends_with(UNSHARED));
    let group = |impact: &&OptimizationImpact| Group {
        name: format!("{}, {}", words::workload(impact), impact.optimized_strategy),
        bars: vec![Some(impact.baseline_latency), Some(impact.optimized_latency)],
    };
    let groups: Vec<Group> = latest(&compared).iter().map(group).collect();
    let caption = "Latency of the same workload without and with sharing.";
    let names = ["without sharing", "with sharing"];
    let shown = side_by_side("What sharing saved", caption, &names, &groups, &compared);
    let reused = words::reused(overview);
    match (shown.is_empty(), reused) {
        (false, _) => shown,
        (true, Some(reused)) => {
            section("What sharing saved", &format!("<p>{}</p>\n", escape(&reused)))
        }
        (true, None) => String::new(),
    }
}

fn impacts(
    overview: &Overview,
    wanted: impl Fn(&OptimizationImpact) -> bool,
) -> Vec<&OptimizationImpact> {
    overview.impacts.iter().filter(|impact| wanted(impact)).collect()
}

/// The last ones: a plot of hundreds of bars shows nothing.
fn latest<T>(all: &[T]) -> &[T] {
    &all[all.len().saturating_sub(12)..]
}

fn side_by_side(
    title: &str,
    caption: &str,
    names: &[&str],
    groups: &[Group],
    compared: &[&OptimizationImpact],
) -> String {
    if compared.is_empty() {
        return String::new();
    }
    let plot = plot::groups(title, names, groups, words::ms);
    let rows: Vec<Vec<String>> =
        latest(compared).iter().map(|impact| words::impact_row(impact)).collect();
    let table = table("In figures", &words::IMPACT_HEADER, &rows);
    section(title, &(figure(caption, &plot) + &table))
}

fn memory(overview: &Overview) -> String {
    let records = &overview.validations;
    if !records.iter().any(|record| record.actual_memory.is_some()) {
        return String::new();
    }
    let plot = plot::timeline(&Timeline {
        title: "memory over time",
        x: "execution",
        y: "memory at the worst moment, MiB",
        lines: vec![
            Line {
                name: "measured",
                values: records.iter().map(|record| record.actual_memory).collect(),
                shape: Shape::Dots,
            },
            Line {
                name: "predicted",
                values: records.iter().map(|record| Some(record.predicted_memory)).collect(),
                shape: Shape::Rings,
            },
        ],
        marks: Vec::new(),
        limit: None,
        write: short,
    });
    section(
        "Memory over time",
        &figure(
            "Peak memory of every execution on its device. A dot in its ring: predicted well. A ring without one: what was not measured.",
            &plot,
        ),
    )
}

fn learning(overview: &Overview) -> String {
    let mut content = String::new();
    if !overview.trends.is_empty() {
        let rows: Vec<Vec<String>> = overview.trends.iter().map(words::trend_row).collect();
        content += &table("Trends of errors", &words::TREND_HEADER, &rows);
    }
    if !overview.refinements.is_empty() {
        let rows: Vec<Vec<String>> =
            overview.refinements.iter().map(words::refinement_row).collect();
        content += &table("Refinements", &words::REFINEMENT_HEADER, &rows);
    }
    if !overview.settings.is_empty() {
        let rows: Vec<Vec<String>> = overview.settings.iter().map(words::setting_row).collect();
        content += &table("Settings that were changed", &words::SETTING_HEADER, &rows);
    }
    section("What was learned", &content)
}

fn inferences(overview: &Overview) -> String {
    if overview.inferences.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = overview.inferences.iter().map(words::inference_row).collect();
    section("Inferences", &table("By model and backend", &words::INFERENCE_HEADER, &rows))
}

/// Numbers the names that occur.
fn names(
    records: &[ValidationRecord],
    name: impl Fn(&ValidationRecord) -> String,
) -> BTreeMap<String, usize> {
    let mut numbered: BTreeMap<String, usize> =
        records.iter().map(|record| (name(record), 0)).collect();
    numbered.values_mut().enumerate().for_each(|(number, value)| *value = number);
    numbered
}

/// A value beside an axis.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e4 => format!("{:.0}k", value / 1e3),
        value if value >= 10.0 || value == 0.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}
