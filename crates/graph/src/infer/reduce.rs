//! Operators that make several elements into one, or rank them.

use super::Reason;
use super::elementwise::same_shape;
use super::fact::Number;
use super::node::{
    Node, Shape, Shapes, axis, distinct_axes, flat, for_each_position, one, product, size,
    with_data,
};
use super::operator::Work::PerInput;
use super::operator::{Operator, row};
use super::types::{SAME, Type};
use crate::DataType;

const I64: &[Type] = &[Type::Is(DataType::I64)];
const RANKED: &[Type] = &[Type::Same(0), Type::Is(DataType::I64)];

pub(super) const ONNX: &[Operator] = &[
    row("ReduceSum", SAME, reduce, PerInput(1)),
    row("ReduceMean", SAME, reduce, PerInput(1)),
    row("ReduceMax", SAME, reduce, PerInput(1)),
    row("ReduceMin", SAME, reduce, PerInput(1)),
    row("ReduceProd", SAME, reduce, PerInput(1)),
    row("ReduceL1", SAME, reduce, PerInput(2)),
    row("ReduceL2", SAME, reduce, PerInput(2)),
    row("ReduceSumSquare", SAME, reduce, PerInput(2)),
    row("ReduceLogSum", SAME, reduce, PerInput(1)),
    row("ReduceLogSumExp", SAME, reduce, PerInput(2)),
    row("ArgMax", I64, arg, PerInput(1)),
    row("ArgMin", I64, arg, PerInput(1)),
    row("TopK", RANKED, top, PerInput(1)),
    row("CumSum", SAME, same_shape, PerInput(1)),
    row("CumProd", SAME, same_shape, PerInput(1)),
];

fn reduce(node: &Node<'_>) -> Shapes {
    let fact = node.input(0)?;
    let rank = fact.dims.len();
    let axes = node.axes(1)?.unwrap_or_default();
    let reduced: Vec<usize> = match axes.as_slice() {
        [] if node.flag("noop_with_empty_axes") => vec![],
        [] => (0..rank).collect(),
        axes => distinct_axes(axes, rank)?,
    };
    let keep = node.attribute_int("keepdims").unwrap_or(1) != 0;
    let kept: Vec<usize> =
        (0..rank).map(|axis| if reduced.contains(&axis) { 1 } else { fact.dims[axis] }).collect();
    let data = contents(node, &kept);
    let dims = (0..rank).filter(|axis| keep || !reduced.contains(axis)).map(|axis| kept[axis]);
    with_data(dims.collect(), data)
}

/// The contents of a reduction to `kept`, in which reduced dimensions are 1.
fn contents(node: &Node<'_>, kept: &[usize]) -> Option<Vec<Number>> {
    let fact = node.input(0).ok()?;
    let data = fact.data.as_ref()?;
    let mut groups: Vec<Vec<Number>> = vec![Vec::new(); product(kept).ok()?];
    for_each_position(&fact.dims, |position| {
        let target: Vec<usize> =
            position.iter().zip(kept).map(|(&at, &dim)| if dim == 1 { 0 } else { at }).collect();
        let found = data.get(flat(position, &fact.dims));
        if let (Some(group), Some(number)) = (groups.get_mut(flat(&target, kept)), found) {
            group.push(*number);
        }
    })?;
    groups.iter().map(|group| combine(node.operator(), group)).collect()
}

fn combine(operator: &str, group: &[Number]) -> Option<Number> {
    let ints = || {
        let int = |number: &Number| match number {
            Number::Int(value) => Some(*value),
            Number::Float(_) => None,
        };
        group.iter().map(int).collect::<Option<Vec<i64>>>()
    };
    if let Some(ints) = ints() {
        let mut ints = ints.into_iter();
        return match operator {
            "ReduceSum" => ints.try_fold(0i64, i64::checked_add).map(Number::Int),
            "ReduceProd" => ints.try_fold(1i64, i64::checked_mul).map(Number::Int),
            "ReduceMax" => ints.max().map(Number::Int),
            "ReduceMin" => ints.min().map(Number::Int),
            _ => None,
        };
    }
    // Sums of floats depend on the order in which a runtime adds them, so they are not followed.
    let floats = group.iter().map(|number| number.to_float());
    match operator {
        "ReduceMax" => floats.reduce(f64::max).map(Number::Float),
        "ReduceMin" => floats.reduce(f64::min).map(Number::Float),
        _ => None,
    }
}

fn arg(node: &Node<'_>) -> Shapes {
    let mut dims = node.dims(0)?.to_vec();
    let axis = axis(node.attribute_int("axis").unwrap_or(0), dims.len())?;
    if node.attribute_int("keepdims").unwrap_or(1) != 0 {
        dims[axis] = 1;
    } else {
        dims.remove(axis);
    }
    one(dims)
}

fn top(node: &Node<'_>) -> Shapes {
    let mut dims = node.dims(0)?.to_vec();
    let axis = axis(node.attribute_int("axis").unwrap_or(-1), dims.len())?;
    let count = size(node.int(1)?)?;
    if count > dims[axis] {
        let problem = format!("the top {count} of {} cannot be had", dims[axis]);
        return Err(Reason::Invalid(problem));
    }
    dims[axis] = count;
    Ok(vec![dims.clone().into(), Shape::from(dims)])
}
