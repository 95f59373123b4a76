//! What a segment is made of: blobs, and the shapes of its inputs.

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
