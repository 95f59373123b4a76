//! What can be wrong with a model's sidecars or with what a person wants to feed.

use std::path::PathBuf;

use holdfast_graph::TensorError;

/// Why an input could not be prepared or an output not be read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum InputError {
    #[error(
        "this model has no {file}, which {purpose}; feed its inputs with --input NAME=FILE.npy"
    )]
    MissingFile { file: &'static str, purpose: &'static str },
    #[error("{file} of this model is not valid: {problem}")]
    BadFile { file: String, problem: String },
    #[error(
        "{file} of this model asks for {what}, which Holdfast does not do; \
         feed its inputs with --input NAME=FILE.npy"
    )]
    Unsupported { file: String, what: String },
    #[error("this model does not take {kind}: its inputs are {inputs}")]
    NotTaken { kind: &'static str, inputs: String },
    #[error("the model's input \"{input}\" takes {wanted}, not {given}")]
    Mismatch { input: String, wanted: String, given: String },
    #[error("this model runs batches of exactly {fixed}, but {given} {kind} were given")]
    Batch { kind: &'static str, fixed: usize, given: usize },
    #[error("no {0} to run the model on")]
    Nothing(&'static str),
    #[error(
        "texts of different lengths need padding, but this model names no padding token; \
         run them one at a time"
    )]
    NoPadding,
    #[error("{name}: {problem}")]
    Content { name: String, problem: String },
    #[error("cannot read {}: {source}", .path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("the output does not fit: {0}")]
    Output(String),
    #[error(
        "this model does not say which sampling rate it takes \
         (no `sampling_rate` in preprocessor_config.json); name it with --rate HERTZ"
    )]
    NoSamplingRate,
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

impl InputError {
    /// A sidecar whose content makes no sense.
    pub(super) fn bad_file(file: &str, problem: impl ToString) -> InputError {
        InputError::BadFile { file: file.to_owned(), problem: problem.to_string() }
    }

    /// Something that a person handed over and that cannot be used.
    pub(super) fn content(name: &str, problem: impl ToString) -> InputError {
        InputError::Content { name: name.to_owned(), problem: problem.to_string() }
    }
}
