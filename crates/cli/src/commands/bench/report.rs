//! What was measured, as text or JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdfast_devices::DeviceInfo;
use holdfast_pool::PassedOver;
use serde_json::{Value, json};

use super::latencies::Summary;
use super::measure::{Errors, Load, Measured, ModelMeasured, OnDevice};
use crate::output::{self, milliseconds, plural, table_lines};

pub(super) struct Report {
    pub(super) fed: Vec<Fed>,
    pub(super) load: Load,
    pub(super) outcomes: Vec<Outcome>,
}

/// What a model was fed.
pub(super) struct Fed {
    pub(super) model: String,
    pub(super) inputs: Vec<String>,
}

/// What came of one setting.
pub(super) struct Outcome {
    pub(super) setting: Setting,
    pub(super) measured: Result<Measured, String>,
}

/// What was measured on.
pub(super) struct Setting {
    /// The devices that were asked for, in order; `None` for a browser of which none could be.
    pub(super) device: Option<String>,
    /// The browser that was started for it, where that was chosen here.
    pub(super) browser: Option<String>,
    /// The server that ran it.
    pub(super) server: Option<String>,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { device, browser, server } = self;
        let parts = [
            device.clone(),
            browser.as_ref().map(|browser| match device {
                Some(_) => format!("in {browser}"),
                None => browser.clone(),
            }),
            server.as_ref().map(|origin| format!("in the server at {origin}")),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}

impl Report {
    /// Whether there is a figure for each model, wherever.
    pub(super) fn every_model_was_measured(&self) -> bool {
        let measured = || self.outcomes.iter().filter_map(|outcome| outcome.measured.as_ref().ok());
        (0..self.fed.len())
            .all(|index| measured().any(|all| !all.models[index].tally.devices.is_empty()))
    }

    pub(super) fn print(&self, as_json: bool) -> anyhow::Result<()> {
        if as_json {
            return output::print_json(&self.to_json());
        }
        self.lines().iter().try_for_each(output::line)
    }

    fn lines(&self) -> Vec<String> {
        let Load { concurrent, warm_up, duration } = self.load;
        let mut lines = vec![format!(
            "{} in flight for {} s, after {} s to warm up",
            plural(concurrent, "request"),
            duration.as_secs_f64(),
            warm_up.as_secs_f64(),
        )];
        for Fed { model, inputs } in &self.fed {
            lines.push(format!("{model} is fed {}", inputs.join(", ")));
        }
        for Outcome { setting, measured } in &self.outcomes {
            lines.push(String::new());
            lines.push(setting.to_string());
            let below = match measured {
                Ok(measured) => self.measured(measured),
                Err(problem) => vec![format!("not measured: {problem}")],
            };
            lines.extend(below.into_iter().map(|line| format!("  {line}")));
        }
        if self.outcomes.len() > 1 {
            lines.push(String::new());
            lines.extend(self.side_by_side());
        }
        lines
    }

    /// All settings in one table, by model.
    fn side_by_side(&self) -> Vec<String> {
        let mut rows = Vec::new();
        for (index, Fed { model, .. }) in self.fed.iter().enumerate() {
            for Outcome { setting, measured } in &self.outcomes {
                let Ok(measured) = measured else { continue };
                let seconds = measured.elapsed.as_secs_f64();
                for on in measured.models[index].tally.devices.values() {
                    let accelerated = if on.info.accelerated { "yes" } else { "no" };
                    let cells = [model.clone(), setting.to_string(), accelerated.to_owned()];
                    rows.push(cells.into_iter().chain(figures(on, seconds)).collect());
                }
            }
        }
        if rows.is_empty() {
            return vec!["nothing was measured".to_owned()];
        }
        let header =
            ["model", "on", "accelerated", "answers", "per second", "p50", "p95", "p99", ROWS];
        table_lines(&header, 3, rows)
    }

    fn measured(&self, measured: &Measured) -> Vec<String> {
        let seconds = measured.elapsed.as_secs_f64();
        let each = || self.fed.iter().map(|fed| &fed.model).zip(&measured.models);
        let mut rows = Vec::new();
        let mut seen: BTreeMap<&str, &Arc<DeviceInfo>> = BTreeMap::new();
        for (name, model) in each() {
            for (device, on) in &model.tally.devices {
                seen.insert(device, &on.info);
                let cells = [name.clone(), device.clone()];
                rows.push(cells.into_iter().chain(figures(on, seconds)).collect());
            }
        }
        let mut lines = Vec::new();
        if !rows.is_empty() {
            let several = rows.len() > 1;
            if several {
                let answers = measured.answers();
                let rate = format!("{:.1}", answers as f64 / seconds);
                let cells = ["all".to_owned(), String::new(), answers.to_string(), rate];
                let rest = std::iter::repeat_n(String::new(), 4);
                rows.push(cells.into_iter().chain(rest).collect());
            }
            let header = ["model", "device", "answers", "per second", "p50", "p95", "p99", ROWS];
            lines.extend(table_lines(&header, 2, rows));
        }
        for (device, info) in seen {
            let DeviceInfo { engine, adapter, accelerated, .. } = info.as_ref();
            let accelerated = if *accelerated { "accelerated" } else { "no accelerator" };
            lines.push(format!("{device}: {engine} on {adapter}, {accelerated}"));
        }
        for (name, model) in each() {
            lines.extend(notes(name, model));
        }
        lines
    }

    fn to_json(&self) -> Value {
        let Load { concurrent, warm_up, duration } = self.load;
        let outcomes = self.outcomes.iter().map(|Outcome { setting, measured }| {
            let Setting { device, browser, server } = setting;
            let mut outcome = json!({ "device": device, "browser": browser, "server": server });
            let rest = match measured {
                Err(problem) => json!({ "problem": problem, "models": [] }),
                Ok(measured) => json!({
                    "problem": Value::Null,
                    "seconds": measured.elapsed.as_secs_f64(),
                    "answers": measured.answers(),
                    "models": self.fed.iter().zip(&measured.models)
                        .map(|(fed, model)| model_json(&fed.model, model, measured.elapsed))
                        .collect::<Vec<_>>(),
                }),
            };
            if let (Value::Object(outcome), Value::Object(rest)) = (&mut outcome, rest) {
                outcome.extend(rest);
            }
            outcome
        });
        json!({
            "concurrent": concurrent,
            "warm_up_seconds": warm_up.as_secs_f64(),
            "duration_seconds": duration.as_secs_f64(),
            "fed": self.fed.iter().map(|Fed { model, inputs }| {
                json!({ "model": model, "inputs": inputs })
            }).collect::<Vec<_>>(),
            "outcomes": outcomes.collect::<Vec<_>>(),
        })
    }
}

impl Measured {
    fn answers(&self) -> u64 {
        let devices = self.models.iter().flat_map(|model| model.tally.devices.values());
        devices.map(|on| on.latencies.count()).sum()
    }
}

/// How many rows of requests ran in one go, on average.
const ROWS: &str = "rows together";

/// The columns that all tables have.
fn figures(on: &OnDevice, seconds: f64) -> [String; 6] {
    let count = on.latencies.count();
    let time = |of: fn(&Summary) -> Duration| {
        on.latencies.summary().map_or("-".to_owned(), |summary| time(of(&summary)))
    };
    [
        count.to_string(),
        format!("{:.1}", count as f64 / seconds),
        time(|summary| summary.p50),
        time(|summary| summary.p95),
        time(|summary| summary.p99),
        format!("{:.1}", on.rows as f64 / count.max(1) as f64),
    ]
}

/// A time with about three digits.
fn time(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1e3;
    match ms {
        ..1.0 => format!("{ms:.3} ms"),
        ..10.0 => format!("{ms:.2} ms"),
        _ => format!("{ms:.1} ms"),
    }
}

/// What the figures do not tell.
fn notes(name: &str, model: &ModelMeasured) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(problem) = &model.problem {
        // Its error is the problem, which need not be told twice.
        // The engine took the model and failed on what it was fed.
        let advice = match problem.contains("step 0 failed") {
            true => "; if its sizes are at fault, choose others with --tokens, --batch or --dim",
            false => "",
        };
        lines.push(format!("{name} was not measured: {problem}{advice}"));
        return lines;
    }
    if let Some(first) = model.first {
        lines.push(format!("{name}: first answer after {}", milliseconds(first)));
    }
    for PassedOver { choice, reason } in &model.passed_over {
        lines.push(format!("{name}: {choice} was passed over: {reason}"));
    }
    if model.tally.failovers > 0 {
        let answers = plural(model.tally.failovers as usize, "answer");
        lines.push(format!("{name}: {answers} came after a device had failed"));
    }
    for (class, Errors { count, first }) in &model.tally.errors {
        let errors = plural(*count as usize, "error");
        lines.push(format!("{name}: {errors} of class {class}, the first: {first}"));
    }
    lines
}

fn model_json(name: &str, model: &ModelMeasured, elapsed: Duration) -> Value {
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let devices = model.tally.devices.iter().map(|(device, on)| {
        let count = on.latencies.count();
        let summary = on.latencies.summary().map(|Summary { mean, p50, p95, p99 }| {
            json!({ "mean": ms(mean), "p50": ms(p50), "p95": ms(p95), "p99": ms(p99) })
        });
        json!({
            "device": {
                "name": device,
                "backend": on.info.backend,
                "engine": on.info.engine,
                "adapter": on.info.adapter,
                "accelerated": on.info.accelerated,
            },
            "answers": count,
            "per_second": count as f64 / elapsed.as_secs_f64(),
            "latency_ms": summary,
            "mean_rows_together": on.rows as f64 / count.max(1) as f64,
        })
    });
    let errors = model.tally.errors.iter().map(|(class, Errors { count, first })| {
        ((*class).to_owned(), json!({ "count": count, "first": first }))
    });
    json!({
        "model": name,
        "problem": model.problem,
        "first_answer_ms": model.first.map(ms),
        "passed_over": model.passed_over.iter().map(|PassedOver { choice, reason }| {
            json!({ "device": choice.to_string(), "reason": reason })
        }).collect::<Vec<_>>(),
        "devices": devices.collect::<Vec<_>>(),
        "failovers": model.tally.failovers,
        "errors": errors.collect::<serde_json::Map<_, _>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::latencies::Latencies;
    use super::super::measure::Tally;
    use super::*;

    fn on(name: &str, accelerated: bool, milliseconds: std::ops::Range<u64>) -> (String, OnDevice) {
        let (backend, _) = name.split_once('-').unwrap_or((name, ""));
        let info = DeviceInfo {
            name: name.to_owned(),
            backend: backend.to_owned(),
            engine: "an engine".to_owned(),
            adapter: "an adapter".to_owned(),
            accelerated,
            calibration: None,
        };
        let mut latencies = Latencies::default();
        milliseconds.for_each(|ms| latencies.add(Duration::from_millis(ms)));
        let rows = 2 * latencies.count();
        (name.to_owned(), OnDevice { info: Arc::new(info), latencies, rows })
    }

    fn model(devices: Vec<(String, OnDevice)>) -> ModelMeasured {
        let tally = Tally { devices: devices.into_iter().collect(), ..Tally::default() };
        let first = Some(Duration::from_millis(1500));
        ModelMeasured { first, tally, ..ModelMeasured::default() }
    }

    fn failed(class: &'static str, problem: &str) -> ModelMeasured {
        let mut failed = ModelMeasured { problem: Some(problem.to_owned()), ..Default::default() };
        failed.tally.errors.insert(class, Errors { count: 1, first: problem.to_owned() });
        failed
    }

    fn outcome(device: &str, browser: Option<&str>, models: Vec<ModelMeasured>) -> Outcome {
        let setting = Setting {
            device: Some(device.to_owned()),
            browser: browser.map(str::to_owned),
            server: None,
        };
        let elapsed = Duration::from_secs(2);
        Outcome { setting, measured: Ok(Measured { elapsed, models }) }
    }

    fn report(models: &[&str], outcomes: Vec<Outcome>) -> Report {
        let fed = |model: &&str| Fed {
            model: (*model).to_owned(),
            inputs: vec!["ids i64[1, 32] ids below 256".to_owned()],
        };
        let second = Duration::from_secs(1);
        let load = Load { concurrent: 4, warm_up: second / 2, duration: 2 * second };
        Report { fed: models.iter().map(fed).collect(), load, outcomes }
    }

    #[test]
    fn figures_are_told_by_model_and_device_and_failures_beside_them() {
        let mut small = model(vec![on("webgpu-1", true, 1..101), on("wasm-1", false, 20..40)]);
        small.passed_over.push(PassedOver {
            choice: holdfast_pool::Choice::Lane(holdfast_wire::Backend::Webnn),
            reason: "it has none".to_owned(),
        });
        small.tally.failovers = 1;
        let errors = Errors { count: 2, first: "out of memory: so it was".to_owned() };
        small.tally.errors.insert("memory", errors);
        let models = vec![small, failed("caller", "bad request: step 0 failed")];
        let report = report(&["small", "large"], vec![outcome("webnn,webgpu,wasm", None, models)]);
        assert!(!report.every_model_was_measured());
        insta::assert_snapshot!(report.lines().join("\n"), @r#"
        4 requests in flight for 2 s, after 0.5 s to warm up
        small is fed ids i64[1, 32] ids below 256
        large is fed ids i64[1, 32] ids below 256

        webnn,webgpu,wasm
          model  device    answers  per second      p50      p95      p99  rows together
          small  wasm-1         20        10.0  29.0 ms  38.0 ms  39.0 ms            2.0
          small  webgpu-1      100        50.0  50.0 ms  95.0 ms  99.0 ms            2.0
          all                  120        60.0
          wasm-1: an engine on an adapter, no accelerator
          webgpu-1: an engine on an adapter, accelerated
          small: first answer after 1500.0 ms
          small: webnn was passed over: it has none
          small: 1 answer came after a device had failed
          small: 2 errors of class memory, the first: out of memory: so it was
          large was not measured: bad request: step 0 failed; if its sizes are at fault, choose others with --tokens, --batch or --dim
        "#);
    }

    #[test]
    fn several_settings_are_also_told_side_by_side() {
        let broken = Setting { device: None, browser: Some("Safari 20".to_owned()), server: None };
        let report = report(
            &["small"],
            vec![
                outcome("cpu", None, vec![model(vec![on("cpu", false, 1..11)])]),
                outcome("wasm", Some("Firefox 153"), vec![failed("no_device", "it did not join")]),
                outcome(
                    "webgpu",
                    Some("Chrome 147"),
                    vec![model(vec![on("webgpu-1", true, 3..9)])],
                ),
                Outcome { setting: broken, measured: Err("it cannot be started".to_owned()) },
            ],
        );
        assert!(report.every_model_was_measured());
        insta::assert_snapshot!(report.lines().join("\n"), @r#"
        4 requests in flight for 2 s, after 0.5 s to warm up
        small is fed ids i64[1, 32] ids below 256

        cpu
          model  device  answers  per second      p50      p95      p99  rows together
          small  cpu          10         5.0  5.00 ms  10.0 ms  10.0 ms            2.0
          cpu: an engine on an adapter, no accelerator
          small: first answer after 1500.0 ms

        wasm in Firefox 153
          small was not measured: it did not join

        webgpu in Chrome 147
          model  device    answers  per second      p50      p95      p99  rows together
          small  webgpu-1        6         3.0  5.00 ms  8.00 ms  8.00 ms            2.0
          webgpu-1: an engine on an adapter, accelerated
          small: first answer after 1500.0 ms

        Safari 20
          not measured: it cannot be started

        model  on                    accelerated  answers  per second      p50      p95      p99  rows together
        small  cpu                   no                10         5.0  5.00 ms  10.0 ms  10.0 ms            2.0
        small  webgpu in Chrome 147  yes                6         3.0  5.00 ms  8.00 ms  8.00 ms            2.0
        "#);
    }

    #[test]
    fn where_nothing_was_measured_that_is_said() {
        let nothing = |device| outcome(device, None, vec![failed("no_device", "there is none")]);
        let report = report(&["small"], vec![nothing("cpu"), nothing("wasm")]);
        assert!(!report.every_model_was_measured());
        assert_eq!(report.lines().last().unwrap(), "nothing was measured");
    }
}
