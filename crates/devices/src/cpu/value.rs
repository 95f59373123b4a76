//! Between our tensors and ONNX Runtime's values.

#![expect(
    unsafe_code,
    reason = "values over memory of our own are made by the library's C interface"
)]

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use bytes::Bytes;
use holdfast_graph::{DataType, Tensor};
use ort::AsPointer;
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::sys::{ONNXTensorElementDataType, OrtStatusPtr};
use ort::value::{DynValue, TensorElementType, ValueType};

/// An engine value over bytes of ours, which it keeps alive.
pub(crate) struct Borrowed {
    /// Declared first, so that it goes before the bytes.
    value: std::sync::Arc<DynValue>,
    _bytes: Bytes,
}

impl Borrowed {
    /// The value. It must not outlive this.
    pub(crate) fn value(&self) -> &std::sync::Arc<DynValue> {
        &self.value
    }
}

/// Makes a value of a tensor without copying its bytes, unless they are not aligned.
pub(crate) fn borrow(tensor: &Tensor) -> ort::Result<Borrowed> {
    let element_bytes = (tensor.dtype().bits().unwrap_or(8) as usize / 8).clamp(1, 8);
    let aligned = tensor.bytes().as_ptr().align_offset(element_bytes) == 0;
    let bytes = if aligned { tensor.bytes().clone() } else { aligned_copy(tensor.bytes()) };
    let dims: Vec<i64> = tensor.dims().iter().map(|&dim| dim as i64).collect();
    let info =
        MemoryInfo::new(AllocationDevice::CPU, 0, AllocatorType::Device, MemoryType::Default)?;
    let mut value = ptr::null_mut();
    // SAFETY: the pointers are valid for the call and the data for as long as the value, since
    // the two are kept together. The engine takes a mutable pointer for inputs, weights and
    // outputs alike, and does not write to inputs and weights.
    let value = unsafe {
        check((ort::api().CreateTensorWithDataAsOrtValue)(
            info.ptr(),
            bytes.as_ptr().cast_mut().cast::<c_void>(),
            bytes.len(),
            dims.as_ptr(),
            dims.len(),
            element_type(tensor.dtype())?,
            &mut value,
        ))?;
        let value = NonNull::new(value).ok_or_else(|| ort::Error::new("no value was made"))?;
        DynValue::from_ptr(value, Some(&Allocator::default()))
    };
    Ok(Borrowed { value: value.into(), _bytes: bytes })
}

/// Copies a value out of the engine.
pub(crate) fn to_tensor(value: &DynValue) -> ort::Result<Tensor> {
    let ValueType::Tensor { ty, shape, .. } = value.dtype() else {
        let kind = value.dtype();
        return Err(ort::Error::new(format!("the value is {kind}, not a tensor")));
    };
    let unsupported = || ort::Error::new(format!("tensors of {ty:?} cannot be returned"));
    let dtype = data_type(*ty).ok_or_else(unsupported)?;
    let dims: Vec<usize> = shape.iter().map(|&dim| dim as usize).collect();
    let elements = dims.iter().product::<usize>() as u64;
    let len = dtype.byte_len(elements).ok_or_else(unsupported)? as usize;
    let bytes = if len == 0 {
        Bytes::new()
    } else {
        let mut data = ptr::null_mut();
        // SAFETY: the value is a tensor of this type and shape, so the engine's buffer has
        // `len` bytes; they are copied before the value can go.
        unsafe {
            check((ort::api().GetTensorMutableData)(value.ptr().cast_mut(), &mut data))?;
            Bytes::copy_from_slice(std::slice::from_raw_parts(data.cast::<u8>(), len))
        }
    };
    Tensor::new(dtype, dims, bytes).map_err(|error| ort::Error::new(error.to_string()))
}

/// The element type and dimensions of a value; `None` for what is no tensor of a type we know.
pub(crate) fn shape(value: &DynValue) -> Option<(DataType, Vec<usize>)> {
    let ValueType::Tensor { ty, shape, .. } = value.dtype() else { return None };
    Some((data_type(*ty)?, shape.iter().map(|&dim| dim as usize).collect()))
}

/// Turns the library's status into a result.
pub(crate) fn check(status: OrtStatusPtr) -> ort::Result<()> {
    // SAFETY: the status came from the library and is not used again.
    unsafe { ort::Error::<()>::result_from_status(status) }
}

fn aligned_copy(bytes: &Bytes) -> Bytes {
    // Eight-byte words, because the global allocator aligns only as far as it is asked.
    let mut words = vec![0u64; bytes.len().div_ceil(8)];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut padded = [0; 8];
        padded[..chunk.len()].copy_from_slice(chunk);
        *word = u64::from_ne_bytes(padded);
    }
    struct Words(Vec<u64>);
    impl AsRef<[u8]> for Words {
        fn as_ref(&self) -> &[u8] {
            // SAFETY: the words are initialised, and bytes have no alignment.
            unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * 8) }
        }
    }
    Bytes::from_owner(Words(words)).slice(..bytes.len())
}

/// Whether there are values of a type.
pub(crate) fn has_values_of(dtype: DataType) -> bool {
    element_type(dtype).is_ok()
}

fn element_type(dtype: DataType) -> ort::Result<ONNXTensorElementDataType> {
    use ONNXTensorElementDataType as Element;
    Ok(match dtype {
        DataType::F32 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
        DataType::U8 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
        DataType::I8 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
        DataType::U16 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,
        DataType::I16 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,
        DataType::I32 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
        DataType::I64 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
        DataType::Bool => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
        DataType::F16 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
        DataType::F64 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,
        DataType::U32 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32,
        DataType::U64 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
        DataType::Bf16 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16,
        DataType::U4 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT4,
        DataType::I4 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT4,
        other => return Err(ort::Error::new(format!("the engine has no tensors of {other}"))),
    })
}

/// Our name for the engine's element type.
pub(crate) fn data_type(element: TensorElementType) -> Option<DataType> {
    Some(match element {
        TensorElementType::Float32 => DataType::F32,
        TensorElementType::Uint8 => DataType::U8,
        TensorElementType::Int8 => DataType::I8,
        TensorElementType::Uint16 => DataType::U16,
        TensorElementType::Int16 => DataType::I16,
        TensorElementType::Int32 => DataType::I32,
        TensorElementType::Int64 => DataType::I64,
        TensorElementType::Bool => DataType::Bool,
        TensorElementType::Float16 => DataType::F16,
        TensorElementType::Float64 => DataType::F64,
        TensorElementType::Uint32 => DataType::U32,
        TensorElementType::Uint64 => DataType::U64,
        TensorElementType::Bfloat16 => DataType::Bf16,
        TensorElementType::Uint4 => DataType::U4,
        TensorElementType::Int4 => DataType::I4,
        _ => return None,
    })
}
