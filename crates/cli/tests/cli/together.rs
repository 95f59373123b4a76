//! `holdfast run --strategy`: models together, predicted before and learned from.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::history::Serving;
use crate::run::scene_with_classifiers;
use crate::support::Scene;

const TEXT: [&str; 2] = ["--text", "a dog barks"];

fn run(scene: &Scene, more: &[&str]) -> Value {
    scene.json(&[&["run", "first", "second"], TEXT.as_slice(), more].concat())
}

fn outputs(report: &Value) -> Vec<&Value> {
    report["models"].as_array().unwrap().iter().map(|model| &model["outputs"]).collect()
}

#[test]
fn every_strategy_gives_the_same_answers_and_says_what_was_predicted() {
    let scene = scene_with_classifiers();
    let apart = run(&scene, &[]);
    assert_eq!(apart["together"], Value::Null);
    for strategy in ["parallel", "sequential", "batched"] {
        let report = run(&scene, &["--strategy", strategy]);
        assert_eq!(outputs(&report), outputs(&apart), "{strategy}");
        let together = &report["together"][0];
        assert_eq!(together["strategy"], strategy);
        let predicted = &together["predicted"]["latency_ms"];
        let limits = ["low", "value", "high"].map(|limit| predicted[limit].as_f64().unwrap());
        assert!(limits.is_sorted() && limits[0] > 0.0, "{limits:?}");
        assert!(together["latency_ms"].as_f64().unwrap() > 0.0);
    }
    let text = scene.ok(&[&["run", "first", "second", "--strategy", "auto"], &TEXT[..]].concat());
    assert!(text.contains("together, ") && text.contains("; predicted "), "{text}");
}

#[test]
fn what_ran_together_is_compared_with_its_prediction_every_tenth_time() {
    let scene = scene_with_classifiers();
    let report = run(&scene, &["--strategy", "auto", "--goal", "throughput", "--repeat", "10"]);
    assert_eq!(report["together"].as_array().unwrap().len(), 10);
    let history = scene.json(&["history"]);
    assert_eq!(history["validations"].as_array().unwrap().len(), 1);
    assert_eq!(history["validations"][0]["optimization_goal"], "throughput");
}

#[test]
fn a_server_runs_models_together_and_learns_from_it() {
    let scene = scene_with_classifiers();
    let apart = run(&scene, &[]);
    let serving = Serving::start(&scene, &[]);
    let report = run(&scene, &["--strategy", "sequential", "--repeat", "10"]);
    assert_eq!(outputs(&report), outputs(&apart));
    assert_eq!(report["together"][9]["strategy"], "sequential");
    // The server writes beside its work, a moment later.
    let asked = Instant::now();
    let validation = loop {
        if let Some(validation) = scene.json(&["history"])["validations"].get(0) {
            break validation.clone();
        }
        assert!(asked.elapsed() < Duration::from_secs(60), "nothing was recorded");
    };
    assert_eq!(validation["execution_strategy"], "sequential");
    drop(serving);
}

#[test]
fn what_is_no_strategy_is_refused_with_those_there_are() {
    let scene = Scene::new();
    let complaint = scene.fails(2, &["run", "a", "b", "--strategy", "fastest"]);
    assert!(complaint.contains("parallel, sequential or batched, or auto"), "{complaint}");
    let complaint = scene.fails(2, &["run", "a", "b", "--goal", "latency"]);
    assert!(complaint.contains("--strategy"), "{complaint}");
}
