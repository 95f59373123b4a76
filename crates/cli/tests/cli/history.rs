//! What was predicted and what it was, as its users see it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime};

use holdfast_history::{History, Writer, WriterOptions};
use holdfast_predict::{
    ErrorTrend, Goal, Inference, OptimizationImpact, Record, Recorder, RefinementRecord,
    SettingChange, Strategy, ValidationRecord,
};

use crate::support::{Scene, check, keys};

fn at(minutes: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000 + 60 * minutes)
}

/// Executions whose predictions get better.
fn validation(number: u64) -> ValidationRecord {
    let measured = 20.0 + 15.0 * (number % 5) as f64;
    let predicted = measured * (1.0 + 0.4 / (number + 1) as f64);
    ValidationRecord {
        timestamp: at(number),
        model_count: 2 + number as usize % 3,
        hardware_platform: ["cpu", "wasm"][number as usize % 2].to_owned(),
        execution_strategy: Strategy::ALL[number as usize % 3],
        optimization_goal: Goal::Latency,
        predicted_throughput: 1e3 / predicted,
        actual_throughput: 1e3 / measured,
        predicted_latency: predicted,
        predicted_latency_low: predicted * 0.8,
        predicted_latency_high: predicted * 1.25,
        actual_latency: measured,
        predicted_memory: 500.0,
        // A browser cannot be looked into everywhere.
        actual_memory: number.is_multiple_of(2).then_some(480.0),
        model_configs: "[]".to_owned(),
    }
}

fn impact(baseline: &str, optimized: &str) -> Record {
    Record::Impact(Box::new(OptimizationImpact {
        timestamp: at(30),
        model_count: 3,
        hardware_platform: "cpu".to_owned(),
        baseline_strategy: baseline.to_owned(),
        optimized_strategy: optimized.to_owned(),
        baseline_throughput: 50.0,
        optimized_throughput: 75.0,
        baseline_latency: 60.0,
        optimized_latency: 40.0,
        baseline_memory: Some(200.0),
        optimized_memory: Some(150.0),
        optimization_goal: Goal::Latency,
    }))
}

fn inference() -> Record {
    Record::Inference(Box::new(Inference {
        timestamp: at(31),
        model: "mini".to_owned(),
        browser: None,
        backend: "cpu".to_owned(),
        adapter: "a processor".to_owned(),
        software_adapter: false,
        precision: None,
        batch: 1,
        batch_rows: 1,
        queue_seconds: Some(0.0),
        transfer_seconds: Some(0.0),
        compute_seconds: Some(0.0125),
        readback_seconds: Some(0.0),
        load_seconds: None,
        first_run_seconds: None,
        bytes_moved: 0,
        memory_bytes: None,
        reused_bytes: 2_000_000,
        error_class: None,
    }))
}

/// Records all kinds of things in a file.
fn fill(path: &Path, executions: u64) {
    let writer = Writer::start(History::open(path).unwrap(), WriterOptions::default());
    (0..executions).for_each(|number| {
        writer.record(Record::Validation(Box::new(validation(number))));
    });
    writer.record(impact("sequential", "parallel"));
    writer.record(impact("parallel, unshared", "parallel"));
    writer.record(Record::Refinement(Box::new(RefinementRecord {
        timestamp: at(2),
        method: "window".to_owned(),
        reason: "errors drift <upwards>".to_owned(),
        metric: "latency".to_owned(),
        error_before: 0.3,
        error_after: 0.08,
        learned_from: 40,
        judged_by: 10,
        kept: true,
    })));
    writer.record(Record::Trend(Box::new(ErrorTrend {
        timestamp: at(3),
        metric: "latency".to_owned(),
        direction: "improving".to_owned(),
        strength: -0.5,
        p_value: 0.004,
        observations: 20,
        mean_error_rate: 0.09,
    })));
    writer.record(Record::Setting(Box::new(SettingChange {
        timestamp: at(4),
        hardware_platform: "cpu".to_owned(),
        setting: "batching_size".to_owned(),
        before: 4.0,
        after: 8.0,
        reason: "larger groups were faster".to_owned(),
    })));
    writer.record(inference());
    writer.flush().unwrap();
}

fn filled(executions: u64) -> Scene {
    let scene = Scene::new();
    std::fs::create_dir(scene.home()).unwrap();
    fill(&scene.home().join("history.duckdb"), executions);
    scene
}

#[test]
fn without_a_history_both_say_how_to_get_one_and_make_none() {
    let scene = Scene::new();
    check!(scene, scene.ok(&["history"]), @"nothing was predicted and measured yet; `holdfast validate` or `holdfast compare` does that");
    assert!(scene.ok(&["report"]).contains("Nothing was predicted and measured yet."));
    assert!(scene.ok(&["report", "--format", "html"]).contains("Nothing was predicted"));
    assert!(!scene.home().join("history.duckdb").exists());
}

#[test]
fn history_lists_executions_the_newest_last() {
    let scene = filled(4);
    check!(scene, scene.ok(&["history"]), @"
    when              on    strategy    models  predicted  measured   error  memory
    2026-11-18 11:06  cpu   parallel         2    [TIME]   [TIME]  40.0 %   4.2 %
    2026-11-18 11:07  wasm  sequential       3    [TIME]   [TIME]  20.0 %       –
    2026-11-18 11:08  cpu   batched          4    [TIME]   [TIME]  13.3 %   4.2 %
    2026-11-18 11:09  wasm  parallel         2    [TIME]   [TIME]  10.0 %       –
    ");
    let limited = scene.json(&["history", "--limit", "1"]);
    assert_eq!(limited["validations"].as_array().unwrap().len(), 1);
    assert_eq!(
        keys(&limited),
        ["validations", "impacts", "refinements", "trends", "settings", "inferences"]
    );
}

#[test]
fn another_file_is_read_if_it_is_named() {
    let scene = filled(1);
    fill(&scene.path("other's.duckdb"), 3);
    let other = scene.json(&["history", "--db", "other's.duckdb"]);
    assert_eq!(other["validations"].as_array().unwrap().len(), 3);
    assert_eq!(scene.json(&["history"])["validations"].as_array().unwrap().len(), 1);
}

#[test]
fn a_report_is_markdown_by_itself() {
    let scene = filled(6);
    check!(scene, scene.ok(&["report"]), @"
    # Holdfast: what was predicted, and what it was

    6 executions were predicted before they ran. Latency was off by 11.7 % in the middle and by 16.3 % on average; 83.3 % of the measurements lay in the 90 % interval. Memory was off by 4.2 % on average.

    ## Errors

    | of | executions | latency, median | latency, mean | throughput, mean | memory, mean | in the 90 % interval |
    | --- | --- | --- | --- | --- | --- | --- |
    | all | 6 | 11.7 % | 16.3 % | 13.3 % | 4.2 % | 83.3 % |
    | on cpu | 3 | 13.3 % | 20.4 % | 15.9 % | 4.2 % | 66.7 % |
    | on wasm | 3 | 10.0 % | 12.2 % | 10.7 % | – | 100.0 % |
    | batched | 2 | 10.0 % | 10.0 % | 9.0 % | 4.2 % | 100.0 % |
    | parallel | 2 | 25.0 % | 25.0 % | 18.8 % | 4.2 % | 50.0 % |
    | sequential | 2 | 14.0 % | 14.0 % | 12.0 % | 4.2 % | 100.0 % |
    | 2 models | 2 | 25.0 % | 25.0 % | 18.8 % | 4.2 % | 50.0 % |
    | 3 models | 2 | 14.0 % | 14.0 % | 12.0 % | 4.2 % | 100.0 % |
    | 4 models | 2 | 10.0 % | 10.0 % | 9.0 % | 4.2 % | 100.0 % |

    ## Comparisons

    | workload | backend | compared with | chosen | latency | throughput | memory |
    | --- | --- | --- | --- | --- | --- | --- |
    | 3 models | cpu | sequential | parallel | [TIME] → [TIME] (-33.3 %) | +50.0 % | -25.0 % |
    | 3 models | cpu | parallel, unshared | parallel | [TIME] → [TIME] (-33.3 %) | +50.0 % | -25.0 % |

    ## Trends

    | metric | direction | strength (τ) | by chance (p) | mean error |
    | --- | --- | --- | --- | --- |
    | latency | improving | -0.50 | 0.004 | 9.0 % |

    ## Refinements

    | when | metric | method | why | error before → after | kept |
    | --- | --- | --- | --- | --- | --- |
    | 2026-11-18 11:08 | latency | window | errors drift &lt;upwards&gt; | 30.0 % → 8.0 % | yes |

    ## Settings

    | when | backend | setting | change | why |
    | --- | --- | --- | --- | --- |
    | 2026-11-18 11:10 | cpu | batching_size | 4 → 8 | larger groups were faster |

    ## Inferences

    | model | backend | answers | failed | compute p50 | p90 | reused |
    | --- | --- | --- | --- | --- | --- | --- |
    | mini | cpu | 1 | 0 | [TIME] | [TIME] | 2.0 MB |
    ");
}

#[test]
fn a_report_as_json_has_all_that_was_recorded_and_its_errors() {
    let scene = filled(6);
    let report = scene.json(&["report"]);
    let wanted =
        ["errors", "validations", "impacts", "refinements", "trends", "settings", "inferences"];
    assert_eq!(keys(&report), wanted);
    assert_eq!(
        keys(&report["errors"][0]),
        ["of", "count", "latency", "throughput", "memory", "covered"]
    );
    assert_eq!(report["errors"][0]["count"], 6);
}

#[test]
fn a_report_as_html_needs_nothing_else_and_its_ending_says_what_it_is() {
    let scene = filled(12);
    check!(scene, scene.ok(&["report", "--out", "report.html"]), @"wrote report.html");
    let page = std::fs::read_to_string(scene.path("report.html")).unwrap();
    let sections = [
        "How good the predictions were",
        "Errors over time",
        "Strategies side by side",
        "Memory over time",
        "What sharing saved",
        "What was learned",
        "Inferences",
    ];
    for section in sections {
        assert!(page.contains(&format!("<h2>{section}</h2>")), "{section}");
    }
    assert!(page.contains("errors drift &lt;upwards&gt;") && !page.contains("<upwards>"));
    for outside in ["http:", "https:", "<script", "<link", "@import", "NaN"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn a_report_that_cannot_be_written_names_its_file() {
    let scene = filled(1);
    let complaint = scene.fails(1, &["report", "--out", "missing/report.md"]);
    assert!(complaint.contains("cannot write missing/report.md"), "{complaint}");
}

#[test]
fn a_file_that_is_no_history_is_named() {
    let scene = Scene::new();
    scene.write("notes.txt", vec![b'x'; 20_000]);
    let complaint = scene.fails(1, &["history", "--db", "notes.txt"]);
    assert!(complaint.contains("cannot open the history") && complaint.contains("notes.txt"));
}

/// A server, ended and reaped when it is dropped.
pub(crate) struct Serving(Child);

impl Serving {
    pub(crate) fn start(scene: &Scene, arguments: &[&str]) -> Serving {
        let all = [&["serve", "--port", "0", "--no-browser"], arguments].concat();
        let mut child = scene.command(&all).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let started = stdout.lines().map_while(Result::ok).any(|line| line.contains("Ctrl-C"));
        assert!(started, "the server does not start");
        Serving(child)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_that_holds_the_file_is_asked() {
    let scene = filled(3);
    let before = scene.ok(&["history"]);
    let serving = Serving::start(&scene, &[]);
    // It cannot be opened by anyone else.
    assert!(History::open(scene.home().join("history.duckdb")).is_err_and(|e| e.is_held()));
    assert_eq!(scene.ok(&["history"]), before);
    assert_eq!(scene.ok(&["history", "--db", "home/history.duckdb"]), before);
    // Other files are none of its business.
    fill(&scene.path("other.duckdb"), 1);
    let other = scene.json(&["history", "--db", "other.duckdb"]);
    assert_eq!(other["validations"].as_array().unwrap().len(), 1);
    drop(serving);
    assert_eq!(scene.ok(&["history"]), before);
}

#[test]
fn a_server_starts_although_someone_else_has_the_file() {
    let scene = filled(1);
    let _held = History::open(scene.home().join("history.duckdb")).unwrap();
    let serving = Serving::start(&scene, &[]);
    let refused = scene.run(&["history"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("in use by another process"), "{}", refused.stderr);
    drop(serving);
}
