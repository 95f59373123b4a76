//! What a segment is made of: blobs, the shapes of its inputs, and weights that are inputs.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// A file that is fetched over HTTP by its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "camelCase")]
pub struct BlobRef {
    /// `sha256-` and the hash in hexadecimal; also the name by which a graph refers to a weight.
    pub name: String,
    /// Its size.
    pub byte_len: u64,
}

/// An input of a segment that is a weight. The lane feeds it itself at every run, from one copy for
/// all segments that use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "camelCase")]
pub struct LiftedWeight {
    /// The name of the input.
    pub input: String,
    /// The bytes of the weight.
    pub blob: BlobRef,
    /// The element type, such as `f32`.
    pub dtype: String,
    /// The dimensions.
    pub dims: Vec<u64>,
}

/// A tensor without its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "camelCase")]
pub struct TensorShape {
    /// The name of the input or output.
    pub name: String,
    /// The element type, such as `f32`.
    pub dtype: String,
    /// The dimensions.
    pub dims: Vec<u64>,
}
