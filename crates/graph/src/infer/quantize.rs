//! Quantisation and its inverse.

use super::Reason;
use super::elementwise::same_shape;
use super::node::{Node, Shapes, axis, invalid, one, product, size};
use super::operator::Work::{Moves, PerInput, PerOutput, Picks};
use super::operator::{Operator, row};
use super::types::{Type, named};
use crate::DataType;

const U8: Type = Type::Is(DataType::U8);

/// The zero point says the type, else `output_dtype`, else it is `u8`.
const QUANTIZED: &[Type] = &[Type::Rule(|node, input| {
    input(2).or_else(|| named(node, "output_dtype")).or(Some(DataType::U8))
})];

const DEQUANTIZED: &[Type] =
    &[Type::Rule(|node, input| named(node, "output_dtype").or_else(|| input(1)))];

pub(super) const ONNX: &[Operator] = &[
    row("QuantizeLinear", QUANTIZED, same_shape, PerOutput(2)),
    row("DequantizeLinear", DEQUANTIZED, same_shape, PerOutput(2)),
    row("DynamicQuantizeLinear", &[U8, Type::Is(DataType::F32), U8], dynamic, PerInput(4)),
];

pub(super) const MICROSOFT: &[Operator] = &[
    row("QuantizeLinear", QUANTIZED, same_shape, PerOutput(2)),
    row("DequantizeLinear", DEQUANTIZED, same_shape, PerOutput(2)),
    row("QLinearConcat", &[Type::Same(1)], concat, Moves),
    row("GatherBlockQuantized", &[Type::Same(2)], gather, Picks),
];

/// The quantised value, its scale and its zero point.
fn dynamic(node: &Node<'_>) -> Shapes {
    Ok(vec![node.dims(0)?.to_vec().into(), vec![].into(), vec![].into()])
}

/// Scale and zero point of the output, then three inputs for each operand.
fn concat(node: &Node<'_>) -> Shapes {
    let mut dims = node.dims(2)?.to_vec();
    let axis = axis(node.attribute_int("axis").unwrap_or(0), dims.len())?;
    for index in (5..node.inputs.len()).step_by(3) {
        let next = node.dims(index)?;
        if next.len() != dims.len() {
            return Err(invalid(format!("{next:?} does not join {dims:?}")));
        }
        dims[axis] = dims[axis].checked_add(next[axis]).ok_or(Reason::TooLarge)?;
    }
    one(dims)
}

/// Rows of a quantised table: several elements are packed into each byte along the last axis.
fn gather(node: &Node<'_>) -> Shapes {
    let (table, indices) = (node.input(0)?, node.dims(1)?);
    let mut dims = table.dims.clone();
    let axis = axis(node.attribute_int("gather_axis").unwrap_or(0), dims.len())?;
    if table.dtype == DataType::U8 {
        let bits = size(node.attribute_int("bits").unwrap_or(4))?;
        let packed = 8usize.checked_div(bits).unwrap_or(1).max(1);
        if let Some(last) = dims.last_mut() {
            *last = product(&[*last, packed])?;
        }
    }
    dims.splice(axis..=axis, indices.iter().copied());
    one(dims)
}
