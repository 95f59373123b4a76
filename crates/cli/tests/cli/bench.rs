//! Measuring, as far as no browser is needed.

use holdfast_graph::{DataType, Model};
use holdfast_testkit::{Builder, named};
use serde_json::Value;

use crate::support::{Scene, keys, small};

const SHORT: [&str; 4] = ["--duration", "0.2", "--warm-up", "0.1"];

fn scene() -> Scene {
    let scene = Scene::new();
    for (name, model) in [("first", small("bert", 1)), ("second", small("distilbert", 2))] {
        scene.write_model(&format!("{name}.onnx"), &model);
        scene.ok(&["import", &format!("{name}.onnx")]);
    }
    scene
}

/// Adds what has to be of the same size, but does not say so.
fn adding() -> Model {
    let mut builder = Builder::new("adding", 0);
    builder.input("x", DataType::F32, &[named("a")]);
    builder.input("y", DataType::F32, &[named("b")]);
    let sum = builder.node("Add", &["x", "y"], &[]);
    builder.output("z", &sum, DataType::F32, &[named("c")]);
    builder.finish().unwrap()
}

#[test]
fn models_in_turn_get_the_same_share_and_the_output_says_what_was_fed() {
    let scene = scene();
    let bench = ["bench", "--models", "first,second", "--concurrent", "2", "--tokens", "8"];
    let report = scene.json(&[&bench[..], &SHORT].concat());
    let expected = ["concurrent", "warm_up_seconds", "duration_seconds", "fed", "outcomes"];
    assert_eq!(keys(&report), expected);
    assert_eq!(report["fed"][1]["model"], "second");
    assert_eq!(report["fed"][1]["inputs"][0], "input_ids i64[1, 8] ids below 256");
    let outcome = &report["outcomes"][0];
    let models = outcome["models"].as_array().unwrap();
    let answers = |model: &Value| model["devices"][0]["answers"].as_u64().unwrap();
    let (first, second) = (answers(&models[0]), answers(&models[1]));
    assert_eq!(outcome["answers"].as_u64().unwrap(), first + second);
    // Each caller asks for one after the other, and may begin and end with either.
    assert!(first > 0 && first.abs_diff(second) <= 2 * 2, "{report}");
    for model in models {
        assert_eq!(model["devices"][0]["device"]["backend"], "cpu");
        assert!(model["first_answer_ms"].as_f64().unwrap() > 0.0);
        assert_eq!(model["errors"], Value::Object(Default::default()));
    }
}

#[test]
fn a_model_that_cannot_be_fed_so_is_told_and_the_others_are_measured() {
    let scene = scene();
    scene.write_model("adding.onnx", &adding());
    scene.ok(&["import", "adding.onnx"]);
    let sizes = ["--dim", "a=2", "--dim", "b=3"];
    let bench = ["bench", "--models", "adding", "--json"];
    let finished = scene.run(&[&bench[..], &sizes, &SHORT].concat());
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(1), ""));
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    let model = &report["outcomes"][0]["models"][0];
    assert_eq!(model["errors"]["caller"]["count"], 1, "{report}");
    assert_eq!(model["devices"], Value::Array(vec![]));
    let told = scene.run(&[&bench[..3], &sizes, &SHORT].concat()).stdout;
    assert!(told.contains("choose others with --tokens, --batch or --dim"), "{told}");

    let bench = ["bench", "--models", "adding,first", "--dim", "a=2"];
    let error = scene.fails(1, &[&bench[..], &SHORT].concat());
    assert!(error.contains("cannot feed `first`: no input has a dimension `a`"), "{error}");

    // Sizes that fit.
    let bench = ["bench", "--models", "adding,first"];
    let told = scene.ok(&[&bench[..], &SHORT].concat());
    assert!(told.contains("adding is fed x f32[1] noise"), "{told}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let scene = scene();
    let error = scene.fails(2, &["bench"]);
    assert!(error.contains("--models"), "{error}");
    let error = scene.fails(1, &["bench", "--models", "frist"]);
    assert!(error.contains("no model is named `frist`"), "{error}");
    let error = scene.fails(2, &["bench", "--models", "first", "--all", "--device", "wasm"]);
    assert!(error.contains("cannot be used with"), "{error}");
    for wrong in [["--concurrent", "0"], ["--duration", "0"], ["--browsers", "0"], ["--lanes", "0"]]
    {
        scene.fails(2, &[&["bench", "--models", "first"], &wrong[..]].concat());
    }
}

#[test]
fn without_a_server_there_is_no_pool_to_watch() {
    let scene = Scene::new();
    let error = scene.fails(1, &["pool"]);
    assert!(error.contains("start one with `holdfast serve`"), "{error}");
    assert_eq!(scene.fails(1, &["pool", "--once"]), error);
}
