//! Lowering: at which level, what is kept of it, and what happens to the weights.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::path::{Path, PathBuf};

use common::inputs::{minilm_inputs, sample};
use common::models::dense;
use common::{
    MINILM, Named, RAPIDOCR_CLASSIFY, RAPIDOCR_DETECT, RAPIDOCR_RECOGNISE, SILERO_VAD, Scratch,
    block_on, options, third_party,
};
use holdfast_devices::cpu::{Level, Target};
use holdfast_devices::{Device, ErrorKind, Segment};
use holdfast_graph::DataType::{F16, F32};
use holdfast_graph::{Digest, Model, Tensor, blob_name};
use holdfast_models::StoredGraph;
use holdfast_testkit::{Builder, Init, Recipe, bert, fixed, named, vit};

const TARGETS: [Target; 4] = [Target::Cpu, Target::Wasm, Target::WebGpu, Target::WebNn];

#[test]
fn the_level_follows_from_graph_and_target_alone() {
    let check = |what: &str, model: &Model, expected: [Level; 4]| {
        assert_eq!(TARGETS.map(|target| target.level(model)), expected, "{what}");
    };
    use Level::{All, Basic, Extended, None};
    let plain = [Extended, Extended, Extended, Basic];
    let convolutions = [All, Extended, Extended, Basic];
    check("bert", &bert(&Recipe::tiny(1)).unwrap(), plain);
    check("vit", &vit(&Recipe::tiny(1)).unwrap(), convolutions);
    check("convolutions in a branch", &Model::open(third_party(SILERO_VAD)).unwrap(), convolutions);
    check("half precision", &half(), [Extended, None, None, None]);
}

/// `y` = `x` + 2 in half precision, 600 of them.
fn half() -> Model {
    let mut builder = Builder::new("half", 1);
    let dims = [named("batch"), fixed(600)];
    let x = builder.input("x", F16, &dims);
    let two = [0x00u8, 0x40].repeat(600);
    let two = Tensor::new(F16, vec![600], two.into()).unwrap();
    let two = builder.initializer("two", &two);
    let y = builder.node("Add", &[&x, &two], &[]);
    let y = builder.node("Relu", &[&y], &[]);
    builder.output("y", &y, F16, &dims);
    builder.finish().unwrap()
}

#[test]
fn half_precision_runs_on_the_processor_and_is_left_alone_for_others() {
    let scratch = Scratch::new();
    let graph = scratch.import("half", &half());
    block_on(async {
        let loaded = scratch.load(&graph).await;
        let one = Tensor::new(F16, vec![1, 600], [0x00u8, 0x3c].repeat(600).into()).unwrap();
        let y = scratch.run(&loaded, &[("x".to_owned(), one)].into()).await;
        let three = Tensor::new(F16, vec![1, 600], [0x00u8, 0x42].repeat(600).into()).unwrap();
        assert_eq!(y["y"], three);

        let none = BTreeMap::new();
        let lowered = scratch.engine.lower(&graph, Target::WebGpu, &none).await.unwrap();
        let operators = operators(&scratch, &lowered);
        assert_eq!(operators, ["Add", "Relu"]);
    });
}

#[test]
fn a_lowered_graph_is_fused_and_cannot_be_lowered_further() {
    let scratch = Scratch::new();
    let graph = scratch.import("bert", &bert(&Recipe::tiny(1)).unwrap());
    block_on(async {
        let lowered = scratch.lower(&graph).await;
        let fused = operators(&scratch, &lowered);
        assert!(fused.iter().any(|operator| operator == "BiasGelu"), "{fused:?}");
        assert!(fused.len() < operators(&scratch, &graph).len());
        // Lowering what is lowered finds nothing more to do, but may order it otherwise.
        let again = scratch.lower(&lowered).await;
        let sorted = |mut operators: Vec<String>| {
            operators.sort();
            operators
        };
        assert_eq!(sorted(operators(&scratch, &again)), sorted(fused));
    });
}

#[test]
fn what_was_lowered_is_kept() {
    let scratch = Scratch::new();
    let graph = scratch.import("bert", &bert(&Recipe::tiny(1)).unwrap());
    block_on(async {
        let lowered = scratch.lower(&graph).await;
        let before = files(&scratch);
        assert_eq!(scratch.lower(&graph).await, lowered);
        let other_engine = scratch.engine_with(options());
        let none = BTreeMap::new();
        assert_eq!(other_engine.lower(&graph, Target::Cpu, &none).await.unwrap(), lowered);
        assert_eq!(files(&scratch), before);
    });
}

#[test]
fn the_engine_and_its_version_are_part_of_the_key() {
    let scratch = Scratch::new();
    let engine = scratch.engine.info().engine.clone();
    let version = engine.strip_prefix("onnxruntime ").expect("the engine's name");
    let numbers: Vec<u32> = version.split('.').map(|part| part.parse().unwrap()).collect();
    assert!(numbers.len() == 3 && numbers[1] >= 30, "{engine}");
    let bert = scratch.import("bert", &bert(&Recipe::tiny(1)).unwrap());
    let vit = scratch.import("vit", &vit(&Recipe::tiny(1)).unwrap());
    block_on(async {
        for (graph, names_processor) in [(bert, false), (vit, true)] {
            let before: HashSet<PathBuf> = derived(&scratch).into_iter().collect();
            scratch.lower(&graph).await;
            let new = derived(&scratch).into_iter().find(|path| !before.contains(path)).unwrap();
            let text = std::fs::read_to_string(new).unwrap();
            assert!(text.contains(&format!("by {engine} (")), "{text}");
            // Layouts for this very processor must not run on another.
            assert_eq!(text.contains("; processor "), names_processor, "{text}");
        }
    });
}

#[test]
fn another_target_or_other_sizes_give_another_graph() {
    let scratch = Scratch::new();
    let graph = scratch.import("bert", &bert(&Recipe::tiny(1)).unwrap());
    block_on(async {
        let none = BTreeMap::new();
        for (index, target) in TARGETS.into_iter().enumerate() {
            scratch.engine.lower(&graph, target, &none).await.unwrap();
            assert_eq!(derived(&scratch).len(), index + 1, "{target:?}");
        }
        let free = scratch.lower(&graph).await;
        let sizes = |batch: usize, sequence: usize| -> BTreeMap<String, usize> {
            [("batch", batch), ("sequence", sequence)].map(|(n, s)| (n.to_owned(), s)).into()
        };
        let lower = async |sizes| scratch.engine.lower(&graph, Target::Cpu, &sizes).await.unwrap();
        let fixed = lower(sizes(1, 8)).await;
        let longer = lower(sizes(1, 16)).await;
        assert_eq!(derived(&scratch).len(), 6);
        assert!(fixed.graph != free.graph && longer.graph != fixed.graph);
        // Shapes that are known are computed when lowering.
        let asks = |graph| operators(&scratch, graph).iter().any(|operator| operator == "Shape");
        assert!(asks(&free) && !asks(&fixed));

        let model = scratch.store.open_graph(&graph).unwrap();
        let inputs = sample(&model.inputs(), &[("batch", 1), ("sequence", 8)], 1);
        let free = scratch.engine.load(Segment::new(free)).await.unwrap();
        let fixed = scratch.engine.load(Segment::new(fixed)).await.unwrap();
        let (free, fixed) = (scratch.run(&free, &inputs).await, scratch.run(&fixed, &inputs).await);
        common::assert_close("fixed sizes", &fixed, &free, 1e-5);
    });
}

#[test]
fn a_damaged_or_missing_lowered_graph_is_made_anew() {
    let scratch = Scratch::new();
    let graph = scratch.import("vit", &vit(&Recipe::tiny(1)).unwrap());
    block_on(async {
        let lowered = scratch.lower(&graph).await;
        let originals: HashSet<Digest> = graph.blobs().collect();
        let made = lowered.weights.iter().map(|weight| weight.content);
        let made = made.filter(|content| !originals.contains(content)).collect::<Vec<_>>();
        assert!(!made.is_empty(), "the optimiser was to lay out the convolution's weights anew");
        for blob in [lowered.graph, made[0]] {
            damage(&blob_path(&scratch, &blob));
            assert_eq!(scratch.lower(&graph).await, lowered);
            scratch.store.open_graph(&lowered).unwrap();
            std::fs::remove_file(blob_path(&scratch, &blob)).unwrap();
            assert_eq!(scratch.lower(&graph).await, lowered);
            scratch.store.open_graph(&lowered).unwrap();
        }
        for record in derived(&scratch) {
            std::fs::write(record, b"{ not json").unwrap();
        }
        assert_eq!(scratch.lower(&graph).await, lowered);
        scratch.engine.load(Segment::new(lowered)).await.unwrap();
    });
}

#[test]
fn a_damaged_weight_is_an_error_that_names_it() {
    let scratch = Scratch::new();
    let graph = scratch.import("bert", &bert(&Recipe::tiny(1)).unwrap());
    block_on(async {
        let lowered = scratch.lower(&graph).await;
        let weight = lowered.weights[0].content;
        damage(&blob_path(&scratch, &weight));
        let error = scratch.engine.load(Segment::new(lowered.clone())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Caller);
        let cause = error.source().unwrap().to_string();
        assert!(cause.contains(&weight.to_string()), "{cause}");
        assert!(scratch.engine.lower(&graph, Target::Cpu, &BTreeMap::new()).await.is_err());
        std::fs::remove_file(blob_path(&scratch, &weight)).unwrap();
        let error = scratch.engine.load(Segment::new(lowered.clone())).await.unwrap_err();
        let cause = error.source().unwrap().to_string();
        assert!(cause.contains(&weight.to_string()), "{cause}");
        assert_eq!(scratch.engine.stats().await.unwrap().segments, 0);

        // Importing again repairs the store.
        scratch.import("bert", &bert(&Recipe::tiny(1)).unwrap());
        scratch.engine.load(Segment::new(lowered)).await.unwrap();
    });
}

#[test]
fn weights_that_the_optimiser_does_not_touch_are_not_stored_again() {
    let scratch = Scratch::new();
    let graph = scratch.import_third_party(MINILM);
    let before = blob_bytes(&scratch);
    block_on(async {
        let lowered = scratch.lower(&graph).await;
        let added = blob_bytes(&scratch) - before;
        assert!(before > 90_000_000 && added < 1_000_000, "{added} of {before}");
        let originals: HashSet<Digest> = graph.blobs().collect();
        let bytes = |new: bool| -> u64 {
            let weights = lowered.weights.iter();
            let chosen = weights.filter(|weight| new != originals.contains(&weight.content));
            chosen.map(|weight| weight.bytes).sum()
        };
        assert!(bytes(true) * 100 < bytes(false), "{} and {}", bytes(true), bytes(false));
    });
}

#[test]
fn a_graph_that_the_engine_refuses_is_an_error() {
    let scratch = Scratch::new();
    let mut builder = Builder::new("unknown", 1);
    let x = builder.input("x", F32, &[fixed(4)]);
    let y = builder.node("NoSuchOperator", &[&x], &[]);
    builder.output("y", &y, F32, &[fixed(4)]);
    let graph = scratch.import("unknown", &builder.finish().unwrap());
    block_on(async {
        let error = scratch.engine.lower(&graph, Target::Cpu, &BTreeMap::new()).await.unwrap_err();
        let cause = error.source().unwrap().to_string();
        assert!(cause.contains("NoSuchOperator"), "{cause}");
        assert!(derived(&scratch).is_empty());
        // The engine goes on.
        scratch.load_model("dense", &dense(1)).await;
    });
}

#[test]
fn weights_inside_branches_are_lowered_and_shared() {
    let inputs = |scratch: &Scratch, graph: &StoredGraph| {
        let model = scratch.store.open_graph(graph).unwrap();
        let mut inputs = Named::new();
        for value in model.inputs() {
            let dims: &[usize] = match value.name.as_str() {
                "input" => &[1, 512],
                "state" => &[2, 1, 128],
                _ => continue,
            };
            inputs.insert(value.name, noise(dims));
        }
        inputs.insert("sr".to_owned(), common::inputs::integers(&[], |_| 16_000));
        inputs
    };
    check_shared(SILERO_VAD, 1_000_000, inputs);
}

#[test]
fn weights_in_constants_are_lowered_and_shared() {
    let picture = |dims: [usize; 4]| {
        move |_: &Scratch, _: &StoredGraph| -> Named { [("x".to_owned(), noise(&dims))].into() }
    };
    check_shared(RAPIDOCR_CLASSIFY, 400_000, picture([1, 3, 48, 192]));
    check_shared(RAPIDOCR_DETECT, 4_000_000, picture([1, 3, 64, 96]));
    check_shared(RAPIDOCR_RECOGNISE, 8_000_000, picture([1, 3, 48, 96]));
}

#[test]
fn weights_of_a_text_model_are_shared_between_targets() {
    let scratch = Scratch::new();
    let graph = scratch.import_third_party(MINILM);
    block_on(async {
        let cpu = scratch.load(&graph).await;
        let none = BTreeMap::new();
        let basic = scratch.engine.lower(&graph, Target::WebNn, &none).await.unwrap();
        let basic = scratch.engine.load(Segment::new(basic)).await.unwrap();
        assert!(basic.new_weight_bytes * 100 < basic.weight_bytes, "{basic:?}");
        let inputs = minilm_inputs(1, 8);
        let (cpu, basic) = (scratch.run(&cpu, &inputs).await, scratch.run(&basic, &inputs).await);
        common::assert_close("levels", &cpu, &basic, 1e-4);
    });
}

/// Lowers and runs a real model. Its large weights are blobs, and a second session of it brings
/// none of its own.
fn check_shared(path: &str, at_least: u64, inputs: impl Fn(&Scratch, &StoredGraph) -> Named) {
    let scratch = Scratch::new();
    let graph = scratch.import_third_party(path);
    let inputs = inputs(&scratch, &graph);
    block_on(async {
        let lowered = scratch.lower(&graph).await;
        let mut other = Segment::new(lowered.clone());
        // A name that is not there binds nothing, but makes it another segment.
        other.dims.insert("another".to_owned(), 1);
        let first = scratch.engine.load(Segment::new(lowered.clone())).await.unwrap();
        let second = scratch.engine.load(other).await.unwrap();
        assert_ne!(first.id, second.id);
        assert!(first.weight_bytes >= at_least, "{path}: {} bytes", first.weight_bytes);
        assert_eq!(first.new_weight_bytes, first.weight_bytes, "{path}");
        assert_eq!(second.new_weight_bytes, 0, "{path}");
        let graph_bytes = scratch.store.blob(&lowered.graph).unwrap().len() as u64;
        assert!(graph_bytes * 2 < first.weight_bytes, "{path}: the graph has {graph_bytes} bytes");
        let expected = scratch.run(&first, &inputs).await;
        assert!(expected.values().all(|tensor| !tensor.bytes().is_empty()));
        assert_eq!(scratch.run(&second, &inputs).await, expected, "{path}");
    });
}

fn noise(dims: &[usize]) -> Tensor {
    let init = Init { mean: 0.0, deviation: 1.0 };
    holdfast_testkit::Weights::new(1).draw("noise", dims, init).unwrap()
}

fn operators(scratch: &Scratch, graph: &StoredGraph) -> Vec<String> {
    let model = scratch.store.open_graph(graph).unwrap();
    model.graph().node.iter().map(|node| node.op_type.clone()).collect()
}

fn blob_path(scratch: &Scratch, digest: &Digest) -> PathBuf {
    scratch.store.blobs_folder().join(blob_name(digest))
}

/// Changes one byte, as a broken disk does: in place, the size stays.
fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn derived(scratch: &Scratch) -> Vec<PathBuf> {
    listing(&scratch.home().join("derived")).into_iter().map(|(path, ..)| path).collect()
}

fn blob_bytes(scratch: &Scratch) -> u64 {
    listing(scratch.store.blobs_folder()).iter().map(|(_, bytes, _)| bytes).sum()
}

/// Every derived graph and blob: its path, size and time of change.
fn files(scratch: &Scratch) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
    let folders = [scratch.home().join("derived"), scratch.store.blobs_folder().to_owned()];
    folders.iter().flat_map(|folder| listing(folder)).collect()
}

fn listing(folder: &Path) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
    let entry = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.unwrap();
        let about = entry.metadata().unwrap();
        (entry.path(), about.len(), about.modified().unwrap())
    };
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(entry).collect();
    entries.sort();
    entries
}
