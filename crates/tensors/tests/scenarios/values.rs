//! Elements as numbers in JSON, and as bytes.

use half::{bf16, f16};
use holdfast_graph::DataType;
use serde_json::{Value, json};

/// The bytes of these elements; packed types are packed, the first element in the lowest bits.
pub(crate) fn to_bytes(dtype: DataType, values: &[Value]) -> Vec<u8> {
    let bits = dtype.bits().unwrap() as usize;
    if bits < 8 {
        let mut bytes = vec![0u8; (values.len() * bits).div_ceil(8)];
        for (index, value) in values.iter().enumerate() {
            let mask = (1u8 << bits) - 1;
            let element = value.as_i64().unwrap() as u8 & mask;
            bytes[index * bits / 8] |= element << (index * bits % 8);
        }
        return bytes;
    }
    values.iter().flat_map(|value| element_bytes(dtype, value)).collect()
}

fn element_bytes(dtype: DataType, value: &Value) -> Vec<u8> {
    let float = || value.as_f64().unwrap();
    match dtype {
        DataType::F32 => (float() as f32).to_le_bytes().into(),
        DataType::F64 => float().to_le_bytes().into(),
        DataType::F16 => f16::from_f64(float()).to_le_bytes().into(),
        DataType::Bf16 => bf16::from_f64(float()).to_le_bytes().into(),
        DataType::Bool => vec![u8::from(value.as_bool().unwrap())],
        _ => {
            let wide = value.as_i64().map(|n| n as u64).or(value.as_u64()).unwrap();
            wide.to_le_bytes()[..dtype.bits().unwrap() as usize / 8].to_vec()
        }
    }
}

/// The elements of these bytes.
pub(crate) fn from_bytes(dtype: DataType, elements: usize, bytes: &[u8]) -> Vec<Value> {
    let bits = dtype.bits().unwrap() as usize;
    (0..elements).map(|index| element(dtype, bits, index, bytes)).collect()
}

fn element(dtype: DataType, bits: usize, index: usize, bytes: &[u8]) -> Value {
    let mut wide = [0u8; 8];
    if bits < 8 {
        wide[0] = bytes[index * bits / 8] >> (index * bits % 8) & ((1 << bits) - 1);
    } else {
        let width = bits / 8;
        wide[..width].copy_from_slice(&bytes[index * width..(index + 1) * width]);
    }
    let raw = u64::from_le_bytes(wide);
    let signed = (raw << (64 - bits)) as i64 >> (64 - bits);
    match dtype {
        DataType::F32 => json!(f32::from_bits(raw as u32)),
        DataType::F64 => json!(f64::from_bits(raw)),
        DataType::F16 => json!(f16::from_bits(raw as u16).to_f32()),
        DataType::Bf16 => json!(bf16::from_bits(raw as u16).to_f32()),
        DataType::Bool => json!(raw != 0),
        DataType::I2
        | DataType::I4
        | DataType::I8
        | DataType::I16
        | DataType::I32
        | DataType::I64 => json!(signed),
        _ => json!(raw),
    }
}
