//! Whose fault a failure of the engine is. ONNX Runtime tells by a code and a text: this is the one
//! place that reads them, as `web/engine/src/failure.ts` is for lanes.

use ort::ErrorCode;

use crate::error::{DeviceError, ErrorKind};

/// Classifies what the engine reports.
pub(crate) fn engine_error(what: &str, error: ort::Error) -> DeviceError {
    DeviceError::caused(kind(error.code(), error.message()), what, error)
}

/// The same for a run, where shapes that do not go together are those of the inputs.
pub(crate) fn run_error(what: &str, error: ort::Error) -> DeviceError {
    DeviceError::caused(kind_of_run(error.code(), error.message()), what, error)
}

fn kind_of_run(code: ErrorCode, message: &str) -> ErrorKind {
    match kind(code, message) {
        ErrorKind::Device if is_about_shapes(message) => ErrorKind::Caller,
        kind => kind,
    }
}

fn kind(code: ErrorCode, message: &str) -> ErrorKind {
    if mentions(message, &NO_MEMORY) {
        return ErrorKind::Memory;
    }
    match code {
        ErrorCode::InvalidArgument => ErrorKind::Caller,
        _ => ErrorKind::Device,
    }
}

const NO_MEMORY: [&str; 3] = ["bad_alloc", "failed to allocate", "out of memory"];

/// Whether an operator refused the shapes that it was given. The same shapes come to it on every
/// device. Of what operators say, only what can mean nothing else counts: a failure that is blamed
/// on the caller is not tried elsewhere.
fn is_about_shapes(message: &str) -> bool {
    mentions(message, &["non-zero status code returned while running"])
        && mentions(message, &WRONG_SHAPES)
}

/// What the engine's checks of shapes say, by operator or by helper of several.
const WRONG_SHAPES: [&str; 10] = [
    // Everything that broadcasts: Add, Mul, Where, Equal, …
    "attempting to broadcast an axis by a dimension other than 1",
    // MatMul and those made of it.
    "cannot broadcast on dim",
    "dimension mismatch",
    "cannot be reshaped to the requested shape",
    // Concat.
    "dimensions must match",
    "mismatched dimensions",
    // Squeeze.
    "must be 1 instead of",
    // Split.
    "cannot be split evenly",
    // Einsum.
    "could not be broadcast together",
    // Two inputs that disagree on a dimension for which the model has one name.
    "shape mismatch attempting to re-use buffer",
];

fn mentions(message: &str, texts: &[&str]) -> bool {
    let message = message.to_lowercase();
    texts.iter().any(|text| message.contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(text: &str) -> String {
        let node = "Non-zero status code returned while running Add node. Name:'a' Status Message";
        format!("{node}: {text}")
    }

    const BROADCAST: &str = "Attempting to broadcast an axis by a dimension other than 1. 2 by 3";

    #[test]
    fn a_run_that_fails_by_its_shapes_is_the_callers_fault() {
        for code in [ErrorCode::RuntimeException, ErrorCode::GenericFailure] {
            assert_eq!(kind_of_run(code, &running(BROADCAST)), ErrorKind::Caller);
        }
    }

    #[test]
    fn what_may_be_something_else_is_not() {
        let cases = [
            ("no shape", running("a thread could not be started"), ErrorKind::Device),
            ("a word is no reason", running("cannot map the shape's memory"), ErrorKind::Device),
            ("no memory, for a shape", running("bad_alloc: dimension mismatch"), ErrorKind::Memory),
            ("no node", BROADCAST.to_owned(), ErrorKind::Device),
        ];
        for (what, message, expected) in cases {
            assert_eq!(kind_of_run(ErrorCode::RuntimeException, &message), expected, "{what}");
        }
    }

    #[test]
    fn a_graph_with_shapes_that_do_not_go_together_is_not_blamed_on_inputs() {
        let kind = kind(ErrorCode::RuntimeException, &running(BROADCAST));
        assert_eq!(kind, ErrorKind::Device);
    }
}
