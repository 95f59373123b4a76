//! Operators that choose among elements: slices, gathers and their inverses.

use super::Reason;
use super::elementwise::same_shape;
use super::node::{Node, Shapes, axis, flat, invalid, one, picked, size, with_data};
use super::operator::Work::{Moves, Picks};
use super::operator::{Operator, row};
use super::types::{SAME, Type};
use crate::DataType;

const I64: &[Type] = &[Type::Is(DataType::I64)];

pub(super) const ONNX: &[Operator] = &[
    row("Slice", SAME, slice, Picks),
    row("Gather", SAME, gather, Picks),
    row("GatherElements", SAME, gather_elements, Picks),
    row("GatherND", SAME, gather_nd, Picks),
    row("Compress", SAME, compress, Picks),
    row("ScatterElements", SAME, same_shape, Moves),
    row("ScatterND", SAME, same_shape, Moves),
    row("Scatter", SAME, same_shape, Moves),
    row("TensorScatter", SAME, same_shape, Moves),
    row("NonZero", I64, non_zero, Moves),
];

fn slice(node: &Node<'_>) -> Shapes {
    let fact = node.input(0)?;
    let rank = fact.dims.len();
    let (starts, ends) = (node.ints(1)?, node.ints(2)?);
    let axes = match node.optional_ints(3)? {
        Some(axes) => axes,
        None => (0..starts.len() as i64).collect(),
    };
    let steps = node.optional_ints(4)?.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return Err(invalid("starts, ends, axes and steps differ in length"));
    }
    let mut dims = fact.dims.clone();
    let mut first = vec![0i128; rank];
    let mut stride = vec![1i128; rank];
    for index in 0..starts.len() {
        let at = axis(axes[index], rank)?;
        let step = i128::from(steps[index]);
        if step == 0 {
            return Err(invalid("a step is 0"));
        }
        let dim = fact.dims[at] as i128;
        let from_end = |value: i64| {
            let value = i128::from(value);
            if value < 0 { value + dim } else { value }
        };
        // Going backwards, the position before the first one is a valid end.
        let (low, high) = if step > 0 { (0, dim) } else { (-1, dim - 1) };
        let start = from_end(starts[index]).clamp(low.max(0), high.max(0));
        let end = from_end(ends[index]).clamp(low, high.max(low));
        let span = if step > 0 { end - start } else { start - end };
        dims[at] = size(if dim == 0 { 0 } else { (span.max(0) + step.abs() - 1) / step.abs() })?;
        first[at] = start;
        stride[at] = step;
    }
    let data = picked(fact, &dims, |position| {
        let from = |index: usize| (first[index] + position[index] as i128 * stride[index]) as usize;
        flat(&(0..rank).map(from).collect::<Vec<_>>(), &fact.dims)
    });
    with_data(dims, data)
}

fn gather(node: &Node<'_>) -> Shapes {
    let (fact, indices) = (node.input(0)?, node.input(1)?);
    let axis = axis(node.attribute_int("axis").unwrap_or(0), fact.dims.len())?;
    let mut dims = fact.dims.clone();
    dims.splice(axis..=axis, indices.dims.iter().copied());
    let along = fact.dims[axis];
    let chosen = indices.data.as_ref().and_then(|data| {
        let position = |value: i64| {
            let position = if value < 0 { value.checked_add(along as i64)? } else { value };
            usize::try_from(position).ok().filter(|&position| position < along)
        };
        data.iter().map(|number| position(number.to_int()?)).collect::<Option<Vec<_>>>()
    });
    let data = chosen.and_then(|chosen| {
        let width = indices.dims.len();
        picked(fact, &dims, |position| {
            let mut source = position[..axis].to_vec();
            let index = flat(&position[axis..axis + width], &indices.dims);
            source.push(chosen.get(index).copied().unwrap_or(0));
            source.extend_from_slice(&position[axis + width..]);
            flat(&source, &fact.dims)
        })
    });
    with_data(dims, data)
}

fn gather_elements(node: &Node<'_>) -> Shapes {
    let (given, indices) = (node.dims(0)?, node.dims(1)?);
    if given.len() != indices.len() {
        return Err(invalid(format!("{indices:?} cannot choose from {given:?}")));
    }
    one(indices.to_vec())
}

fn gather_nd(node: &Node<'_>) -> Shapes {
    let (given, indices) = (node.dims(0)?, node.dims(1)?);
    let batches = node.attribute_int("batch_dims").map_or(Ok(0), size)?;
    let wrong = || invalid(format!("{indices:?} cannot choose from {given:?}"));
    let (&depth, outer) = indices.split_last().ok_or_else(wrong)?;
    let kept = batches.checked_add(depth).and_then(|from| given.get(from..)).ok_or_else(wrong)?;
    one([outer, kept].concat())
}

fn compress(node: &Node<'_>) -> Shapes {
    let given = node.dims(0)?;
    let kept = node.numbers(1)?.iter().filter(|number| number.is_true()).count();
    match node.attribute_int("axis") {
        None => one(vec![kept]),
        Some(along) => {
            let mut dims = given.to_vec();
            dims[axis(along, given.len())?] = kept;
            one(dims)
        }
    }
}

fn non_zero(node: &Node<'_>) -> Shapes {
    let fact = node.input(0)?;
    let value = || Reason::Values(node.proto.input[0].clone());
    let data = fact.data.as_ref().ok_or_else(value)?;
    let count = data.iter().filter(|number| number.is_true()).count();
    // A scalar counts as a vector of one.
    one(vec![fact.dims.len().max(1), count])
}
