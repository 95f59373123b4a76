//! What can be wrong with a model file.

use std::path::PathBuf;

use crate::tensor::TensorError;

/// Why a model could not be read. Every message names the file, node or field it is about.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum ReadError {
    #[error("cannot read {}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("not an ONNX model: at {place}: {problem}")]
    Wire { place: String, problem: WireProblem },
    #[error("not an ONNX model: {0}")]
    Decode(#[from] prost::DecodeError),
    #[error("external data of {place}: {problem}")]
    External { place: String, problem: ExternalProblem },
    #[error("in {place}: {problem}")]
    Invalid { place: String, problem: Problem },
}

/// What is wrong with the bytes of a file, before they are decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum WireProblem {
    #[error("the file ends in the middle of a field")]
    Truncated,
    #[error("byte {0} is not a valid field key")]
    BadKey(usize),
    #[error("messages are nested more than {0} deep")]
    TooDeep(usize),
    #[error(
        "{file_bytes} bytes would decode to more than {limit} bytes; the file is damaged or made to exhaust memory"
    )]
    Bloated { file_bytes: u64, limit: u64 },
}

/// What is wrong with a tensor's external data.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum ExternalProblem {
    #[error("it names no file (`location` is missing)")]
    NoLocation,
    #[error("`{0}` must be a plain file inside the model's folder")]
    Outside(String),
    #[error("`{key}` is `{value}`, not a number")]
    NotANumber { key: &'static str, value: String },
    #[error("the model was read from memory, so `{0}` has no folder to be in")]
    NoFolder(String),
    #[error("cannot read `{location}`: {source}")]
    Io { location: String, source: std::io::Error },
    #[error("bytes {offset}..{end} lie beyond the end of `{location}` ({file_bytes} bytes)")]
    BeyondEnd { location: String, offset: u64, end: u64, file_bytes: u64 },
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// What is wrong with a decoded model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum Problem {
    #[error("there is no graph")]
    NoGraph,
    #[error("no version is declared for the operator domain `{0}`")]
    NoOpset(String),
    #[error("opset {version} of ai.onnx is not supported; {oldest} is the oldest that is")]
    OldOpset { version: i64, oldest: i64 },
    #[error("two versions are declared for the operator domain `{0}`")]
    TwoOpsets(String),
    #[error("the node has no operator")]
    NoOperator,
    #[error("input `{0}` is produced by nothing")]
    MissingInput(String),
    #[error("output `{0}` is produced by nothing")]
    MissingOutput(String),
    #[error("value `{0}` is produced twice")]
    ProducedTwice(String),
    #[error("attribute `{0}` is given twice")]
    AttributeTwice(String),
    #[error("the node depends on its own output")]
    Cycle,
    #[error("dimension {dimension} of `{value}` is absurd")]
    AbsurdDimension { value: String, dimension: i64 },
    #[error(transparent)]
    Tensor(#[from] TensorError),
}
