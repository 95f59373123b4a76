//! Why a model could not be built.

use holdfast_graph::{ReadError, TensorError};

/// What was wrong with the wish for a model.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum BuildError {
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    #[error("{what} ({value}) must be a multiple of {of} ({divisor})")]
    NotAMultiple { what: &'static str, value: usize, of: &'static str, divisor: usize },
    #[error("a head is {0} wide (hidden / heads), but rotary positions need an even width")]
    OddHead(usize),
    #[error("opset {found} is not supported; choose one of {oldest} to {newest}")]
    Opset { found: i64, oldest: i64, newest: i64 },
    #[error("LayerNormalization is an operator from opset 17 on; choose `decomposed` below that")]
    NoLayerNormalization,
    #[error("weight `{name}`: {source}")]
    Weight { name: String, source: TensorError },
    #[error("the model that was built is not valid: {0}")]
    Invalid(#[from] ReadError),
}

/// A name that stands for nothing, with those that do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no {what} `{name}`; choose one of {}", known.join(", "))]
pub struct UnknownName {
    /// What was named.
    pub what: &'static str,
    /// The name that was given.
    pub name: String,
    /// The names that there are.
    pub known: Vec<&'static str>,
}
