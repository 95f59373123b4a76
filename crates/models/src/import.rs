//! Import: from files on disk to a model in the store.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_graph::{DataType, Digest, Model, Tensor, is_transposed};

use crate::blobs::Written;
use crate::error::StoreError;
use crate::hash::hashed_weights;
use crate::layout::{Layout, Variant, parse_stem, variant_of};
use crate::manifest::{
    Component, FORMAT, Manifest, Provenance, Source, StoredFile, StoredGraph, StoredWeight,
    Transposed,
};
use crate::store::{Store, check_name};

/// How to import.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// The model's name; by default that of its folder or file.
    pub name: Option<String>,
    /// Only this precision; by default all that there are.
    pub variant: Option<Variant>,
    /// Where it came from, if not from the path itself.
    pub source: Option<Source>,
}

/// What an import did.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The model.
    pub manifest: Manifest,
    /// Whether a model of that name was there before.
    pub replaced: bool,
    /// Weights that were not in the store yet.
    pub written: Written,
    /// Bytes of all the model's weights.
    pub weight_bytes: u64,
}

impl Store {
    /// Imports an `.onnx` file or a Hugging Face style folder. `progress` is told each file
    /// before it is read.
    pub fn import(
        &self,
        path: &Path,
        options: &ImportOptions,
        progress: &mut dyn FnMut(&Path),
    ) -> Result<Imported, StoreError> {
        let name = options.name.clone().unwrap_or_else(|| default_name(path));
        check_name(&name)?;
        let layout = Layout::read(path)?;
        self.adding(|added| self.import_layout(path, name, &layout, options, progress, added))
    }

    fn import_layout(
        &self,
        path: &Path,
        name: String,
        layout: &Layout,
        options: &ImportOptions,
        progress: &mut dyn FnMut(&Path),
        added: &mut Vec<Digest>,
    ) -> Result<Imported, StoreError> {
        let replaced = self.names()?.contains(&name);
        let mut written = Written::default();
        let mut components: Vec<Component> = Vec::new();
        let mut unwanted: BTreeSet<Variant> = BTreeSet::new();
        let wants = |variant: &Variant| options.variant.as_ref().is_none_or(|v| v == variant);
        for file in &layout.components {
            if let Some(named) = file.variant.as_ref().filter(|named| !wants(named)) {
                unwanted.insert(named.clone());
                continue;
            }
            progress(&file.path);
            let model = read(&file.path)?;
            let weights = hashed_weights(&model);
            let variant = file.variant.clone().unwrap_or_else(|| variant_of(&model, &weights));
            if !wants(&variant) {
                unwanted.insert(variant);
                continue;
            }
            let same = |other: &&Component| other.role == file.role && other.variant == variant;
            if let Some(other) = components.iter().find(same) {
                return Err(StoreError::Ambiguous {
                    what: format!("{} ({variant})", file.role),
                    first: PathBuf::from(&other.file),
                    second: PathBuf::from(&file.file),
                });
            }
            let (graph, new) = self.put_graph(&model, &weights, added)?;
            written.add(new);
            components.push(Component {
                role: file.role.clone(),
                variant,
                file: file.file.clone(),
                transposed: self.find_transposed(&name, &graph)?,
                graph,
            });
        }
        if components.is_empty() {
            let asked = options.variant.as_ref().map(ToString::to_string).unwrap_or_default();
            let available = unwanted.iter().map(ToString::to_string).collect();
            let of = path.display().to_string();
            return Err(StoreError::NoSuchVariant { of, asked, available });
        }

        let mut files = BTreeMap::new();
        for (path, file) in &layout.files {
            let bytes = std::fs::read(path).map_err(|e| StoreError::io("read", path, e))?;
            let content = self.put_bytes(&bytes, added)?;
            files.insert(file.clone(), StoredFile { content, bytes: bytes.len() as u64 });
        }
        self.blobs.sync()?;

        let weight_bytes = distinct_bytes(&components);
        let source = options.source.clone().unwrap_or_else(|| source_of(path));
        let provenance = Provenance {
            source,
            imported_at_unix: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |t| t.as_secs()),
            holdfast: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let manifest = Manifest { format: FORMAT, name, components, files, provenance };
        self.put_manifest(&manifest)?;
        Ok(Imported { manifest, replaced, written, weight_bytes })
    }

    /// Weights of a graph that other models have the other way round.
    fn find_transposed(
        &self,
        name: &str,
        graph: &StoredGraph,
    ) -> Result<Vec<Transposed>, StoreError> {
        type Key = (u64, DataType, Vec<usize>);
        let mut mirrors: HashMap<Key, Vec<(String, StoredWeight)>> = HashMap::new();
        for other in self.models()?.readable.into_iter().filter(|other| other.name != name) {
            for weight in other.components.iter().flat_map(|component| &component.graph.weights) {
                if let Some(sum) = weight.transpose_invariant {
                    let mut dims = weight.dims.clone();
                    dims.reverse();
                    let entry = mirrors.entry((sum, weight.dtype, dims)).or_default();
                    entry.push((other.name.clone(), weight.clone()));
                }
            }
        }
        let mut found = Vec::new();
        for weight in &graph.weights {
            let Some(sum) = weight.transpose_invariant else { continue };
            let candidates = mirrors.get(&(sum, weight.dtype, weight.dims.clone()));
            for (model, mirror) in candidates.into_iter().flatten() {
                if mirror.id != weight.id && self.mirrors(weight, mirror) {
                    let (weight, of) = (weight.id, mirror.id);
                    found.push(Transposed { weight, of, model: model.clone() });
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Whether one weight is the other transposed. Another model's weight may be damaged, which
    /// is no reason to refuse this one.
    fn mirrors(&self, left: &StoredWeight, right: &StoredWeight) -> bool {
        let tensor = |weight: &StoredWeight| {
            let bytes = self.blob(&weight.content).ok()?;
            Tensor::new(weight.dtype, weight.dims.clone(), bytes).ok()
        };
        tensor(left).zip(tensor(right)).is_some_and(|(left, right)| is_transposed(&left, &right))
    }
}

fn read(path: &Path) -> Result<Model, StoreError> {
    Model::open(path).map_err(|source| match start_of(path).as_slice() {
        [] => StoreError::EmptyFile(path.to_owned()),
        start if start == LFS_POINTER => StoreError::LfsPointer(path.to_owned()),
        _ => StoreError::Model { path: path.to_owned(), source },
    })
}

/// What a file starts with that a clone without Git LFS leaves in a model's place.
const LFS_POINTER: &[u8] = b"version https://git-lfs";

fn start_of(path: &Path) -> Vec<u8> {
    let mut start = Vec::new();
    let read = |file: File| file.take(LFS_POINTER.len() as u64).read_to_end(&mut start);
    // A file that cannot be read is reported as such, by the error that was there first.
    if File::open(path).and_then(read).is_err() { vec![0] } else { start }
}

/// The bytes of weights, each content counted once.
fn distinct_bytes(components: &[Component]) -> u64 {
    let weights = components.iter().flat_map(|component| &component.graph.weights);
    let distinct: HashMap<_, _> = weights.map(|weight| (weight.content, weight.bytes)).collect();
    distinct.values().sum()
}

fn source_of(path: &Path) -> Source {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if path.is_dir() { Source::Folder { path } } else { Source::File { path } }
}

/// The name of the folder, or of the file; `model.onnx` says less than the folder it is in.
fn default_name(path: &Path) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let stem = absolute.file_stem().unwrap_or_default().to_string_lossy();
    let name = if absolute.is_dir() {
        name_of_folder(&absolute)
    } else if parse_stem(&stem).0.0 == "model" {
        let folder = absolute.parent().unwrap_or(&absolute);
        let outer = folder.parent().filter(|_| folder.ends_with("onnx"));
        name_of_folder(outer.unwrap_or(folder))
    } else {
        stem.into_owned()
    };
    let plain = |c: char| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '-' };
    name.chars().map(plain).collect()
}

fn name_of_folder(folder: &Path) -> String {
    // A path such as `..` names the folder only once it is resolved.
    let resolved = if folder.file_name().is_none() { folder.canonicalize().ok() } else { None };
    let folder = resolved.as_deref().unwrap_or(folder);
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
