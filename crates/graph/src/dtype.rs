//! Element types of tensors.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The element type of a tensor: the ones of the ONNX format, by its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
#[repr(i32)]
#[expect(missing_docs, reason = "each variant is the type of its name")]
pub enum DataType {
    F32 = 1,
    U8 = 2,
    I8 = 3,
    U16 = 4,
    I16 = 5,
    I32 = 6,
    I64 = 7,
    String = 8,
    Bool = 9,
    F16 = 10,
    F64 = 11,
    U32 = 12,
    U64 = 13,
    Complex64 = 14,
    Complex128 = 15,
    Bf16 = 16,
    F8E4M3Fn = 17,
    F8E4M3FnUz = 18,
    F8E5M2 = 19,
    F8E5M2FnUz = 20,
    U4 = 21,
    I4 = 22,
    F4E2M1 = 23,
    F8E8M0 = 24,
    U2 = 25,
    I2 = 26,
}

impl DataType {
    /// Every type, in the order of the format's numbers.
    pub const ALL: [DataType; 26] = {
        use DataType::*;
        [
            F32, U8, I8, U16, I16, I32, I64, String, Bool, F16, F64, U32, U64, Complex64,
            Complex128, Bf16, F8E4M3Fn, F8E4M3FnUz, F8E5M2, F8E5M2FnUz, U4, I4, F4E2M1, F8E8M0, U2,
            I2,
        ]
    };

    /// The type with this number in the ONNX format.
    pub fn from_onnx(number: i32) -> Option<DataType> {
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        DataType::ALL.get(index).copied()
    }

    /// The number of this type in the ONNX format.
    pub fn to_onnx(self) -> i32 {
        self as i32
    }

    /// Bits of one element; `None` for strings, which have no fixed size.
    pub fn bits(self) -> Option<u64> {
        use DataType::*;
        Some(match self {
            String => return None,
            U2 | I2 => 2,
            U4 | I4 | F4E2M1 => 4,
            U8 | I8 | Bool | F8E4M3Fn | F8E4M3FnUz | F8E5M2 | F8E5M2FnUz | F8E8M0 => 8,
            U16 | I16 | F16 | Bf16 => 16,
            F32 | I32 | U32 => 32,
            F64 | I64 | U64 | Complex64 => 64,
            Complex128 => 128,
        })
    }

    /// Bytes that `elements` elements take, sub-byte types packed; `None` for strings or on overflow.
    pub fn byte_len(self, elements: u64) -> Option<u64> {
        Some(self.bits()?.checked_mul(elements)?.div_ceil(8))
    }

    /// The short name that Holdfast prints, such as `f32`.
    pub fn name(self) -> &'static str {
        use DataType::*;
        match self {
            F32 => "f32",
            U8 => "u8",
            I8 => "i8",
            U16 => "u16",
            I16 => "i16",
            I32 => "i32",
            I64 => "i64",
            String => "string",
            Bool => "bool",
            F16 => "f16",
            F64 => "f64",
            U32 => "u32",
            U64 => "u64",
            Complex64 => "c64",
            Complex128 => "c128",
            Bf16 => "bf16",
            F8E4M3Fn => "f8e4m3fn",
            F8E4M3FnUz => "f8e4m3fnuz",
            F8E5M2 => "f8e5m2",
            F8E5M2FnUz => "f8e5m2fnuz",
            U4 => "u4",
            I4 => "i4",
            F4E2M1 => "f4e2m1",
            F8E8M0 => "f8e8m0",
            U2 => "u2",
            I2 => "i2",
        }
    }

    /// The type that [`name`](DataType::name) gives this name.
    pub fn from_name(name: &str) -> Option<DataType> {
        DataType::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

impl From<DataType> for &'static str {
    fn from(dtype: DataType) -> &'static str {
        dtype.name()
    }
}

impl TryFrom<String> for DataType {
    type Error = String;

    fn try_from(name: String) -> Result<DataType, String> {
        DataType::from_name(&name).ok_or_else(|| format!("there is no element type `{name}`"))
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_round_trip() {
        for dtype in DataType::ALL {
            assert_eq!(DataType::from_onnx(dtype.to_onnx()), Some(dtype));
            assert_eq!(DataType::from_name(dtype.name()), Some(dtype));
        }
        for number in [i32::MIN, -1, 0, 27, i32::MAX] {
            assert_eq!(DataType::from_onnx(number), None);
        }
    }

    #[test]
    fn sub_byte_types_are_packed() {
        assert_eq!(DataType::I4.byte_len(3), Some(2));
        assert_eq!(DataType::F32.byte_len(u64::MAX), None);
        assert_eq!(DataType::String.byte_len(1), None);
    }
}
