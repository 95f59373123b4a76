//! The demo as text: a paragraph for each set as it is done, and a table at the end.

use holdfast_devices::DeviceInfo;

use super::measure::Figures;
use super::report::{Report, Shown};
use crate::args::Scenario;
use crate::output::{bytes, bytes_instead_of, milliseconds, plural, table_lines};

/// What is said of a set that could not be shown.
pub(crate) fn left_out(scenario: Scenario, reason: &str) -> Vec<String> {
    vec![scenario.title().to_owned(), format!("  left out: {reason}"), String::new()]
}

/// What is said of a set as soon as it was run.
pub(crate) fn paragraph(shown: &Shown) -> Vec<String> {
    let mut lines = vec![shown.scenario.title().to_owned()];
    for trained in &shown.set.trained {
        let percent = 100.0 * trained.right as f64 / trained.held_out.max(1) as f64;
        lines.push(format!(
            "  {} ({}): {percent:.0} % right, of {} texts that it was not trained on",
            trained.name,
            trained.labels.join(", "),
            trained.held_out,
        ));
    }
    for (text, labels) in &shown.measured.shown {
        lines.push(format!("  \"{text}\" {}", labels.join(", ")));
    }
    lines.push(format!("  {}", plan(shown)));
    lines.push(format!("  one input is {}", shown.input()));
    for DeviceInfo { backend, engine, adapter, accelerated, .. } in shown.devices() {
        let accelerated = if *accelerated { "accelerated" } else { "no accelerator" };
        lines.push(format!("  ran on {backend}: {engine} on {adapter}, {accelerated}"));
    }
    if let Some(reason) = shown.did_not_fit() {
        lines.push(format!("  without sharing, they do not fit: {reason}"));
    }
    lines.push(String::new());
    lines
}

/// What the plan comes down to.
pub(crate) fn plan(shown: &Shown) -> String {
    let models = plural(shown.set.models.len(), "model");
    let trunks = match shown.picture.trunks {
        0 => "without a common trunk".to_owned(),
        trunks => format!("on {}", plural(trunks, "common trunk")),
    };
    let (once, apart) = shown.picture.weight_bytes;
    format!("{models} {trunks}, weights {}", bytes_instead_of(once, apart))
}

/// All sets in one table.
pub(crate) fn summary(report: &Report) -> Vec<String> {
    if report.shown.is_empty() {
        return Vec::new();
    }
    let memory = |side: &Figures| side.memory.map_or("?".to_owned(), bytes);
    let time = |side: &Figures| milliseconds(side.fastest());
    let ratio = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    let mut rows = Vec::new();
    for shown in &report.shown {
        let shared = &shown.measured.shared;
        let name = shown.scenario.name().to_owned();
        let mut row = vec![name, shown.set.models.len().to_string()];
        if report.compared {
            let of_unshared = |of: &dyn Fn(&Figures) -> String| {
                shown.unshared().map_or("does not fit".to_owned(), of)
            };
            row.extend([memory(shared), of_unshared(&memory), ratio(shown.memory_ratio())]);
            row.extend([time(shared), of_unshared(&time), ratio(shown.time_ratio())]);
            row.push(shown.unshared().map_or("-", |_| "same bits").to_owned());
        } else {
            row.extend([memory(shared), time(shared)]);
        }
        rows.push(row);
    }
    let header: &[&str] = match report.compared {
        true => {
            &["set", "models", "memory", "without", "ratio", "time", "without", "ratio", "answers"]
        }
        false => &["set", "models", "memory", "time"],
    };
    let mut lines = table_lines(header, 1, rows);
    lines.push(String::new());
    lines.push(explanation(report).to_owned());
    lines
}

/// What the figures are.
pub(crate) fn explanation(report: &Report) -> &'static str {
    match report.hardware {
        "cpu" => {
            "memory: private bytes of a process that the models add to an empty engine; \
             time: one input through all models, the fastest of several runs in turn"
        }
        _ => {
            "memory: what the models add to the memory of all processes of the browser; \
             time: one input through all models, the fastest of several runs in turn"
        }
    }
}
