//! What a mix costs: predicted, compared, validated, refined, as its users see it.

use serde_json::Value;

use crate::support::{Scene, keys, made, small};

/// Two heads on one trunk, and a model that has nothing to do with them.
fn scene() -> Scene {
    let scene = Scene::new();
    let heads = made("heads", 1, holdfast_testkit::Size::tiny());
    let models = [("one", &heads[0]), ("two", &heads[1]), ("other", &small("distilbert", 2))];
    for (name, model) in models {
        scene.write_model(&format!("{name}.onnx"), model);
        scene.ok(&["import", &format!("{name}.onnx")]);
    }
    scene
}

fn strategies(of: &Value) -> Vec<&str> {
    of.as_array().unwrap().iter().map(|way| way["strategy"].as_str().unwrap()).collect()
}

#[test]
fn a_mix_is_predicted_with_intervals_and_nothing_is_run_or_recorded() {
    let scene = scene();
    let told = scene.json(&["predict", "one", "two", "other:2"]);
    assert_eq!(keys(&told), ["device", "goal", "recommended", "why", "strategies"]);
    assert_eq!(strategies(&told["strategies"]), ["parallel", "sequential", "batched"]);
    for way in told["strategies"].as_array().unwrap() {
        for quantity in ["latency_ms", "throughput_per_second", "memory_bytes"] {
            let of = |key: &str| way[quantity][key].as_f64().unwrap();
            assert!(
                of("low") > 0.0 && of("low") <= of("value") && of("value") <= of("high"),
                "{way}"
            );
        }
        assert_eq!(way["observations"], 0);
    }
    assert!(scene.ok(&["history"]).contains("nothing was predicted and measured yet"));
    let words = scene.ok(&["predict", "one", "two", "--strategy", "sequential", "--explain"]);
    for expected in
        ["sequential is made of", "trunk of one", "shipped prior", "memory in use before"]
    {
        assert!(words.contains(expected), "{expected}: {words}");
    }
    assert!(!words.contains("parallel"), "only one was asked for: {words}");
}

#[test]
fn what_was_compared_is_recorded_and_known_the_next_time() {
    let scene = scene();
    let told = scene.json(&["compare", "one", "two", "other", "--repeats", "2"]);
    let expected =
        ["device", "goal", "best", "confidence", "recommended", "regret", "strategies", "unshared"];
    assert_eq!(keys(&told), expected);
    assert_eq!(strategies(&told["strategies"]), ["parallel", "sequential", "batched"]);
    for way in told["strategies"].as_array().unwrap() {
        assert_eq!(way["runs_ms"].as_array().unwrap().len(), 2);
        assert!(way["measured"]["latency_ms"].as_f64().unwrap() > 0.0);
    }
    assert!(!told["unshared"].is_null(), "two of them share a trunk");

    let history = scene.json(&["history"]);
    // Groups of 4 and all at once are the same for 3 models; the third is the way without sharing.
    assert_eq!(history["validations"].as_array().unwrap().len(), 3);
    let models: Vec<&str> = history["inferences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|summary| summary["model"].as_str().unwrap())
        .collect();
    assert_eq!(models, ["one", "other", "two"]);
    // Another process goes on from it.
    let told = scene.json(&["predict", "one", "two", "other"]);
    assert!(told["strategies"][0]["observations"].as_u64().unwrap() > 0);
    let words = scene.ok(&["predict", "other", "--strategy", "sequential", "--explain"]);
    assert!(words.contains("other: compute") && words.contains("measured"), "{words}");
}

#[test]
fn mixes_are_drawn_by_their_seed_and_every_one_is_judged() {
    let scene = scene();
    let validate = |seed: &str, more: &[&str]| {
        let arguments =
            ["validate", "--mixes", "2", "--repeats", "1", "--tokens", "8", "--seed", seed];
        scene.json(&[&arguments[..], more].concat())
    };
    let told = validate("4", &["--dataset", "data.csv"]);
    assert_eq!(keys(&told), ["mixes", "summary"]);
    let expected = [
        "mixes",
        "latency_error_median",
        "latency_error_mean",
        "interval_coverage",
        "regret_at_most_5_percent",
    ];
    assert_eq!(keys(&told["summary"]), expected);
    assert_eq!(told["summary"]["mixes"], 2);
    let drawn = |told: &Value| -> Vec<Value> {
        told["mixes"].as_array().unwrap().iter().map(|mix| mix["models"].clone()).collect()
    };
    assert_eq!(drawn(&told), drawn(&validate("4", &[])));
    let data = std::fs::read_to_string(scene.path("data.csv")).unwrap();
    let (header, rows) = data.split_once('\n').unwrap();
    assert!(header.contains("predicted_latency") && rows.lines().count() >= 4, "{data}");
    // It is said for people too.
    let words = scene.ok(&["validate", "--mixes", "1", "--repeats", "1", "--tokens", "8"]);
    assert!(words.contains("1 mix in every way: latency was off by"), "{words}");
}

#[test]
fn one_model_is_no_mix() {
    let scene = Scene::new();
    scene.write_model("one.onnx", &small("bert", 1));
    scene.ok(&["import", "one.onnx"]);
    let error = scene.fails(1, &["validate"]);
    assert!(error.contains("at least 2 models, and there is one"), "{error}");
}

#[test]
fn settings_are_shown_set_by_hand_and_kept() {
    let scene = scene();
    let told = scene.json(&["refine"]);
    assert_eq!(keys(&told), ["refinements", "settings"]);
    assert_eq!(told["settings"]["cpu"]["batching_size"], 4);
    assert!(scene.ok(&["refine"]).contains("nothing to refine"));
    scene.ok(&["refine", "--set", "cpu.batching_size=2"]);
    assert_eq!(scene.json(&["refine"])["settings"]["cpu"]["batching_size"], 2);
    assert_eq!(scene.json(&["refine"])["settings"]["wasm"]["batching_size"], 4);
    let changes = scene.json(&["history"])["settings"].clone();
    assert_eq!(changes[0]["reason"], "set by hand");
    let error = scene.fails(1, &["refine", "--set", "cpu.batching_size=0"]);
    assert!(error.contains("batching_size cannot be 0"), "{error}");
    let error = scene.fails(2, &["refine", "--set", "batching_size=2"]);
    assert!(error.contains("BACKEND.SETTING=VALUE"), "{error}");
}

#[test]
fn what_is_not_there_is_said() {
    let scene = scene();
    let error = scene.fails(1, &["predict", "nowhere"]);
    assert!(error.contains("nowhere"), "{error}");
    let error = scene.fails(2, &["predict", "one:0"]);
    assert!(error.contains("a batch of 1 to"), "{error}");
    let error = scene.fails(2, &["compare", "one", "--goal", "joy"]);
    assert!(error.contains("use latency, throughput or memory"), "{error}");
    for command in [&["compare", "one", "two"][..], &["validate"]] {
        let error = scene.fails(1, &[command, &["--goal", "memory"]].concat());
        assert!(error.contains("holdfast predict --goal memory"), "{error}");
    }
}
