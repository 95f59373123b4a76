//! The commands that use a browser, as a person types them.

use std::process::Output;

use holdfast_browsers::Kind;
use holdfast_graph::{Tensor, encode};
use holdfast_models::input::{Source, npy};
use serde_json::Value;

use crate::computing::unsupported;
use crate::families::present::present;
use crate::scene::{Scene, text};

fn embedding(report: &Value) -> Vec<f64> {
    let numbers = report["models"][0]["embeddings"][0].as_array().unwrap();
    numbers.iter().map(|number| number.as_f64().unwrap()).collect()
}

fn assert_close(left: &[f64], right: &[f64]) {
    assert_eq!(left.len(), right.len());
    let difference = left.iter().zip(right).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(difference < 1e-4, "{difference}");
}

#[test]
fn run_starts_a_browser_and_says_what_ran_where() {
    let scene = Scene::new();
    let expected = embedding(&scene.embed("cpu"));
    let report = scene.embed("wasm,cpu");
    assert_close(&embedding(&report), &expected);
    let device = &report["models"][0]["device"];
    assert_eq!(device["backend"], "wasm");
    assert_eq!(device["accelerated"], false);
    assert!(device["engine"].as_str().unwrap().contains("Chromium"), "{device}");
    assert_eq!(report["models"][0]["passed_over"], Value::Array(vec![]));

    // This machine has no accelerator, which is a reason, and the processor comes first.
    let report = scene.embed("auto");
    assert_close(&embedding(&report), &expected);
    assert_eq!(report["models"][0]["device"]["backend"], "cpu");
    let passed_over = report["models"][0]["passed_over"].as_array().unwrap();
    let devices: Vec<&str> = passed_over.iter().map(|p| p["device"].as_str().unwrap()).collect();
    assert_eq!(devices, ["webgpu", "webnn"]);
    assert!(passed_over[0]["reason"].as_str().unwrap().contains("software adapter"));

    let report = scene.embed("webnn");
    assert_close(&embedding(&report), &expected);
    assert_eq!(report["models"][0]["device"]["backend"], "webnn");
}

#[test]
fn a_browser_that_cannot_be_started_is_passed_over_and_said() {
    let scene = Scene::new();
    let missing = ["--browser-program", "/nonexistent/browser"];
    let run = ["run", "all-MiniLM-L6-v2", "--text", "a dog", "--device", "wasm,cpu"];
    let report = scene.json(&run.into_iter().chain(missing).collect::<Vec<_>>());
    assert_eq!(report["models"][0]["device"]["backend"], "cpu");
    let reason = report["models"][0]["passed_over"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("/nonexistent/browser"), "{reason}");

    let run = ["run", "all-MiniLM-L6-v2", "--text", "a dog", "--device", "wasm"];
    let error = scene.fails(&run.into_iter().chain(missing).collect::<Vec<_>>());
    assert!(error.contains("no device could run it: wasm:"), "{error}");

    // Who names a browser wants it; who has a usual one wants it only where a browser is wanted.
    let run = ["run", "all-MiniLM-L6-v2", "--text", "a dog", "--json"];
    let error = scene.fails(&run.into_iter().chain(missing).collect::<Vec<_>>());
    assert!(error.contains("/nonexistent/browser"), "{error}");
    let usual = |more: &[&str]| {
        let mut command = scene.command(&run);
        command.args(more).env("HOLDFAST_BROWSER", "/nonexistent/browser").output().unwrap()
    };
    let report: Value = serde_json::from_slice(&usual(&[]).stdout).unwrap();
    assert_eq!(report["models"][0]["device"]["backend"], "cpu");
    let told = usual(&["--device", "wasm"]).stderr;
    assert!(text(&told).contains("/nonexistent/browser"), "{}", text(&told));
    let report: Value = serde_json::from_slice(&usual(&["--browser", "packaged"]).stdout).unwrap();
    assert_eq!(report["models"][0]["device"]["backend"], "wasm", "what is typed goes first");
}

#[test]
fn a_server_runs_models_for_other_commands_and_leaves_nothing() {
    let scene = Scene::new();
    let error = scene.fails(&["join"]);
    assert!(error.contains("start one with `holdfast serve`"), "{error}");

    let served = scene.serve(&[]);
    assert!(served.told[0].starts_with("serving at http://127.0.0.1:"), "{:?}", served.told);
    let link = scene.json(&["join"])["link"].as_str().unwrap().to_owned();
    assert!(served.told.iter().any(|line| line.contains(&link)), "{:?}", served.told);
    let error = scene.fails(&["serve", "--port", "0"]);
    assert!(error.contains("already"), "{error}");

    let first = scene.embed("wasm");
    let again = scene.embed("wasm");
    assert_eq!(embedding(&first), embedding(&again));
    assert!(first["models"][0]["load_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(again["models"][0]["load_ms"], 0.0, "it was loaded already");
    assert_close(&embedding(&scene.embed("cpu")), &embedding(&first));

    assert!(served.interrupt().success());
    assert!(!scene.home().join("server.json").exists());
    let error = scene.fails(&["join"]);
    assert!(error.contains("start one with `holdfast serve`"), "{error}");
}

#[test]
fn serving_beyond_this_machine_needs_tls() {
    let scene = Scene::new();
    let error = scene.fails(&["serve", "--address", "0.0.0.0", "--port", "0"]);
    assert!(error.contains("--tls"), "{error}");
    let served = scene.serve(&["--address", "0.0.0.0", "--tls", "self-signed", "--no-browser"]);
    assert!(served.told[0].starts_with("serving at https://"), "{:?}", served.told);
    assert!(served.told[1].starts_with("certificate SHA-256 "), "{:?}", served.told);
    assert!(scene.json(&["join"])["link"].as_str().unwrap().starts_with("https://"));
    assert_eq!(scene.embed("cpu")["models"][0]["device"]["backend"], "cpu");
    let run = ["run", "all-MiniLM-L6-v2", "--text", "a dog", "--device", "wasm"];
    let error = scene.fails(&run);
    assert!(error.contains("no browser with wasm has joined"), "{error}");
}

#[test]
fn with_tls_a_server_starts_its_own_browsers_too() {
    let scene = Scene::new();
    let served = scene.serve(&["--address", "0.0.0.0", "--tls", "self-signed"]);
    assert!(served.told[0].starts_with("serving at https://"), "{:?}", served.told);
    let report = scene.embed("wasm");
    assert_eq!(report["models"][0]["device"]["backend"], "wasm");
    assert_close(&embedding(&report), &embedding(&scene.embed("cpu")));
    assert!(served.interrupt().success());
}

#[test]
fn doctor_tells_what_every_browser_gives() {
    let scene = Scene::new();
    let report = scene.json(&["doctor"]);
    let findings = report["findings"].as_array().unwrap();
    let finding = |browser: &str, what: &str| {
        let of = |finding: &&Value| {
            let named = finding["browser"].as_str().unwrap_or_default();
            named.starts_with(browser) && finding["what"] == what
        };
        let found = findings.iter().find(of);
        found.unwrap_or_else(|| panic!("no {what} of {browser} in {report}"))["text"]
            .as_str()
            .unwrap()
    };
    assert_eq!(report["fine"], true, "{report}");
    assert!(finding("Chromium (packaged)", "browser").contains("Chromium"));
    assert!(finding("Chromium (packaged)", "wasm").contains("GFLOP/s"));
    let software = "swiftshader (software adapter), no accelerator";
    assert!(finding("Chromium (packaged)", "webgpu").contains(software));
    assert!(finding("Chromium (packaged)", "webnn").contains("no accelerator"));

    if present(Kind::Firefox).is_some() {
        assert!(finding("Firefox", "wasm").contains("GFLOP/s"));
        let gpu = finding("Firefox", "webgpu");
        assert!(gpu.contains("GFLOP/s") || gpu.contains("mesa-vulkan-drivers"), "{gpu}");
        assert!(finding("Firefox", "webnn").contains("use Chromium"), "{report}");
    }
    if present(Kind::WebKit).is_some() {
        assert!(finding("WebKitGTK", "wasm").contains("GFLOP/s"));
        assert!(finding("WebKitGTK", "webgpu").contains("not here: WebKitGTK has no WebGPU"));
    }
}

#[test]
fn doctor_looks_at_one_browser_when_it_is_asked_for_and_fails_when_that_is_broken() {
    let scene = Scene::new();
    let report = scene.json(&["doctor", "--browser", "packaged"]);
    let findings = report["findings"].as_array().unwrap();
    let browsers = findings.iter().filter(|finding| finding["what"] == "browser").count();
    assert_eq!(browsers, 1, "{report}");

    let Output { status, stdout, .. } =
        scene.command(&["doctor", "--browser-program", "/nonexistent"]).output().unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(text(&stdout).contains("FAIL browser: "), "{}", text(&stdout));
}

#[test]
fn a_broken_browser_does_not_hide_the_others_from_doctor() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new();
    // One that tells its version and ends when it is started.
    let folder = scene.path("path");
    std::fs::create_dir(&folder).unwrap();
    let script = "#!/bin/sh\n[ \"$1\" = --version ] && echo 'Google Chrome 1.2.3' && exit\n\
                  echo 'out of luck' >&2; exit 3\n";
    std::fs::write(folder.join("google-chrome"), script).unwrap();
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.join("google-chrome"), executable).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let path = std::iter::once(folder).chain(std::env::split_paths(&path));
    let mut command = scene.command(&["doctor"]);
    let output = command.env("PATH", std::env::join_paths(path).unwrap()).output().unwrap();
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("ok   browser: Google Chrome 1.2.3"), "{told}");
    assert!(told.contains("FAIL   wasm: Google Chrome 1.2.3 exited with code 3"), "{told}");
    assert!(told.contains("out of luck"), "{told}");
    assert!(told.contains("ok   browser: Chromium (packaged)"), "{told}");
    assert!(told.contains("ok     wasm: WebAssembly on"), "{told}");
}

#[test]
fn what_a_backend_cannot_do_is_done_by_the_next_choice_and_said() {
    let scene = Scene::new();
    let (model, x) = (scene.path("strange.onnx"), scene.path("x.npy"));
    // No backend in a browser has its operator; the processor does.
    std::fs::write(&model, encode(&unsupported())).unwrap();
    let matrix = Tensor::from_slice(&[2, 2], &[1f32, 2.0, 3.0, 4.0]).unwrap();
    npy::write(&matrix, std::fs::File::create(&x).unwrap()).unwrap();
    scene.json(&["import", model.to_str().unwrap()]);
    let (out, input) = (scene.path("out"), format!("x={}", x.display()));
    let run = ["run", "strange", "--input", &input, "--out", out.to_str().unwrap()];
    let on = |device: &'static str| run.into_iter().chain(["--device", device]).collect::<Vec<_>>();

    let report = scene.json(&on("webgpu,cpu"));
    let ran = &report["models"][0];
    assert_eq!(ran["device"]["backend"], "cpu");
    let passed_over = ran["passed_over"].as_array().unwrap();
    assert_eq!(passed_over.len(), 1, "{ran}");
    assert_eq!(passed_over[0]["device"], "webgpu");
    assert!(passed_over[0]["reason"].as_str().unwrap().contains("Det"), "{ran}");
    let written = std::fs::read_dir(&out).unwrap().next().unwrap().unwrap().path();
    let determinant = npy::read(&Source::read(&written).unwrap()).unwrap().to_vec::<f32>().unwrap();
    assert!((determinant[0] + 2.0).abs() < 1e-5, "{determinant:?}");

    // Where there is no other choice, that is the error.
    let error = scene.fails(&on("webgpu"));
    assert!(error.contains("webgpu") && error.contains("Det"), "{error}");
}
