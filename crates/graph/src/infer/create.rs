//! Operators that make values from shapes and constants.

use super::elementwise::same_shape;
use super::fact::{Fact, MAX_FOLLOWED, Number};
use super::node::{Node, Shapes, invalid, one, product, size, with_data};
use super::operator::Work::{Free, Moves, PerOutput};
use super::operator::{Operator, row};
use super::types::{NAMED_OR_F32, NAMED_OR_SAME, OF_CONSTANT, SAME, Type};
use crate::DataType;
use crate::weights::constant as constant_tensor;

const I64: &[Type] = &[Type::Is(DataType::I64)];

pub(super) const ONNX: &[Operator] = &[
    row("Constant", OF_CONSTANT, constant, Free),
    row("ConstantOfShape", OF_FILL, constant_of_shape, Moves),
    row("Shape", I64, shape, Free),
    row("Size", I64, element_count, Free),
    row("Range", SAME, range, PerOutput(1)),
    row("EyeLike", NAMED_OR_SAME, same_shape, Moves),
    row("OneHot", &[Type::Same(2)], one_hot, Moves),
    row("RandomNormal", NAMED_OR_F32, of_attribute, PerOutput(1)),
    row("RandomUniform", NAMED_OR_F32, of_attribute, PerOutput(1)),
    row("RandomNormalLike", NAMED_OR_SAME, same_shape, PerOutput(1)),
    row("RandomUniformLike", NAMED_OR_SAME, same_shape, PerOutput(1)),
    row("Bernoulli", NAMED_OR_SAME, same_shape, PerOutput(1)),
    row("Multinomial", OF_SAMPLE, multinomial, PerOutput(1)),
];

const OF_FILL: &[Type] = &[Type::Rule(|node, _| {
    let value = node.attribute.iter().find(|attribute| attribute.name == "value");
    match value.and_then(|attribute| attribute.t.as_deref()) {
        Some(tensor) => DataType::from_onnx(tensor.data_type),
        None => Some(DataType::F32),
    }
})];

const OF_SAMPLE: &[Type] =
    &[Type::Rule(|node, _| super::types::named(node, "dtype").or(Some(DataType::I32)))];

fn constant(node: &Node<'_>) -> Shapes {
    if let Some(tensor) = constant_tensor(node.proto) {
        let fact = Fact::of_tensor(&tensor);
        return with_data(fact.dims, fact.data);
    }
    // Strings and sparse values have a shape, but no bytes to look at.
    let attribute = node.proto.attribute.first().ok_or_else(|| invalid("it holds nothing"))?;
    let dims = match attribute.name.as_str() {
        "value_string" => vec![],
        "value_strings" => vec![attribute.strings.len()],
        _ => {
            let tensor = attribute.t.as_deref().map(|tensor| &tensor.dims);
            let sparse = attribute.sparse_tensor.as_deref().map(|sparse| &sparse.dims);
            let dims = tensor.or(sparse).ok_or_else(|| invalid("it holds nothing known"))?;
            dims.iter().map(|&dim| size(dim)).collect::<Result<_, _>>()?
        }
    };
    one(dims)
}

fn constant_of_shape(node: &Node<'_>) -> Shapes {
    let dims = node.ints(0)?.into_iter().map(size).collect::<Result<Vec<_>, _>>()?;
    let value = match node.attribute_tensor("value") {
        Some(tensor) => Fact::of_tensor(&tensor).data.and_then(|data| data.first().copied()),
        None => Some(Number::Float(0.0)),
    };
    let count = product(&dims)?;
    let data = value.filter(|_| count <= MAX_FOLLOWED).map(|value| vec![value; count]);
    with_data(dims, data)
}

fn shape(node: &Node<'_>) -> Shapes {
    let dims = node.dims(0)?;
    let rank = dims.len() as i64;
    let position = |value: i64| {
        let value = if value < 0 { value.saturating_add(rank) } else { value };
        value.clamp(0, rank) as usize
    };
    let start = position(node.attribute_int("start").unwrap_or(0));
    let end = position(node.attribute_int("end").unwrap_or(rank));
    let chosen = dims.get(start..end.max(start)).unwrap_or_default();
    let data = chosen.iter().map(|&dim| Number::Int(dim as i64)).collect();
    with_data(vec![chosen.len()], Some(data))
}

fn element_count(node: &Node<'_>) -> Shapes {
    let count = product(node.dims(0)?)?;
    with_data(vec![], Some(vec![Number::Int(count as i64)]))
}

fn range(node: &Node<'_>) -> Shapes {
    let number = |index| {
        let numbers = node.numbers(index)?;
        numbers.first().copied().ok_or_else(|| invalid(format!("input {index} is empty")))
    };
    let (start, limit, step) = (number(0)?, number(1)?, number(2)?);
    let count = match (start, limit, step) {
        (Number::Int(start), Number::Int(limit), Number::Int(step)) if step != 0 => {
            let (span, step) = (i128::from(limit) - i128::from(start), i128::from(step));
            let span = if step > 0 { span } else { -span };
            (span.max(0) + step.abs() - 1) / step.abs()
        }
        _ => {
            let count = (limit.to_float() - start.to_float()) / step.to_float();
            if !count.is_finite() {
                return Err(invalid("the range does not end"));
            }
            count.ceil().max(0.0) as i128
        }
    };
    let count = size(count)?;
    let at = |index: usize| match (start, step) {
        (Number::Int(start), Number::Int(step)) => {
            Some(Number::Int(start.checked_add(step.checked_mul(index as i64)?)?))
        }
        _ => Some(Number::Float(start.to_float() + step.to_float() * index as f64)),
    };
    let data = (count <= MAX_FOLLOWED).then(|| (0..count).map(at).collect()).flatten();
    with_data(vec![count], data)
}

fn one_hot(node: &Node<'_>) -> Shapes {
    let mut dims = node.dims(0)?.to_vec();
    let depth = size(node.int(1)?)?;
    let axis = super::node::axis(node.attribute_int("axis").unwrap_or(-1), dims.len() + 1)?;
    dims.insert(axis, depth);
    one(dims)
}

fn of_attribute(node: &Node<'_>) -> Shapes {
    let dims = node.attribute_ints("shape").ok_or_else(|| invalid("`shape` is missing"))?;
    one(dims.iter().map(|&dim| size(dim)).collect::<Result<_, _>>()?)
}

fn multinomial(node: &Node<'_>) -> Shapes {
    let [batch, _] = node.ranked(0)?;
    one(vec![batch, node.attribute_int("sample_size").map_or(Ok(1), size)?])
}
