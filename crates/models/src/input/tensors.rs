//! From prepared numbers to the tensor that a model's input declares.

use half::{bf16, f16};
use holdfast_graph::{DataType, Dim, Element, Tensor, Value};

use super::InputError;

/// Checks a tensor against what the model says of an input: element type, rank, fixed sizes.
pub fn check_input(input: &Value, tensor: &Tensor) -> Result<(), InputError> {
    let dtype_fits = input.dtype.is_none_or(|dtype| dtype == tensor.dtype());
    let dims_fit = input.dims.as_ref().is_none_or(|dims| {
        dims.len() == tensor.dims().len()
            && dims.iter().zip(tensor.dims()).all(|(dim, &size)| match dim {
                Dim::Fixed(fixed) => *fixed == size,
                Dim::Named(_) | Dim::Unknown => true,
            })
    });
    if dtype_fits && dims_fit {
        return Ok(());
    }
    let given = format!("{}{:?}", tensor.dtype(), tensor.dims());
    Err(InputError::Mismatch { input: input.name.clone(), wanted: input.to_string(), given })
}

/// Whole numbers as the element type that the input declares (i64 where it does not say).
pub(super) fn from_ints(
    input: &Value,
    dims: &[usize],
    values: &[i64],
) -> Result<(String, Tensor), InputError> {
    let tensor = match input.dtype.unwrap_or(DataType::I64) {
        DataType::I64 => Tensor::from_slice(dims, values)?,
        DataType::I32 => {
            let narrow = |&value: &i64| i32::try_from(value).map_err(|_| refused(input, "ids"));
            Tensor::from_slice(dims, &values.iter().map(narrow).collect::<Result<Vec<_>, _>>()?)?
        }
        DataType::Bool => converted(dims, values, |value| value != 0)?,
        DataType::F32 => converted(dims, values, |value| value as f32)?,
        DataType::F16 => converted(dims, values, |value| f16::from_f32(value as f32))?,
        _ => return Err(refused(input, "whole numbers")),
    };
    check_input(input, &tensor)?;
    Ok((input.name.clone(), tensor))
}

/// Numbers as the floating-point type that the input declares (f32 where it does not say).
pub(super) fn from_floats(
    input: &Value,
    dims: &[usize],
    values: &[f32],
) -> Result<(String, Tensor), InputError> {
    let tensor = match input.dtype.unwrap_or(DataType::F32) {
        DataType::F32 => Tensor::from_slice(dims, values)?,
        DataType::F16 => converted(dims, values, f16::from_f32)?,
        DataType::Bf16 => converted(dims, values, bf16::from_f32)?,
        DataType::F64 => converted(dims, values, f64::from)?,
        _ => return Err(refused(input, "fractional numbers")),
    };
    check_input(input, &tensor)?;
    Ok((input.name.clone(), tensor))
}

/// An output's numbers as f32.
pub(super) fn to_floats(tensor: &Tensor) -> Result<Vec<f32>, InputError> {
    Ok(match tensor.dtype() {
        DataType::F16 => tensor.to_vec::<f16>()?.into_iter().map(f16::to_f32).collect(),
        DataType::Bf16 => tensor.to_vec::<bf16>()?.into_iter().map(bf16::to_f32).collect(),
        DataType::F64 => tensor.to_vec::<f64>()?.into_iter().map(|value| value as f32).collect(),
        _ => tensor.to_vec()?,
    })
}

/// The size that the model fixes for an axis of an input.
pub(super) fn fixed_size(input: &Value, axis: usize) -> Option<usize> {
    match input.dims.as_ref()?.get(axis)? {
        Dim::Fixed(size) => Some(*size),
        Dim::Named(_) | Dim::Unknown => None,
    }
}

/// Refuses an empty batch, and one of another size than the model was exported for.
pub(super) fn check_batch(
    input: &Value,
    kind: &'static str,
    given: usize,
) -> Result<(), InputError> {
    match fixed_size(input, 0) {
        _ if given == 0 => Err(InputError::Nothing(kind)),
        Some(fixed) if fixed != given => Err(InputError::Batch { kind, fixed, given }),
        _ => Ok(()),
    }
}

/// The error for a model that has no input for this kind of data.
pub(super) fn not_taken(kind: &'static str, inputs: &[Value]) -> InputError {
    let inputs: Vec<String> =
        inputs.iter().map(|input| format!("{} {input}", input.name)).collect();
    let inputs = if inputs.is_empty() { "none".to_owned() } else { inputs.join(", ") };
    InputError::NotTaken { kind, inputs }
}

fn converted<F: Copy, T: Element>(
    dims: &[usize],
    values: &[F],
    convert: impl Fn(F) -> T,
) -> Result<Tensor, InputError> {
    let values: Vec<T> = values.iter().map(|&value| convert(value)).collect();
    Ok(Tensor::from_slice(dims, &values)?)
}

fn refused(input: &Value, given: &str) -> InputError {
    InputError::Mismatch {
        input: input.name.clone(),
        wanted: input.to_string(),
        given: given.to_owned(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An input as a model declares it: a 0 stands for any size.
    pub(crate) fn value(name: &str, dtype: DataType, dims: &[usize]) -> Value {
        let dim = |&size: &usize| if size == 0 { Dim::Unknown } else { Dim::Fixed(size) };
        Value {
            name: name.to_owned(),
            dtype: Some(dtype),
            dims: Some(dims.iter().map(dim).collect()),
        }
    }

    #[test]
    fn numbers_take_the_type_that_the_input_declares() {
        let ints = |dtype| from_ints(&value("x", dtype, &[0]), &[2], &[0, 7]).unwrap().1;
        assert_eq!(ints(DataType::I32), Tensor::from_slice(&[2], &[0i32, 7]).unwrap());
        assert_eq!(ints(DataType::Bool), Tensor::from_slice(&[2], &[false, true]).unwrap());
        let half = from_floats(&value("x", DataType::F16, &[0]), &[1], &[0.5]).unwrap().1;
        assert_eq!(half, Tensor::from_slice(&[1], &[f16::from_f32(0.5)]).unwrap());
    }

    #[test]
    fn refuses_types_ranks_and_sizes_that_the_input_does_not_take() {
        let message =
            |result: Result<(String, Tensor), InputError>| result.unwrap_err().to_string();
        let string = message(from_ints(&value("x", DataType::String, &[0]), &[1], &[1]));
        assert_eq!(string, "the model's input \"x\" takes string[?], not whole numbers");
        let size = message(from_ints(&value("x", DataType::I64, &[3]), &[1], &[1]));
        assert_eq!(size, "the model's input \"x\" takes i64[3], not i64[1]");
        let rank = message(from_floats(&value("x", DataType::F32, &[0, 0]), &[1], &[1.0]));
        assert_eq!(rank, "the model's input \"x\" takes f32[?, ?], not f32[1]");
        let wide = message(from_ints(&value("x", DataType::I32, &[0]), &[1], &[1 << 40]));
        assert_eq!(wide, "the model's input \"x\" takes i32[?], not ids");
    }
}
