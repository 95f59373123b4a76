//! Weights that a segment takes as inputs: what has to be right about them before a lane is asked.

use holdfast_graph::{Digest, Value, blob_name};
use holdfast_models::Store;
use holdfast_wire::{BlobRef, LiftedWeight};

use super::convert::check_dtype;
use crate::check::{byte_len, fits};
use crate::error::{DeviceError, ErrorKind};
use crate::segment::LiftedInput;

/// Takes lifted inputs out of what a graph takes, after checking each against what the graph
/// declares and against the bytes that the store has for it.
pub(super) fn take_out(
    inputs: &mut Vec<Value>,
    lifted: &[LiftedInput],
    store: &Store,
) -> Result<(), DeviceError> {
    for lifted in lifted {
        let LiftedInput { input, dtype, dims, .. } = lifted;
        let Some(at) = inputs.iter().position(|declared| declared.name == *input) else {
            let names: Vec<&str> = inputs.iter().map(|value| value.name.as_str()).collect();
            return Err(DeviceError::caller(format!(
                "the graph has no input `{input}` for a lifted weight, or it is lifted twice; \
                 there is {}",
                names.join(", ")
            )));
        };
        let declared = inputs.remove(at);
        if !fits(&declared, Some(*dtype), dims) {
            return Err(DeviceError::caller(format!(
                "input `{input}` is {declared}, but its lifted weight is {dtype}{dims:?}"
            )));
        }
        check_dtype(*dtype)?;
    }
    let contents: Vec<Digest> = lifted.iter().map(|lifted| lifted.content).collect();
    let unreadable =
        |error| DeviceError::caused(ErrorKind::Caller, "cannot read a lifted weight", error);
    for (lifted, blob) in lifted.iter().zip(store.blobs(&contents).map_err(unreadable)?) {
        check_size(lifted, blob.len() as u64)?;
    }
    Ok(())
}

fn check_size(lifted: &LiftedInput, found: u64) -> Result<(), DeviceError> {
    let LiftedInput { input, content, dtype, dims } = lifted;
    if byte_len(*dtype, dims) == Some(found) {
        return Ok(());
    }
    Err(DeviceError::caller(format!(
        "the lifted weight of input `{input}` is {dtype}{dims:?}, but blob {content} has {found} \
         bytes"
    )))
}

/// A lifted input for the wire.
pub(super) fn encode(lifted: &LiftedInput) -> LiftedWeight {
    LiftedWeight {
        input: lifted.input.clone(),
        blob: BlobRef { name: blob_name(&lifted.content), byte_len: bytes_of(lifted) },
        dtype: lifted.dtype.name().to_owned(),
        dims: lifted.dims.iter().map(|&dim| dim as u64).collect(),
    }
}

/// The bytes of one that was checked.
pub(super) fn bytes_of(lifted: &LiftedInput) -> u64 {
    byte_len(lifted.dtype, &lifted.dims).unwrap_or(0)
}
