//! What can be said about a program before it runs, in the same words on every device.

use holdfast_graph::{DataType, Dim, Value};

use crate::error::DeviceError;

/// Checks a tensor against what an input declares.
pub(crate) fn check_fits(
    declared: &Value,
    dtype: Option<DataType>,
    dims: &[usize],
    step: usize,
) -> Result<(), DeviceError> {
    if fits(declared, dtype, dims) {
        return Ok(());
    }
    let given = dtype.map_or("an unknown type", DataType::name);
    Err(DeviceError::caller(format!(
        "input `{}` of step {step} is {declared}, but {given}{dims:?} was given",
        declared.name
    )))
}

/// Whether a tensor can be what a value declares.
pub(crate) fn fits(declared: &Value, dtype: Option<DataType>, dims: &[usize]) -> bool {
    let type_fits = declared.dtype.is_none() || declared.dtype == dtype;
    let dims_fit = declared.dims.as_ref().is_none_or(|declared| {
        let fits = |(declared, size): (&Dim, &usize)| match declared {
            Dim::Fixed(expected) => expected == size,
            Dim::Named(_) | Dim::Unknown => true,
        };
        declared.len() == dims.len() && declared.iter().zip(dims).all(fits)
    });
    type_fits && dims_fit
}

/// The bytes that a tensor takes; `None` for strings, and for more elements than can be counted.
pub(crate) fn byte_len(dtype: DataType, dims: &[usize]) -> Option<u64> {
    let elements = dims.iter().try_fold(1u64, |count, &dim| count.checked_mul(dim as u64))?;
    dtype.byte_len(elements)
}

/// The error for a name that a segment does not have.
pub(crate) fn no_such(declared: &[Value], name: &str, step: usize, what: &str) -> DeviceError {
    let names: Vec<&str> = declared.iter().map(|value| value.name.as_str()).collect();
    DeviceError::caller(format!(
        "the segment of step {step} has no {what} `{name}`; it has {}",
        names.join(", ")
    ))
}
