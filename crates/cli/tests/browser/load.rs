//! Measuring and watching the pool, as a person types it.

use holdfast_graph::encode;
use serde_json::Value;

use crate::rig::tiny_bert;
use crate::scene::{Scene, text};

/// Short, because nothing here depends on how fast anything is.
const SHORT: [&str; 6] = ["--duration", "0.5", "--warm-up", "0.1", "--concurrent", "3"];

fn bench(arguments: &[&'static str]) -> Vec<&'static str> {
    ["bench"].iter().chain(arguments).chain(&SHORT).copied().collect()
}

/// A store that also has a tiny model.
fn scene_with_tiny() -> Scene {
    let scene = Scene::new();
    let file = scene.path("tiny.onnx");
    std::fs::write(&file, encode(&tiny_bert())).unwrap();
    let imported = scene.command(&["import"]).arg(file).output().unwrap();
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    scene
}

/// The figures of a model in an outcome make sense, and are of one backend without an accelerator.
fn assert_measured(model: &Value, backend: &str) {
    assert_eq!(model["problem"], Value::Null, "{model}");
    assert_eq!(model["errors"], Value::Object(Default::default()), "{model}");
    let devices = model["devices"].as_array().unwrap();
    assert!(!devices.is_empty(), "{model}");
    for device in devices {
        assert_eq!(device["device"]["backend"], backend, "{device}");
        assert_eq!(device["device"]["accelerated"], false, "{device}");
        assert!(device["answers"].as_u64().unwrap() > 0, "{device}");
        assert!(device["per_second"].as_f64().unwrap() > 0.0, "{device}");
        let latency = |name: &str| device["latency_ms"][name].as_f64().unwrap();
        assert!(0.0 < latency("p50"), "{device}");
        assert!(latency("p50") <= latency("p95") && latency("p95") <= latency("p99"), "{device}");
    }
}

#[test]
fn bench_measures_models_on_the_processor_and_in_a_browser() {
    let scene = scene_with_tiny();
    for backend in ["cpu", "wasm"] {
        let models = ["--models", "all-MiniLM-L6-v2,tiny", "--device", backend];
        let report = scene.json(&bench(&[&models[..], &["--browser", "packaged"]].concat()));
        let outcome = &report["outcomes"][0];
        assert_eq!((&outcome["device"], &outcome["server"]), (&backend.into(), &Value::Null));
        for index in 0..2 {
            assert_measured(&outcome["models"][index], backend);
        }
        let fed = report["fed"][0]["inputs"].as_array().unwrap();
        assert!(fed.contains(&"input_ids i64[1, 32] ids below 30522".into()), "{report}");
    }
}

#[test]
fn bench_all_measures_every_backend_of_a_browser() {
    let scene = scene_with_tiny();
    let report = scene.json(&bench(&["--models", "tiny", "--all", "--browser", "packaged"]));
    let outcomes = report["outcomes"].as_array().unwrap();
    let devices: Vec<&str> = outcomes.iter().map(|o| o["device"].as_str().unwrap()).collect();
    assert_eq!(devices, ["cpu", "wasm", "webgpu", "webnn"]);
    for (outcome, device) in outcomes.iter().zip(devices) {
        assert_measured(&outcome["models"][0], device);
        let browser = outcome["browser"].as_str().unwrap_or_default();
        assert_eq!(browser.starts_with("Chromium (packaged)"), device != "cpu", "{outcome}");
    }
}

#[test]
fn a_browser_that_cannot_be_started_does_not_hide_what_else_bench_measures() {
    let scene = scene_with_tiny();
    let arguments = ["--models", "tiny", "--all", "--browser-program", "/nonexistent/browser"];
    let report = scene.json(&bench(&arguments));
    let outcomes = report["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), 2, "{report}");
    assert_measured(&outcomes[0]["models"][0], "cpu");
    let problem = outcomes[1]["problem"].as_str().unwrap();
    assert!(problem.contains("/nonexistent/browser"), "{problem}");

    // Where it is all that was asked for, nothing was measured, and the exit code says so.
    let arguments = ["--models", "tiny", "--device", "wasm"];
    let arguments = [&arguments[..], &["--browser-program", "/nonexistent/browser"]].concat();
    let finished = scene.command(&bench(&arguments)).output().unwrap();
    assert_eq!(finished.status.code(), Some(1));
    let told = text(&finished.stdout);
    assert!(told.contains("tiny was not measured: no device could run it: wasm:"), "{told}");
}

#[test]
fn pool_shows_the_running_server_and_bench_uses_it() {
    let scene = scene_with_tiny();
    let error = scene.fails(&["pool"]);
    assert!(error.contains("start one with `holdfast serve`"), "{error}");

    let served = scene.serve(&[]);
    let shown = text(&scene.command(&["pool"]).output().unwrap().stdout);
    assert!(shown.contains("no model is loaded"), "{shown}");
    let report = scene.json(&bench(&["--models", "tiny", "--device", "wasm"]));
    let outcome = &report["outcomes"][0];
    assert_measured(&outcome["models"][0], "wasm");
    assert!(outcome["server"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{outcome}");

    let metrics = scene.json(&["pool"]);
    let devices = metrics["devices"].as_array().unwrap();
    let lane = devices.iter().find(|device| device["backend"] == "wasm").unwrap();
    assert_eq!(lane["models"].as_array().unwrap().len(), 1, "{lane}");
    let answered = outcome["answers"].as_u64().unwrap();
    assert!(metrics["throughput"]["answered"].as_u64().unwrap() >= answered, "{metrics}");

    let shown = text(&scene.command(&["pool", "--once"]).output().unwrap().stdout);
    let name = lane["name"].as_str().unwrap();
    let row = |first: &str, second: &str| {
        let mut words = shown.lines().map(|line| line.split_whitespace());
        words.any(|mut words| (words.next(), words.next()) == (Some(first), Some(second)))
    };
    assert!(row(name, "idle") && row(name, "tiny"), "{shown}");
    // A graph for WebNN is made for the sizes of its inputs, and has the model's name all the same.
    scene.json(&bench(&["--models", "tiny", "--device", "webnn"]));
    let shown = text(&scene.command(&["pool", "--once"]).output().unwrap().stdout);
    let mut models = shown.lines().filter(|line| line.contains("/webnn  tiny ("));
    assert!(models.next().is_some() && !shown.contains("segment"), "{shown}");
    // Lanes that no model has asked for are there, too.
    assert!(shown.contains("not used yet"), "{shown}");
    assert!(served.interrupt().success());
    assert!(scene.fails(&["pool"]).contains("start one with `holdfast serve`"));
}

#[test]
fn a_link_that_a_phone_can_use_is_shown_as_a_code_and_others_with_what_to_do() {
    let scene = Scene::new();
    let served = scene.serve(&["--no-browser"]);
    // Nobody points a phone at a pipe.
    let plain = text(&scene.command(&["join"]).output().unwrap().stdout);
    assert_eq!(plain.lines().count(), 1, "{plain}");
    let asked = text(&scene.command(&["join", "--qr"]).output().unwrap().stdout);
    assert!(asked.contains('█'), "{asked}");
    assert!(asked.contains("holdfast serve --address 0.0.0.0 --tls self-signed"), "{asked}");
    assert!(served.interrupt().success());

    let named = ["--tls", "self-signed", "--name", "studio.example", "--no-browser"];
    let served = scene.serve(&[&named[..], &["--qr"]].concat());
    assert!(served.told.iter().any(|line| line.contains('█')), "{:?}", served.told);
    let asked = text(&scene.command(&["join", "--qr"]).output().unwrap().stdout);
    assert!(asked.starts_with("https://studio.example:"), "{asked}");
    assert!(asked.contains('█') && !asked.contains("--address"), "{asked}");
}
