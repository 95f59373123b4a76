//! Manifests: what a model is made of.

use std::collections::BTreeMap;
use std::path::PathBuf;

use holdfast_graph::{DataType, Digest, HashedWeight};
use serde::{Deserialize, Serialize};

use crate::layout::{Role, Variant};

/// The version of the manifest's format.
pub(crate) const FORMAT: u32 = 1;

/// A model: components, side files, where it came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this format.
    pub format: u32,
    /// The model's name in this store.
    pub name: String,
    /// Its ONNX graphs.
    pub components: Vec<Component>,
    /// Tokenizer, configuration and the like, by their path in the model's folder.
    pub files: BTreeMap<String, StoredFile>,
    /// Where it came from.
    pub provenance: Provenance,
}

/// One ONNX graph of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Component {
    /// What it is for.
    pub role: Role,
    /// Its precision.
    pub variant: Variant,
    /// The file it was read from, relative to the model's folder.
    pub file: String,
    /// The graph and its weights.
    #[serde(flatten)]
    pub graph: StoredGraph,
    /// Weights that are another model's weights transposed: the same numbers, stored twice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transposed: Vec<Transposed>,
}

/// A graph in the store: its bytes without the large weights, and those.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredGraph {
    /// The blob of the graph.
    #[serde(with = "hex")]
    pub graph: Digest,
    /// Its large weights, each content once; small ones are in the graph.
    pub weights: Vec<StoredWeight>,
}

/// A weight in the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredWeight {
    /// The id: type, shape and bytes.
    #[serde(with = "hex")]
    pub id: Digest,
    /// The blob of its bytes.
    #[serde(with = "hex")]
    pub content: Digest,
    /// The element type.
    #[serde(with = "dtype")]
    pub dtype: DataType,
    /// The dimensions.
    pub dims: Vec<usize>,
    /// The size of the blob.
    pub bytes: u64,
    /// A sum that a transposed copy of the weight has too; only matrices have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transpose_invariant: Option<u64>,
}

impl StoredWeight {
    pub(crate) fn new(weight: &HashedWeight) -> StoredWeight {
        StoredWeight {
            id: weight.id.0,
            content: weight.content,
            dtype: weight.tensor.dtype(),
            dims: weight.tensor.dims().to_vec(),
            bytes: weight.tensor.bytes().len() as u64,
            transpose_invariant: holdfast_graph::transpose_invariant(&weight.tensor),
        }
    }
}

/// A note that a weight is another one transposed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transposed {
    /// This model's weight.
    #[serde(with = "hex")]
    pub weight: Digest,
    /// The weight that it mirrors.
    #[serde(with = "hex")]
    pub of: Digest,
    /// A model that has that one.
    pub model: String,
}

/// A side file in the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredFile {
    /// The blob of its bytes.
    #[serde(with = "hex")]
    pub content: Digest,
    /// Its size.
    pub bytes: u64,
}

/// Where a model came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// What was imported.
    #[serde(flatten)]
    pub source: Source,
    /// When, in seconds since 1970.
    pub imported_at_unix: u64,
    /// The version of Holdfast that imported it.
    pub holdfast: String,
}

/// What a model was imported from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Source {
    File { path: PathBuf },
    Folder { path: PathBuf },
    Hub { endpoint: String, repository: String, revision: String },
}

impl Manifest {
    /// The blobs that this model needs.
    pub fn blobs(&self) -> impl Iterator<Item = Digest> {
        let graphs = self.components.iter().flat_map(|component| component.graph.blobs());
        graphs.chain(self.files.values().map(|file| file.content))
    }

    /// The variants of which there is at least one component, best choice first.
    pub fn variants(&self) -> Vec<Variant> {
        let mut variants: Vec<Variant> =
            self.components.iter().map(|component| component.variant.clone()).collect();
        variants.sort();
        variants.dedup();
        variants
    }

    /// The components of one variant. A model may keep a component in one precision only:
    /// for a role that the variant lacks, the best that there is takes its place.
    pub fn choose(&self, variant: Option<&Variant>) -> Vec<&Component> {
        let mut roles: Vec<&Role> = self.components.iter().map(|c| &c.role).collect();
        roles.sort();
        roles.dedup();
        let best = |role: &&Role| {
            let of_role = self.components.iter().filter(|component| component.role == **role);
            of_role
                .min_by_key(|component| (Some(&component.variant) != variant, &component.variant))
        };
        roles.iter().filter_map(best).collect()
    }
}

impl StoredGraph {
    /// The blobs of the graph and its weights.
    pub fn blobs(&self) -> impl Iterator<Item = Digest> {
        std::iter::once(self.graph).chain(self.weights.iter().map(|weight| weight.content))
    }
}

/// Digests are written as hexadecimal digits.
mod hex {
    use super::*;
    use serde::{Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(digest: &Digest, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(digest)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Digest, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

/// Element types are written by their short names.
mod dtype {
    use super::*;
    use serde::{Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(dtype: &DataType, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(dtype.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<DataType, D::Error> {
        let name = String::deserialize(from)?;
        DataType::from_name(&name)
            .ok_or_else(|| de::Error::custom(format!("unknown element type `{name}`")))
    }
}
