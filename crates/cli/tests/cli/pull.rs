//! `holdfast pull`, from a hub on this machine.

use std::path::Path;

use holdfast_graph::encode;
use holdfast_testkit::hub::{COMMIT, Fault, Server, State};
use serde_json::{Value, json};

use crate::support::{Scene, check, small};

const TOKENIZER: &str = r#"{
  "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
  "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null,
  "decoder": null,
  "model": {"type": "WordLevel", "unk_token": "[UNK]", "vocab": {"[UNK]": 0, "a": 1, "dog": 2}}
}"#;

/// A hub whose only repository has two variants.
fn hub() -> Server {
    let mut state = State::default();
    for (path, seed) in [("onnx/model.onnx", 1), ("onnx/model_quantized.onnx", 2)] {
        state.files.insert(path.to_owned(), (encode(&small("bert", seed)), true));
    }
    for (path, text) in [
        ("config.json", "{\"model_type\": \"bert\"}"),
        ("tokenizer.json", TOKENIZER),
        ("README.md", "# A model"),
    ] {
        state.files.insert(path.to_owned(), (text.as_bytes().to_vec(), false));
    }
    Server::start(state)
}

fn fetched(server: &Server) -> Vec<String> {
    let seen = server.seen("/resolve/");
    let name = |path: &str| path.split_once(COMMIT).unwrap().1[1..].to_owned();
    seen.iter().map(|seen| name(&seen.path)).collect()
}

/// No file is left where downloads go.
fn assert_no_downloads(scene: &Scene) {
    fn files(folder: &Path) -> Vec<std::path::PathBuf> {
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
    }
    assert_eq!(files(&scene.home().join("downloads")), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_pulled_model_runs_and_knows_where_it_came_from() {
    let (scene, server) = (Scene::new(), hub());
    let endpoint = server.endpoint();
    check!(scene, scene.ok(&["pull", "owner/model", "--endpoint", &endpoint]), @"
    imported model
      model (fp32): 14 large weights
      weights: 344.1 kB
    ");
    assert_eq!(fetched(&server), ["config.json", "onnx/model.onnx", "tokenizer.json"]);
    assert_no_downloads(&scene);
    let report = scene.json(&["run", "model", "--text", "a dog"]);
    assert_eq!(report["models"][0]["outputs"][0]["dims"], json!([1, 2, 64]));
    let shown = scene.json(&["show", "model"]);
    assert_eq!(shown["provenance"]["source"], "hub");
    assert_eq!(shown["provenance"]["repository"], "owner/model");
    assert_eq!(shown["provenance"]["revision"], COMMIT);
    assert!(scene.ok(&["show", "model"]).starts_with("model  (owner/model at 0123"));

    // Again, with the address from the environment: the store has all of it.
    let mut again = scene.command(&["pull", "owner/model", "--json"]);
    let again = crate::support::finish(again.env("HF_ENDPOINT", &endpoint));
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!((&again["replaced"], &again["weight_bytes_written"]), (&json!(true), &json!(0)));
}

#[test]
fn the_user_chooses_variant_and_name() {
    let (scene, server) = (Scene::new(), hub());
    let endpoint = server.endpoint();
    let pull = |more: &[&str]| {
        let all = ["pull", "owner/model", "--endpoint", &endpoint];
        scene.ok(&all.iter().chain(more).copied().collect::<Vec<_>>())
    };
    pull(&["--variant", "q8", "--name", "small"]);
    pull(&["--variant", "all", "--name", "both"]);
    let listed = scene.json(&["models"]);
    let variants: Vec<&Value> =
        listed["models"].as_array().unwrap().iter().map(|model| &model["variants"]).collect();
    assert_eq!(variants, [&json!(["fp32", "q8"]), &json!(["q8"])]);
    let unknown = ["pull", "owner/model", "--endpoint", &endpoint, "--variant", "q4"];
    check!(scene, scene.fails(1, &unknown), @"owner/model has no variant `q4`; it has fp32, q8");
}

#[test]
fn a_file_of_another_precision_than_its_name_says_is_taken_for_what_it_is() {
    let (scene, server) = (Scene::new(), hub());
    server.change(|state| {
        state.files.remove("onnx/model_quantized.onnx");
        state.files.insert("onnx/model.onnx".to_owned(), (encode(&halves()), true));
    });
    scene.ok(&["pull", "owner/model", "--endpoint", &server.endpoint()]);
    assert_eq!(scene.json(&["models"])["models"][0]["variants"], json!(["fp16"]));
}

/// A model whose weights have half precision.
fn halves() -> holdfast_graph::Model {
    use holdfast_graph::{DataType, Tensor};
    use holdfast_testkit::{Builder, fixed};
    let mut builder = Builder::new("halves", 1);
    let x = builder.input("x", DataType::F16, &[fixed(1), fixed(32)]);
    let weight = Tensor::zeros(DataType::F16, &[32, 32]).unwrap();
    let weight = builder.initializer("weight", &weight);
    let y = builder.node("MatMul", &[&x, &weight], &[]);
    builder.output("y", &y, DataType::F16, &[fixed(1), fixed(32)]);
    builder.finish().unwrap()
}

#[test]
fn a_broken_connection_is_continued() {
    let (scene, server) = (Scene::new(), hub());
    server.fail("model.onnx", &[Fault::Cut(1000)]);
    scene.ok(&["pull", "owner/model", "--endpoint", &server.endpoint()]);
    let seen = server.seen("model.onnx");
    assert_eq!(seen[1].header("range"), Some("bytes=1000-"));
    scene.ok(&["verify"]);
}

#[test]
fn a_pull_that_failed_goes_on_next_time() {
    let (scene, server) = (Scene::new(), hub());
    server.fail("model.onnx", &[Fault::Cut(1000), Fault::Status(404)]);
    let pull = ["pull", "owner/model", "--endpoint", &server.endpoint()];
    let first = scene.run(&pull);
    assert_eq!((first.code, first.stdout.as_str()), (Some(1), ""));
    assert_eq!(scene.ok(&["models"]), "no models yet; `holdfast import PATH` adds one\n");
    scene.ok(&pull);
    let seen = server.seen("model.onnx");
    assert_eq!(seen.last().unwrap().header("range"), Some("bytes=1000-"));
    assert_eq!(fetched(&server).iter().filter(|path| *path == "config.json").count(), 1);
    assert_no_downloads(&scene);
}

#[test]
fn wrong_bytes_never_become_a_model() {
    let (scene, server) = (Scene::new(), hub());
    let pull = ["pull", "owner/model", "--endpoint", &server.endpoint()];
    server.fail("model.onnx", &[Fault::FlipBit]);
    let failed = scene.run(&pull);
    assert_eq!((failed.code, failed.stdout.as_str()), (Some(1), ""));
    check!(scene, failed.stderr, @"error: onnx/model.onnx: expected SHA-256 [DIGEST], found SHA-256 [DIGEST]; what was fetched is deleted, run it again");
    assert!(scene.files_in("models").is_empty());
    scene.ok(&pull);
    scene.ok(&["verify"]);
}

#[test]
fn hubs_and_repositories_that_are_not_there_are_named() {
    let (scene, server) = (Scene::new(), hub());
    let endpoint = server.endpoint();
    let pull = |repository: &str| scene.fails(1, &["pull", repository, "--endpoint", &endpoint]);
    check!(scene, pull("owner/absent"), @r#"owner/absent at "main" does not exist on [HUB] (HTTP 404): check the name and the revision"#);
    check!(scene, pull("not a name"), @r#""not a name" is not a repository: expected a name like owner/model"#);
    check!(scene, scene.fails(1, &["pull", "owner/model", "--endpoint", "hub"]), @r#""hub" cannot be a model hub (HF_ENDPOINT): expected an address like https://hub.example.org"#);
    server.change(|state| state.files.retain(|path, _| !path.ends_with(".onnx")));
    check!(scene, pull("owner/model"), @"owner/model has no ONNX files; look for a repository that has an `onnx` folder");
    drop(server);
    check!(scene, pull("owner/model"), @"cannot reach [HUB]: check the network, HF_ENDPOINT and any proxy: io: Connection refused (os error 111)");
}
