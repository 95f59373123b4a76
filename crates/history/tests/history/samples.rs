//! Records to keep.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use holdfast_graph::Digest;
use holdfast_history::{History, Writer, WriterOptions};
use holdfast_predict::{
    ErrorTrend, Features, Goal, Inference, OptimizationImpact, Record, RefinementRecord, RunTime,
    SettingChange, Strategy, ValidationRecord,
};

/// A moment that is always the same, and `seconds` later.
pub(crate) fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000 + seconds)
}

pub(crate) fn validation(number: u64) -> ValidationRecord {
    ValidationRecord {
        timestamp: at(number),
        model_count: 3,
        hardware_platform: "cpu".to_owned(),
        execution_strategy: Strategy::Parallel,
        optimization_goal: Goal::Latency,
        predicted_throughput: 90.0,
        actual_throughput: 100.0,
        predicted_latency: 22.0,
        predicted_latency_low: 18.0,
        predicted_latency_high: 27.0,
        actual_latency: 20.0,
        predicted_memory: 512.0,
        actual_memory: Some(640.0),
        model_configs: r#"[{"model":"mini","batch":1}]"#.to_owned(),
    }
}

pub(crate) fn impact() -> OptimizationImpact {
    OptimizationImpact {
        timestamp: at(0),
        model_count: 2,
        hardware_platform: "wasm".to_owned(),
        baseline_strategy: "sequential".to_owned(),
        optimized_strategy: "parallel".to_owned(),
        baseline_throughput: 50.0,
        optimized_throughput: 75.0,
        baseline_latency: 40.0,
        optimized_latency: 30.0,
        baseline_memory: Some(200.0),
        optimized_memory: None,
        optimization_goal: Goal::Throughput,
    }
}

pub(crate) fn refinement() -> RefinementRecord {
    RefinementRecord {
        timestamp: at(1),
        method: "window".to_owned(),
        reason: "it's a drift; \"sudden\"".to_owned(),
        metric: "latency".to_owned(),
        error_before: 0.3,
        error_after: 0.1,
        learned_from: 40,
        judged_by: 10,
        kept: true,
    }
}

pub(crate) fn trend(metric: &str, strength: f64) -> ErrorTrend {
    ErrorTrend {
        timestamp: at(2),
        metric: metric.to_owned(),
        direction: "improving".to_owned(),
        strength,
        p_value: 0.02,
        observations: 30,
        mean_error_rate: 0.07,
    }
}

pub(crate) fn setting(setting: &str) -> SettingChange {
    SettingChange {
        timestamp: at(3),
        hardware_platform: "cpu".to_owned(),
        setting: setting.to_owned(),
        before: 4.0,
        after: 8.0,
        reason: "larger groups were faster".to_owned(),
    }
}

pub(crate) fn inference(model: &str, compute_seconds: f64, error_class: Option<&str>) -> Inference {
    Inference {
        timestamp: at(4),
        model: model.to_owned(),
        browser: None,
        backend: "cpu".to_owned(),
        adapter: "a processor".to_owned(),
        software_adapter: false,
        precision: Some("fp32".to_owned()),
        batch: 1,
        batch_rows: 4,
        queue_seconds: Some(0.001),
        transfer_seconds: Some(0.0),
        compute_seconds: Some(compute_seconds),
        readback_seconds: Some(0.0),
        load_seconds: None,
        first_run_seconds: Some(0.2),
        bytes_moved: 4096,
        memory_bytes: Some(1 << 28),
        reused_bytes: 1000,
        error_class: error_class.map(str::to_owned),
    }
}

pub(crate) fn run() -> RunTime {
    RunTime {
        device: "cpu".to_owned(),
        segment: Digest::of(b"a segment"),
        features: Arc::new(Features { batch: 4, sequence: 32, ..Features::default() }),
        compute_seconds: 0.003,
        queue_seconds: 0.0002,
        transfer_seconds: 0.0001,
        readback_seconds: 0.0003,
        first: false,
        alone: true,
    }
}

/// A history in a folder that goes with it.
pub(crate) struct Scene {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) history: History,
    pub(crate) writer: Writer,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        Scene::with(WriterOptions::default())
    }

    pub(crate) fn with(options: WriterOptions) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let history = History::open(folder.path().join("history.duckdb")).unwrap();
        let writer = Writer::start(history.clone(), options);
        Scene { folder, history, writer }
    }
}

/// An inference, as what is recorded.
pub(crate) fn one(model: &str) -> Record {
    Record::Inference(Box::new(inference(model, 0.005, None)))
}
