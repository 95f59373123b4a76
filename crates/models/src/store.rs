//! The store: a folder of blobs, manifests and derived graphs.
//!
//! ```text
//! $HOLDFAST_HOME/
//!   blobs/sha256-…       weights, graphs, side files
//!   models/NAME.json     manifests
//!   derived/KEY.json     graphs made from others, such as lowered ones
//!   verdicts/KEY.json    whether running models together kept their bits
//!   store.lock           shared by writers, held alone by `gc`
//! ```

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use holdfast_graph::{
    Digest, ExternalProblem, HashedWeight, Model, WeightTable, blob_digest, graph_only,
};
use prost::Message;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::blobs::{Blobs, Written, sync_folder, write_atomically};
use crate::error::StoreError;
use crate::hash::hashed_like;
use crate::manifest::{FORMAT, Manifest, StoredGraph, StoredWeight};

/// Weights below this stay in the graph: they are scalars, shapes and short vectors, more
/// costly as files of their own than as copies, and engines want to see them when they load.
pub const MIN_BLOB_BYTES: usize = 1024;

/// A model store on disk. Several processes may use one at the same time.
pub struct Store {
    home: PathBuf,
    pub(crate) blobs: Blobs,
}

/// The models of a store.
#[derive(Debug, Default)]
pub struct Models {
    /// Those that can be used.
    pub readable: Vec<Manifest>,
    /// The names of those whose manifest is damaged or newer than this program, and why.
    pub unreadable: Vec<(String, StoreError)>,
}

/// A graph that was made from a stored one, such as its lowered form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Derived {
    /// The version of this format.
    pub format: u32,
    /// The blob of the graph that it was made from, as hexadecimal digits.
    pub from: String,
    /// What was done, in full: equal text means equal result.
    pub by: String,
    /// The result.
    #[serde(flatten)]
    pub graph: StoredGraph,
}

impl Store {
    /// Opens the store in this folder, making it if it is not there.
    pub fn open(home: impl Into<PathBuf>) -> Result<Store, StoreError> {
        let home = home.into();
        let blobs = Blobs::open(home.join("blobs"))?;
        let store = Store { home, blobs };
        let folders = [store.models_folder(), store.derived_folder(), store.verdicts_folder()];
        for folder in folders {
            fs::create_dir_all(&folder).map_err(|e| StoreError::not_writable(&folder, e))?;
        }
        Ok(store)
    }

    /// The store's folder.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The folder of blobs, where engines find external data.
    pub fn blobs_folder(&self) -> &Path {
        self.blobs.folder()
    }

    pub(crate) fn models_folder(&self) -> PathBuf {
        self.home.join("models")
    }

    pub(crate) fn derived_folder(&self) -> PathBuf {
        self.home.join("derived")
    }

    /// Every model, in the order of their names. One that is damaged does not hide the others.
    pub fn models(&self) -> Result<Models, StoreError> {
        let mut models = Models::default();
        for name in self.names()? {
            match self.model(&name) {
                Ok(manifest) => models.readable.push(manifest),
                // Removed by another process since the names were listed.
                Err(StoreError::NoSuchModel { .. }) => {}
                Err(error) => models.unreadable.push((name, error)),
            }
        }
        Ok(models)
    }

    /// The names of all models.
    pub fn names(&self) -> Result<Vec<String>, StoreError> {
        let stem = |path: &PathBuf| Some(path.file_stem()?.to_str()?.to_owned());
        Ok(json_files(&self.models_folder())?.iter().filter_map(stem).collect())
    }

    /// One model.
    pub fn model(&self, name: &str) -> Result<Manifest, StoreError> {
        match check_name(name).and_then(|()| read_manifest(&self.manifest_path(name))) {
            Err(error) if error.is_absent() => Err(self.no_such_model(name)?),
            read => read,
        }
    }

    /// Removes a model. Its blobs stay until `gc` finds that no other model has them.
    pub fn remove(&self, name: &str) -> Result<(), StoreError> {
        let path = self.manifest_path(name);
        let remove = || fs::remove_file(&path).map_err(|e| StoreError::io("remove", &path, e));
        match check_name(name).and_then(|()| remove()) {
            Ok(()) => sync_folder(&self.models_folder()),
            Err(error) if error.is_absent() => Err(self.no_such_model(name)?),
            Err(error) => Err(error),
        }
    }

    fn no_such_model(&self, name: &str) -> Result<StoreError, StoreError> {
        let mut names = self.names()?;
        let wanted = name.to_lowercase();
        let distance =
            |other: &str| strsim::normalized_damerau_levenshtein(&wanted, &other.to_lowercase());
        let close =
            |other: &String| distance(other) > 0.4 || other.to_lowercase().contains(&wanted);
        names.retain(close);
        names.sort_by(|a, b| distance(b).total_cmp(&distance(a)));
        names.truncate(3);
        Ok(StoreError::NoSuchModel { name: name.to_owned(), nearest: names })
    }

    pub(crate) fn put_manifest(&self, manifest: &Manifest) -> Result<(), StoreError> {
        let path = self.manifest_path(&manifest.name);
        write_atomically(&path, &to_json(manifest))?;
        sync_folder(&self.models_folder())
    }

    fn manifest_path(&self, name: &str) -> PathBuf {
        self.models_folder().join(format!("{name}.json"))
    }

    /// Stores bytes as a blob, and notes it in `added` if it is new.
    pub(crate) fn put_bytes(
        &self,
        bytes: &[u8],
        added: &mut Vec<Digest>,
    ) -> Result<Digest, StoreError> {
        let digest = Digest::of(bytes);
        self.put_blob(&digest, bytes, added)?;
        Ok(digest)
    }

    fn put_blob(
        &self,
        digest: &Digest,
        bytes: &[u8],
        added: &mut Vec<Digest>,
    ) -> Result<Written, StoreError> {
        let written = self.blobs.put(digest, bytes)?;
        if written.blobs > 0 {
            added.push(*digest);
        }
        Ok(written)
    }

    /// Stores a graph and its weights, and notes new blobs in `added`. `Written` counts weights,
    /// not the graph.
    pub(crate) fn put_graph(
        &self,
        model: &Model,
        weights: &WeightTable,
        added: &mut Vec<Digest>,
    ) -> Result<(StoredGraph, Written), StoreError> {
        let parts =
            graph_only(model, weights, |weight| weight.tensor.bytes().len() >= MIN_BLOB_BYTES);
        let mut written = Written::default();
        let mut stored: Vec<StoredWeight> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for weight in &parts.taken {
            if seen.insert(weight.id) {
                written.add(self.put_blob(&weight.content, weight.tensor.bytes(), added)?);
                stored.push(StoredWeight::new(weight));
            }
        }
        let graph = self.put_bytes(&parts.proto.encode_to_vec(), added)?;
        self.blobs.sync()?;
        Ok((StoredGraph { graph, weights: stored }, written))
    }

    /// Reads a stored graph with its weights, which stay in the blobs' memory maps. Every hash is checked.
    pub fn open_graph(&self, stored: &StoredGraph) -> Result<Model, StoreError> {
        let digests: Vec<Digest> = stored.blobs().collect();
        let blobs = self.blobs.map(&digests)?;
        read_graph(stored, digests.into_iter().zip(blobs).collect())
    }

    /// The same with its weights by their ids, for whoever compares graphs and computes nothing: the
    /// graph is checked, large weights are believed to be what their blobs are named. They are checked
    /// when a device loads them.
    pub fn open_hashed(&self, stored: &StoredGraph) -> Result<(Model, WeightTable), StoreError> {
        let contents: Vec<Digest> = stored.weights.iter().map(|weight| weight.content).collect();
        let maps = self.blobs.map_unchecked(&contents)?;
        let mut blobs: HashMap<Digest, Bytes> =
            contents.iter().copied().zip(maps.iter().cloned()).collect();
        blobs.insert(stored.graph, self.blob(&stored.graph)?);
        let model = read_graph(stored, blobs)?;
        // These are the maps that the model looks into.
        let weights = hashed_like(&model, maps.iter().map(|map| &map[..]).zip(contents));
        Ok((model, weights))
    }

    /// Whether a blob is there.
    pub fn has_blob(&self, digest: &Digest) -> bool {
        self.blobs.has(digest)
    }

    /// A blob's bytes, mapped and checked.
    pub fn blob(&self, digest: &Digest) -> Result<Bytes, StoreError> {
        Ok(self.blobs.map(&[*digest])?.swap_remove(0))
    }

    /// Several blobs' bytes, mapped and checked on all cores.
    pub fn blobs(&self, digests: &[Digest]) -> Result<Vec<Bytes>, StoreError> {
        self.blobs.map(digests)
    }

    /// Gives back the memory of mapped blobs that are hardly read any more, such as weights of
    /// which an engine has made its own copy. They can be read as before, from disk if need be.
    pub fn release_pages(&self, digests: impl IntoIterator<Item = Digest>) {
        self.blobs.release_pages(digests);
    }

    /// The side files of a model, by their path in its folder.
    pub fn files(&self, manifest: &Manifest) -> Result<Vec<(String, Bytes)>, StoreError> {
        let digests: Vec<Digest> = manifest.files.values().map(|file| file.content).collect();
        Ok(manifest.files.keys().cloned().zip(self.blobs.map(&digests)?).collect())
    }

    /// A graph that was derived from `from` in just this way, if it was kept. One that is
    /// damaged or incomplete counts as not kept, because it can be made again.
    pub fn derived(&self, from: &Digest, by: &str) -> Result<Option<StoredGraph>, StoreError> {
        let path = self.derived_path(from, by);
        let Ok(bytes) = fs::read(&path) else { return Ok(None) };
        let derived: Option<Derived> = serde_json::from_slice(&bytes).ok();
        let usable = |derived: &Derived| {
            derived.format == FORMAT
                && derived.from == from.to_string()
                && derived.by == by
                && self.blobs.map(&derived.graph.blobs().collect::<Vec<_>>()).is_ok()
        };
        Ok(derived.filter(usable).map(|derived| derived.graph))
    }

    /// Keeps a graph that was derived from `from`.
    pub fn put_derived(
        &self,
        from: &Digest,
        by: &str,
        model: &Model,
        weights: &WeightTable,
    ) -> Result<StoredGraph, StoreError> {
        self.adding(|added| {
            let (graph, _) = self.put_graph(model, weights, added)?;
            self.note_derived(from, by, graph)
        })
    }

    /// Keeps a graph that was put together from pieces of stored ones, whose weights are there.
    pub fn put_pieced(
        &self,
        from: &Digest,
        by: &str,
        model: &Model,
        weights: &WeightTable,
        parents: &[&StoredGraph],
    ) -> Result<StoredGraph, StoreError> {
        let known: HashMap<Digest, &StoredWeight> =
            parents.iter().flat_map(|parent| &parent.weights).map(|w| (w.id, w)).collect();
        let is_known = |weight: &HashedWeight| known.contains_key(&weight.id.0);
        let is_large = |weight: &HashedWeight| weight.tensor.bytes().len() >= MIN_BLOB_BYTES;
        if weights.entries().iter().any(|weight| is_large(weight) && !is_known(weight)) {
            return self.put_derived(from, by, model, weights);
        }
        self.adding(|added| {
            let parts = graph_only(model, weights, is_large);
            let ids: BTreeSet<Digest> = parts.taken.iter().map(|weight| weight.id.0).collect();
            let weights = ids.iter().filter_map(|id| known.get(id).copied().cloned()).collect();
            let graph = self.put_bytes(&parts.proto.encode_to_vec(), added)?;
            self.blobs.sync()?;
            self.note_derived(from, by, StoredGraph { graph, weights })
        })
    }

    fn note_derived(
        &self,
        from: &Digest,
        by: &str,
        graph: StoredGraph,
    ) -> Result<StoredGraph, StoreError> {
        let derived = Derived { format: FORMAT, from: from.to_string(), by: by.to_owned(), graph };
        write_atomically(&self.derived_path(from, by), &to_json(&derived))?;
        sync_folder(&self.derived_folder())?;
        Ok(derived.graph)
    }

    /// All graphs that were derived and kept, each with the digest of what it was derived from.
    pub fn derivations(&self) -> Result<Vec<(String, StoredGraph)>, StoreError> {
        let readable = self.all_derived()?.into_iter().filter_map(|(_, derived)| derived);
        Ok(readable.map(|derived| (derived.from, derived.graph)).collect())
    }

    fn derived_path(&self, from: &Digest, by: &str) -> PathBuf {
        let key = Digest::of(format!("{from} {by}").as_bytes());
        self.derived_folder().join(format!("{key}.json"))
    }

    pub(crate) fn all_derived(&self) -> Result<Vec<(PathBuf, Option<Derived>)>, StoreError> {
        let read = |path: PathBuf| {
            let derived =
                fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
            (path, derived)
        };
        Ok(json_files(&self.derived_folder())?.into_iter().map(read).collect())
    }
}

/// Names become file names, so they are plain.
pub(crate) fn check_name(name: &str) -> Result<(), StoreError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let starts_plain = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if starts_plain && name.len() <= 128 && name.chars().all(plain) {
        return Ok(());
    }
    Err(StoreError::BadName(name.to_owned()))
}

/// Reads a graph whose blobs are at hand.
fn read_graph(stored: &StoredGraph, blobs: HashMap<Digest, Bytes>) -> Result<Model, StoreError> {
    let source = |location: &str| {
        blob_digest(location)
            .and_then(|digest| blobs.get(&digest).cloned())
            .ok_or_else(|| ExternalProblem::Outside(location.to_owned()))
    };
    let missing = || StoreError::MissingBlob { digest: stored.graph };
    let graph = blobs.get(&stored.graph).cloned().ok_or_else(missing)?;
    Model::from_bytes_with(graph, source)
        .map_err(|source| StoreError::StoredGraph { digest: stored.graph, source })
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec_pretty(value).expect("a manifest has only strings, numbers and lists")
}

pub(crate) fn json_files(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let io = |error| StoreError::io("list", folder, error);
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn read_manifest(path: &Path) -> Result<Manifest, StoreError> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let bytes = fs::read(path).map_err(|e| StoreError::io("read", path, e))?;
    let format = parse::<Format>(path, &bytes)?.format;
    if format > FORMAT {
        return Err(StoreError::NewerFormat {
            path: path.to_owned(),
            found: format,
            known: FORMAT,
        });
    }
    parse(path, &bytes)
}

fn parse<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(bytes)
        .map_err(|source| StoreError::DamagedManifest { path: path.to_owned(), source })
}
