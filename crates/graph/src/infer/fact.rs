//! What is known of a value: its type, its shape and, where it is small, its contents.
//!
//! Contents matter because exporters compute shapes inside the graph: `Shape`, `Gather` and
//! `Concat` before a `Reshape`. Only small tensors are followed.

use half::{bf16, f16};

use crate::dtype::DataType;
use crate::tensor::Tensor;

/// Contents of more elements than this are not followed.
pub(crate) const MAX_FOLLOWED: usize = 1024;

/// No value has more elements; a model that says so, or sizes that lead there, are absurd.
pub(crate) const MAX_ELEMENTS: usize = 1 << 48;

/// What is known of one value.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// Its element type.
    pub dtype: DataType,
    /// Its dimensions.
    pub dims: Vec<usize>,
    /// Its elements, where they follow from the sizes alone and are few.
    pub data: Option<Vec<Number>>,
}

/// One element whose value is known. Booleans are 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Of an integer type or a boolean.
    Int(i64),
    /// Of a floating-point type, exact for all of them.
    Float(f64),
}

impl Fact {
    /// A value of which the contents are not known.
    pub fn new(dtype: DataType, dims: &[usize]) -> Fact {
        Fact { dtype, dims: dims.to_vec(), data: None }
    }

    /// What is known of a tensor at hand.
    pub(crate) fn of_tensor(tensor: &Tensor) -> Fact {
        let small = tensor.elements() <= MAX_FOLLOWED;
        let data = if small { numbers(tensor) } else { None };
        Fact { dtype: tensor.dtype(), dims: tensor.dims().to_vec(), data }
    }

    /// How many elements it has.
    pub fn elements(&self) -> u64 {
        self.dims.iter().fold(1, |product, &dim| product.saturating_mul(dim as u64))
    }

    /// How many bytes it takes; 0 for strings, which have no fixed size.
    pub fn byte_len(&self) -> u64 {
        self.dtype.byte_len(self.elements()).unwrap_or(0)
    }
}

impl Number {
    /// The number as an element of this type: rounded, truncated or made a boolean.
    /// `None` where it does not fit or the type cannot be followed.
    pub(crate) fn fit(self, dtype: DataType) -> Option<Number> {
        use DataType::*;
        let in_range = |low: i64, high: i64| {
            let value = self.to_int()?;
            (low..=high).contains(&value).then_some(Number::Int(value))
        };
        match dtype {
            F64 => Some(Number::Float(self.to_float())),
            F32 => Some(Number::Float(f64::from(self.to_float() as f32))),
            F16 => Some(Number::Float(f16::from_f64(self.to_float()).to_f64())),
            Bf16 => Some(Number::Float(bf16::from_f64(self.to_float()).to_f64())),
            Bool => Some(Number::Int(i64::from(self.to_float() != 0.0))),
            I64 => in_range(i64::MIN, i64::MAX),
            I32 => in_range(i64::from(i32::MIN), i64::from(i32::MAX)),
            I16 => in_range(i64::from(i16::MIN), i64::from(i16::MAX)),
            I8 => in_range(i64::from(i8::MIN), i64::from(i8::MAX)),
            U64 => in_range(0, i64::MAX),
            U32 => in_range(0, i64::from(u32::MAX)),
            U16 => in_range(0, i64::from(u16::MAX)),
            U8 => in_range(0, i64::from(u8::MAX)),
            _ => None,
        }
    }

    /// Truncated towards zero; `None` beyond the range of 64 bits.
    pub(crate) fn to_int(self) -> Option<i64> {
        match self {
            Number::Int(value) => Some(value),
            Number::Float(value) if value.is_finite() && value.abs() < i64::MAX as f64 => {
                Some(value as i64)
            }
            Number::Float(_) => None,
        }
    }

    pub(crate) fn to_float(self) -> f64 {
        match self {
            Number::Int(value) => value as f64,
            Number::Float(value) => value,
        }
    }

    pub(crate) fn is_true(self) -> bool {
        self.to_float() != 0.0
    }
}

fn numbers(tensor: &Tensor) -> Option<Vec<Number>> {
    use DataType::*;
    macro_rules! read {
        ($rust:ty, $make:expr) => {
            tensor.to_vec::<$rust>().ok()?.into_iter().map($make).collect()
        };
    }
    let int = |value: i64| Some(Number::Int(value));
    let float = |value: f64| Some(Number::Float(value));
    match tensor.dtype() {
        F32 => read!(f32, |value| float(f64::from(value))),
        F64 => read!(f64, float),
        F16 => read!(f16, |value| float(value.to_f64())),
        Bf16 => read!(bf16, |value| float(value.to_f64())),
        I64 => read!(i64, int),
        I32 => read!(i32, |value| int(i64::from(value))),
        I16 => read!(i16, |value| int(i64::from(value))),
        I8 => read!(i8, |value| int(i64::from(value))),
        U64 => read!(u64, |value| i64::try_from(value).ok().map(Number::Int)),
        U32 => read!(u32, |value| int(i64::from(value))),
        U16 => read!(u16, |value| int(i64::from(value))),
        U8 => read!(u8, |value| int(i64::from(value))),
        Bool => read!(bool, |value| int(i64::from(value))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_their_type_or_are_not_known() {
        for (number, dtype, expected) in [
            (Number::Float(2.9), DataType::I64, Some(Number::Int(2))),
            (Number::Float(-2.9), DataType::I32, Some(Number::Int(-2))),
            (Number::Int(3), DataType::F32, Some(Number::Float(3.0))),
            (Number::Float(0.1), DataType::F32, Some(Number::Float(f64::from(0.1f32)))),
            (Number::Int(-7), DataType::Bool, Some(Number::Int(1))),
            (Number::Int(256), DataType::U8, None),
            (Number::Int(-1), DataType::U64, None),
            (Number::Float(1e300), DataType::I64, None),
            (Number::Float(f64::NAN), DataType::I64, None),
            (Number::Int(1), DataType::I4, None),
        ] {
            assert_eq!(number.fit(dtype), expected, "{number:?} as {dtype}");
        }
    }

    #[test]
    fn contents_of_large_tensors_are_not_followed() {
        let small = Tensor::from_slice(&[2], &[1i64, -1]).unwrap();
        assert_eq!(Fact::of_tensor(&small).data, Some(vec![Number::Int(1), Number::Int(-1)]));
        let large = Tensor::zeros(DataType::F32, &[MAX_FOLLOWED + 1]).unwrap();
        assert_eq!(Fact::of_tensor(&large).data, None);
    }
}
