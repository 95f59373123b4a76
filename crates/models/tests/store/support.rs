//! A store of its own for each test, and models to put into it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use holdfast_graph::{DataType, Digest, Fingerprints, Model, WeightId, WeightTable, encode};
use holdfast_models::{ImportOptions, Imported, Manifest, Store, StoreError, Variant};
use holdfast_testkit::synth::{Options, synth};
use holdfast_testkit::{Builder, Size, fixed};
use tempfile::TempDir;

/// A store, and a folder for the files that are imported.
pub(crate) struct Scene {
    folder: TempDir,
    pub(crate) store: Store,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("home")).unwrap();
        Scene { folder, store }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file, making its folders.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn write_model(&self, name: &str, model: &Model) -> PathBuf {
        self.write(name, encode(model))
    }

    /// Imports a file or folder under its own name.
    pub(crate) fn import(&self, name: &str) -> Imported {
        self.try_import(name, &ImportOptions::default()).unwrap()
    }

    pub(crate) fn try_import(
        &self,
        name: &str,
        options: &ImportOptions,
    ) -> Result<Imported, StoreError> {
        self.store.import(&self.path(name), options, &mut |_| ())
    }

    /// Writes and imports a model under a name.
    pub(crate) fn add(&self, name: &str, model: &Model) -> Imported {
        self.write_model(&format!("{name}.onnx"), model);
        self.import(&format!("{name}.onnx"))
    }

    /// Every file of the store but its lock, with its size.
    pub(crate) fn files(&self) -> BTreeMap<String, u64> {
        let mut files = BTreeMap::new();
        for folder in ["blobs", "models", "derived"] {
            for entry in fs::read_dir(self.store.home().join(folder)).unwrap() {
                let entry = entry.unwrap();
                let name = format!("{folder}/{}", entry.file_name().to_str().unwrap());
                files.insert(name, entry.metadata().unwrap().len());
            }
        }
        files
    }

    /// The number of blobs.
    pub(crate) fn blob_count(&self) -> usize {
        self.files().keys().filter(|name| name.starts_with("blobs/")).count()
    }

    pub(crate) fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.store.blobs_folder().join(holdfast_graph::blob_name(digest))
    }

    /// What verification complains of: the model, and the message.
    pub(crate) fn problems(&self) -> Vec<(String, String)> {
        let report = self.store.verify(None).unwrap();
        report.problems.into_iter().map(|(name, problem)| (name, problem.to_string())).collect()
    }
}

/// The only or first model of a kind, tiny.
pub(crate) fn small(kind: &str, seed: u64) -> Model {
    family(kind, seed).swap_remove(0)
}

/// The models of a kind, tiny.
pub(crate) fn family(kind: &str, seed: u64) -> Vec<Model> {
    let options = Options { seed, size: Size::tiny(), ..Options::default() };
    let members = synth(kind.parse().unwrap(), &options).unwrap();
    members.into_iter().map(|member| member.model).collect()
}

/// `x` times a matrix, with the weight given.
pub(crate) fn product(weight: &holdfast_graph::Tensor) -> Model {
    let mut builder = Builder::new("product", 1);
    let [rows, columns] = *weight.dims() else { panic!("a matrix has two dimensions") };
    let x = builder.input("x", weight.dtype(), &[fixed(1), fixed(rows)]);
    let name = builder.initializer("weight", weight);
    let y = builder.node("MatMul", &[&x, &name], &[]);
    builder.output("y", &y, weight.dtype(), &[fixed(1), fixed(columns)]);
    builder.finish().unwrap()
}

/// Numbers that are all different.
pub(crate) fn matrix(rows: usize, columns: usize, first: f32) -> holdfast_graph::Tensor {
    let values: Vec<f32> = (0..rows * columns).map(|index| first + index as f32 * 0.5).collect();
    holdfast_graph::Tensor::from_slice(&[rows, columns], &values).unwrap()
}

/// A matrix of 16-bit numbers.
pub(crate) fn halves(rows: usize, columns: usize) -> holdfast_graph::Tensor {
    holdfast_graph::Tensor::zeros(DataType::F16, &[rows, columns]).unwrap()
}

/// The ids of a model's weights, in order.
pub(crate) fn weight_ids(model: &Model) -> Vec<WeightId> {
    let mut ids: Vec<WeightId> =
        WeightTable::new(model).entries().iter().map(|weight| weight.id).collect();
    ids.sort_by_key(|id| id.0);
    ids
}

/// Two models compute the same, take and give the same names, and have the same weights.
pub(crate) fn assert_same(one: &Model, two: &Model, what: &str) {
    assert_eq!(one.inputs(), two.inputs(), "{what}");
    assert_eq!(one.outputs(), two.outputs(), "{what}");
    assert_eq!(weight_ids(one), weight_ids(two), "{what}");
    let structure = |model: &Model| Fingerprints::new(model, &WeightTable::new(model)).model();
    assert_eq!(structure(one), structure(two), "{what}");
}

/// Every component is what its file was.
pub(crate) fn assert_comes_back(store: &Store, manifest: &Manifest, folder: &Path) {
    for component in &manifest.components {
        let stored = store.open_graph(&component.graph).unwrap();
        let read = Model::open(folder.join(&component.file)).unwrap();
        assert_same(&stored, &read, &component.file);
    }
}

pub(crate) fn variant(name: &str) -> Variant {
    Variant(name.to_owned())
}

/// Something that `cargo xtask setup` puts into `third-party`.
pub(crate) fn third_party(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../third-party").join(path);
    assert!(path.exists(), "{} is missing: run `cargo xtask setup`", path.display());
    path
}
