//! Dense tensors on the host: element type, dimensions, little-endian bytes.

use bytes::Bytes;
use half::{bf16, f16};

use crate::dtype::DataType;
use crate::proto::{DataLocation, TensorProto};

/// A tensor in memory. Its bytes always fit its type and dimensions; cloning shares them.
///
/// ```
/// use holdfast_graph::{DataType, Tensor};
/// let tensor = Tensor::from_slice(&[2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
/// assert_eq!(tensor.dtype(), DataType::F32);
/// assert_eq!(tensor.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
/// # Ok::<(), holdfast_graph::TensorError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    dtype: DataType,
    dims: Vec<usize>,
    bytes: Bytes,
}

/// Why a tensor cannot exist or cannot be read as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum TensorError {
    #[error("element type number {0} is not one of the ONNX format")]
    UnknownType(i32),
    #[error("dimension {0} is negative")]
    NegativeDimension(i64),
    #[error("dimensions {0:?} have more elements than memory can hold")]
    TooManyElements(Vec<i64>),
    #[error("{dtype}{dims:?} takes {expected} bytes, but {found} are there")]
    WrongLength { dtype: DataType, dims: Vec<usize>, expected: u64, found: u64 },
    #[error("tensors of {0} have no fixed size and cannot be handled as bytes")]
    NoFixedSize(DataType),
    #[error("the tensor holds {found}, not {asked}")]
    WrongType { found: DataType, asked: DataType },
    #[error("the data field for {dtype} has {found} values for {expected} elements")]
    WrongValueCount { dtype: DataType, expected: u64, found: u64 },
    #[error("the tensor's bytes are in a file that was not attached")]
    NotAttached,
    #[error("split tensors (`segment`) are not supported")]
    Segmented,
}

impl Tensor {
    /// A tensor over these bytes, which are shared, not copied.
    pub fn new(dtype: DataType, dims: Vec<usize>, bytes: Bytes) -> Result<Tensor, TensorError> {
        let elements = element_count(&dims)?;
        let expected = dtype
            .bits()
            .ok_or(TensorError::NoFixedSize(dtype))
            .and_then(|_| dtype.byte_len(elements).ok_or_else(|| too_many(&dims)))?;
        let found = bytes.len() as u64;
        if expected != found {
            return Err(TensorError::WrongLength { dtype, dims, expected, found });
        }
        Ok(Tensor { dtype, dims, bytes })
    }

    /// A tensor holding a copy of these values.
    pub fn from_slice<T: Element>(dims: &[usize], values: &[T]) -> Result<Tensor, TensorError> {
        let mut bytes = Vec::with_capacity(std::mem::size_of_val(values));
        for value in values {
            value.append_le(&mut bytes);
        }
        Tensor::new(T::DTYPE, dims.to_vec(), bytes.into())
    }

    /// A tensor of zero bytes; for bool that is `false`.
    pub fn zeros(dtype: DataType, dims: &[usize]) -> Result<Tensor, TensorError> {
        let elements = element_count(dims)?;
        let len = dtype.byte_len(elements).ok_or(TensorError::NoFixedSize(dtype))?;
        let len = usize::try_from(len).map_err(|_| too_many(dims))?;
        Tensor::new(dtype, dims.to_vec(), vec![0; len].into())
    }

    /// Reads the format's tensor. Raw bytes are shared; the typed data fields that some
    /// exporters use for small tensors are converted.
    pub fn from_proto(proto: &TensorProto) -> Result<Tensor, TensorError> {
        if proto.segment.is_some() {
            return Err(TensorError::Segmented);
        }
        if proto.data_location == DataLocation::External as i32 {
            return Err(TensorError::NotAttached);
        }
        let dtype = DataType::from_onnx(proto.data_type)
            .ok_or(TensorError::UnknownType(proto.data_type))?;
        let dims = checked_dims(&proto.dims)?;
        let bytes = match &proto.raw_data {
            Some(raw) => raw.clone(),
            None => typed_bytes(proto, dtype, element_count(&dims)?)?,
        };
        Tensor::new(dtype, dims, bytes)
    }

    /// The tensor as the format writes it, sharing the bytes.
    pub fn to_proto(&self, name: &str) -> TensorProto {
        TensorProto {
            name: name.to_owned(),
            dims: self.dims.iter().map(|&dim| dim as i64).collect(),
            data_type: self.dtype.to_onnx(),
            raw_data: Some(self.bytes.clone()),
            ..TensorProto::default()
        }
    }

    /// The element type.
    pub fn dtype(&self) -> DataType {
        self.dtype
    }

    /// The dimensions; empty for a scalar.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The elements' bytes, little-endian, row by row.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The same, without the tensor.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// How many elements there are.
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// The same elements under other dimensions.
    pub fn reshaped(&self, dims: &[usize]) -> Result<Tensor, TensorError> {
        Tensor::new(self.dtype, dims.to_vec(), self.bytes.clone())
    }

    /// The same integers as another integer type, cut off as the operator `Cast` does.
    pub fn cast_integers(&self, to: DataType) -> Result<Tensor, TensorError> {
        let wrong = |found| TensorError::WrongType { found, asked: to };
        let width = |dtype| integer_bytes(dtype).ok_or_else(|| wrong(self.dtype));
        let (from_bytes, to_bytes) = (width(self.dtype)?, width(to)?);
        if to == self.dtype {
            return Ok(self.clone());
        }
        use DataType::{I8, I16, I32, I64};
        let signed = matches!(self.dtype, I8 | I16 | I32 | I64);
        let mut bytes = Vec::with_capacity(self.elements() * to_bytes);
        for element in self.bytes.chunks_exact(from_bytes) {
            let negative = signed && element.last().is_some_and(|byte| byte & 0x80 != 0);
            let mut wide = [if negative { 0xff } else { 0 }; 8];
            wide[..from_bytes].copy_from_slice(element);
            bytes.extend_from_slice(&wide[..to_bytes]);
        }
        Tensor::new(to, self.dims.clone(), bytes.into())
    }

    /// A copy of the elements.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, TensorError> {
        if self.dtype != T::DTYPE {
            return Err(TensorError::WrongType { found: self.dtype, asked: T::DTYPE });
        }
        Ok(self.bytes.chunks_exact(size_of::<T>()).map(T::from_le).collect())
    }
}

/// Rust types that are tensor elements.
pub trait Element: Copy {
    /// The element type that this Rust type stands for.
    const DTYPE: DataType;
    /// Reads one element from exactly its bytes.
    fn from_le(bytes: &[u8]) -> Self;
    /// Appends the element's bytes.
    fn append_le(self, bytes: &mut Vec<u8>);
}

macro_rules! element {
    ($($rust:ty => $dtype:ident),* $(,)?) => {$(
        impl Element for $rust {
            const DTYPE: DataType = DataType::$dtype;
            fn from_le(bytes: &[u8]) -> Self {
                let mut array = [0; size_of::<$rust>()];
                array.copy_from_slice(bytes);
                <$rust>::from_le_bytes(array)
            }
            fn append_le(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

element! {
    f32 => F32, f64 => F64, f16 => F16, bf16 => Bf16,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
}

impl Element for bool {
    const DTYPE: DataType = DataType::Bool;
    fn from_le(bytes: &[u8]) -> Self {
        bytes[0] != 0
    }
    fn append_le(self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self));
    }
}

/// The size of an integer type.
fn integer_bytes(dtype: DataType) -> Option<usize> {
    use DataType::{I8, I16, I32, I64, U8, U16, U32, U64};
    Some(match dtype {
        I8 | U8 => 1,
        I16 | U16 => 2,
        I32 | U32 => 4,
        I64 | U64 => 8,
        _ => return None,
    })
}

/// The format's signed dimensions as sizes, with a bound on their product.
pub(crate) fn checked_dims(dims: &[i64]) -> Result<Vec<usize>, TensorError> {
    let sizes = dims
        .iter()
        .map(|&dim| usize::try_from(dim).map_err(|_| TensorError::NegativeDimension(dim)))
        .collect::<Result<Vec<_>, _>>()?;
    element_count(&sizes)?;
    Ok(sizes)
}

fn element_count(dims: &[usize]) -> Result<u64, TensorError> {
    // Zeros are skipped so that an overflow cannot hide behind one: [2^40, 2^40, 0].
    let product = dims
        .iter()
        .filter(|&&dim| dim != 0)
        .try_fold(1u64, |product, &dim| product.checked_mul(dim as u64))
        .filter(|&product| product <= i64::MAX as u64)
        .ok_or_else(|| too_many(dims))?;
    Ok(if dims.contains(&0) { 0 } else { product })
}

fn too_many(dims: &[usize]) -> TensorError {
    TensorError::TooManyElements(dims.iter().map(|&dim| dim as i64).collect())
}

/// Bytes from the typed data fields. Their lengths are checked before anything is allocated.
fn typed_bytes(proto: &TensorProto, dtype: DataType, elements: u64) -> Result<Bytes, TensorError> {
    use DataType::*;
    let expect = |found: usize, per_element: u64| {
        let expected = elements.saturating_mul(per_element);
        if found as u64 == expected {
            Ok(())
        } else {
            Err(TensorError::WrongValueCount { dtype, expected, found: found as u64 })
        }
    };
    let packed_values = dtype.byte_len(elements).ok_or(TensorError::NoFixedSize(dtype))?;
    let mut bytes = Vec::new();
    match dtype {
        String => return Err(TensorError::NoFixedSize(dtype)),
        F32 | Complex64 => {
            expect(proto.float_data.len(), if dtype == F32 { 1 } else { 2 })?;
            proto.float_data.iter().for_each(|value| value.append_le(&mut bytes));
        }
        F64 | Complex128 => {
            expect(proto.double_data.len(), if dtype == F64 { 1 } else { 2 })?;
            proto.double_data.iter().for_each(|value| value.append_le(&mut bytes));
        }
        I64 => {
            expect(proto.int64_data.len(), 1)?;
            proto.int64_data.iter().for_each(|value| value.append_le(&mut bytes));
        }
        U64 => {
            expect(proto.uint64_data.len(), 1)?;
            proto.uint64_data.iter().for_each(|value| value.append_le(&mut bytes));
        }
        U32 => {
            expect(proto.uint64_data.len(), 1)?;
            proto.uint64_data.iter().for_each(|&value| (value as u32).append_le(&mut bytes));
        }
        I32 => {
            expect(proto.int32_data.len(), 1)?;
            proto.int32_data.iter().for_each(|value| value.append_le(&mut bytes));
        }
        U16 | I16 | F16 | Bf16 => {
            expect(proto.int32_data.len(), 1)?;
            proto.int32_data.iter().for_each(|&value| (value as u16).append_le(&mut bytes));
        }
        U8 | I8 | Bool | F8E4M3Fn | F8E4M3FnUz | F8E5M2 | F8E5M2FnUz | F8E8M0 | U4 | I4
        | F4E2M1 | U2 | I2 => {
            if proto.int32_data.len() as u64 != packed_values {
                let found = proto.int32_data.len() as u64;
                return Err(TensorError::WrongValueCount { dtype, expected: packed_values, found });
            }
            bytes.extend(proto.int32_data.iter().map(|&value| value as u8));
        }
    }
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_fields_and_raw_bytes_give_the_same_tensor() {
        let typed = TensorProto {
            dims: vec![3],
            data_type: DataType::F16.to_onnx(),
            int32_data: vec![0x3c00, 0x4000, 0xbc00],
            ..TensorProto::default()
        };
        let values = [1.0, 2.0, -1.0].map(f16::from_f32);
        assert_eq!(Tensor::from_proto(&typed), Tensor::from_slice(&[3], &values));
    }

    #[test]
    fn refuses_bytes_that_do_not_fit() {
        let error = Tensor::new(DataType::I64, vec![2], Bytes::from_static(&[0; 15])).unwrap_err();
        assert_eq!(error.to_string(), "i64[2] takes 16 bytes, but 15 are there");
    }

    #[test]
    fn refuses_absurd_dimensions_even_next_to_a_zero() {
        for dims in [vec![1i64 << 62, 4], vec![1 << 40, 1 << 40, 0], vec![-3]] {
            let proto = TensorProto { dims, data_type: 1, ..TensorProto::default() };
            assert!(Tensor::from_proto(&proto).is_err());
        }
    }
}
