//! ONNX in, ONNX out: read, fingerprint, cost, cut, write.
//!
//! Three nouns carry this crate. A [`Model`] is an ONNX file that was read and checked, its
//! weights borrowed from the file's memory map. A [`Weight`](weights::Weight) is one constant
//! tensor in it. A *structure* identifies a value by how it is computed.
//!
//! Pure: no clock, no network, no threads of its own. Passes take a `&Model` and return
//! something new.

pub mod cost;
mod digest;
mod dtype;
mod error;
mod external;
pub mod infer;
mod model;
pub mod proto;
mod scan;
mod tensor;
pub mod topology;
mod validate;
pub mod weights;

pub use digest::{Digest, NotADigest};
pub use dtype::DataType;
pub use error::{ExternalProblem, Problem, ReadError, WireProblem};
pub use model::{Dim, Model, OLDEST_OPSET, Value};
pub use scan::FREE_BYTES;
pub use tensor::{Element, Tensor, TensorError};
pub use validate::node_label;
