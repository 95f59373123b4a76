//! ONNX in, ONNX out: read, fingerprint, cost, cut, share, lift, compose, write.
//!
//! Three nouns carry this crate. A [`Model`] is an ONNX file that was read and checked, its
//! weights borrowed from the file's memory map. A [`Weight`] is one constant
//! tensor in it. A *structure* identifies a value by how it is computed.
//!
//! Pure: no clock, no network, no threads of its own. Passes take a `&Model` and return
//! something new.

mod canonical;
mod common;
mod compose;
mod content;
pub mod cost;
mod cut;
mod declare;
mod digest;
mod dtype;
mod error;
mod external;
mod hoist;
pub mod infer;
mod lift;
mod model;
pub mod proto;
mod scan;
pub mod share;
mod structure;
mod tensor;
pub mod topology;
mod transposed;
mod validate;
pub mod weights;
mod write;

pub use common::{Common, common};
pub use compose::{ComposeError, ComposedInput, ComposedPart, Composite, Part, compose};
pub use cut::{CutError, cut};
pub use declare::declare;
pub use digest::{Digest, NotADigest};
pub use dtype::DataType;
pub use error::{ExternalProblem, Problem, ReadError, WireProblem};
pub use external::{MappedFile, map_file};
pub use hoist::{hoist, hoist_constants};
pub use lift::{LEAST_LIFTED_BYTES, Lifted, LiftedWeight, Refused, WhyNot, lift};
pub use model::{Dim, Model, OLDEST_OPSET, Value};
/// Encoding and decoding of [`proto`] messages.
pub use prost::Message;
pub use scan::FREE_BYTES;
pub use structure::{Fingerprint, Fingerprints, Leaf, Structure};
pub use tensor::{Element, Tensor, TensorError};
pub use transposed::{is_transposed, transpose_invariant};
pub use validate::node_label;
pub use weights::{HashedWeight, Weight, WeightId, WeightTable};
pub use write::{GraphOnly, blob_digest, blob_name, encode, graph_only};
