//! Operators that work element by element, their inputs broadcast together.
//!
//! On small tensors of known contents they are computed: that is how exporters make shapes.

use super::Reason;
use super::fact::Number;
use super::node::{
    Node, Shapes, broadcast, broadcast_flat, for_each_position, one, times, with_data,
};
use super::operator::Work::{Formula, Moves, PerOutput};
use super::operator::{Operator, row};
use super::types::{SAME, Type, named};
use crate::DataType;

const BOOL: &[Type] = &[Type::Is(DataType::Bool)];
const SECOND: &[Type] = &[Type::Same(1)];
const CAST: &[Type] = &[Type::Rule(|node, _| named(node, "to"))];

pub(super) const ONNX: &[Operator] = &[
    // Arithmetic.
    row("Add", SAME, computed, PerOutput(1)),
    row("Sub", SAME, computed, PerOutput(1)),
    row("Mul", SAME, computed, PerOutput(1)),
    row("Div", SAME, computed, PerOutput(1)),
    row("Mod", SAME, computed, PerOutput(1)),
    row("Pow", SAME, computed, PerOutput(1)),
    row("Max", SAME, computed, Formula(operands)),
    row("Min", SAME, computed, Formula(operands)),
    row("Sum", SAME, broadcast_all, Formula(operands)),
    row("Mean", SAME, broadcast_all, Formula(operands)),
    row("PRelu", SAME, broadcast_all, PerOutput(2)),
    row("BitShift", SAME, broadcast_all, PerOutput(1)),
    row("BitwiseAnd", SAME, broadcast_all, PerOutput(1)),
    row("BitwiseOr", SAME, broadcast_all, PerOutput(1)),
    row("BitwiseXor", SAME, broadcast_all, PerOutput(1)),
    row("BitwiseNot", SAME, same_shape, PerOutput(1)),
    // Comparison and logic.
    row("Equal", BOOL, computed, PerOutput(1)),
    row("Less", BOOL, computed, PerOutput(1)),
    row("LessOrEqual", BOOL, computed, PerOutput(1)),
    row("Greater", BOOL, computed, PerOutput(1)),
    row("GreaterOrEqual", BOOL, computed, PerOutput(1)),
    row("And", BOOL, computed, PerOutput(1)),
    row("Or", BOOL, computed, PerOutput(1)),
    row("Xor", BOOL, computed, PerOutput(1)),
    row("Not", BOOL, computed, PerOutput(1)),
    row("IsNaN", BOOL, same_shape, PerOutput(1)),
    row("IsInf", BOOL, same_shape, PerOutput(1)),
    row("Where", SECOND, computed, PerOutput(1)),
    // Types.
    row("Cast", CAST, copied, Moves),
    row("CastLike", SECOND, copied, Moves),
    row("BitCast", CAST, same_shape, Moves),
    // Functions of one value.
    row("Abs", SAME, computed, PerOutput(1)),
    row("Neg", SAME, computed, PerOutput(1)),
    row("Sign", SAME, computed, PerOutput(1)),
    row("Floor", SAME, computed, PerOutput(1)),
    row("Ceil", SAME, computed, PerOutput(1)),
    row("Round", SAME, computed, PerOutput(1)),
    row("Sqrt", SAME, computed, PerOutput(1)),
    row("Reciprocal", SAME, computed, PerOutput(1)),
    row("Exp", SAME, same_shape, PerOutput(1)),
    row("Log", SAME, same_shape, PerOutput(1)),
    row("Erf", SAME, same_shape, PerOutput(1)),
    row("Sin", SAME, same_shape, PerOutput(1)),
    row("Cos", SAME, same_shape, PerOutput(1)),
    row("Tan", SAME, same_shape, PerOutput(1)),
    row("Asin", SAME, same_shape, PerOutput(1)),
    row("Acos", SAME, same_shape, PerOutput(1)),
    row("Atan", SAME, same_shape, PerOutput(1)),
    row("Sinh", SAME, same_shape, PerOutput(1)),
    row("Cosh", SAME, same_shape, PerOutput(1)),
    row("Asinh", SAME, same_shape, PerOutput(1)),
    row("Acosh", SAME, same_shape, PerOutput(1)),
    row("Atanh", SAME, same_shape, PerOutput(1)),
    row("Tanh", SAME, same_shape, PerOutput(1)),
    row("Sigmoid", SAME, same_shape, PerOutput(1)),
    row("Relu", SAME, computed, PerOutput(1)),
    row("LeakyRelu", SAME, same_shape, PerOutput(2)),
    row("ThresholdedRelu", SAME, same_shape, PerOutput(1)),
    row("Shrink", SAME, same_shape, PerOutput(2)),
    row("Elu", SAME, same_shape, PerOutput(3)),
    row("Celu", SAME, same_shape, PerOutput(3)),
    row("Selu", SAME, same_shape, PerOutput(4)),
    row("Softplus", SAME, same_shape, PerOutput(3)),
    row("Softsign", SAME, same_shape, PerOutput(3)),
    row("Mish", SAME, same_shape, PerOutput(5)),
    row("HardSigmoid", SAME, same_shape, PerOutput(3)),
    row("HardSwish", SAME, same_shape, PerOutput(4)),
    row("Swish", SAME, same_shape, PerOutput(2)),
    row("Clip", SAME, same_shape, PerOutput(2)),
    row("Gelu", SAME, same_shape, PerOutput(GELU)),
];

/// What the usual decomposition takes: divide, erf, add, multiply, multiply.
const GELU: u64 = 5;

pub(super) const MICROSOFT: &[Operator] = &[
    row("Gelu", SAME, same_shape, PerOutput(GELU)),
    row("BiasGelu", SAME, same_shape, PerOutput(GELU + 1)),
    row("FastGelu", SAME, same_shape, PerOutput(8)),
    row("QuickGelu", SAME, same_shape, PerOutput(3)),
    row("BiasAdd", SAME, same_shape, PerOutput(2)),
    row("QLinearAdd", SAME, quantized_pair, PerOutput(1)),
    row("QLinearMul", SAME, quantized_pair, PerOutput(1)),
    row("QLinearSigmoid", SAME, same_shape, PerOutput(1)),
    row("QLinearLeakyRelu", SAME, same_shape, PerOutput(2)),
];

/// The output has the shape of the first input.
pub(super) fn same_shape(node: &Node<'_>) -> Shapes {
    one(node.dims(0)?.to_vec())
}

/// The output is the first input, in another type perhaps.
fn copied(node: &Node<'_>) -> Shapes {
    let fact = node.input(0)?;
    with_data(fact.dims.clone(), fact.data.clone())
}

fn broadcast_all(node: &Node<'_>) -> Shapes {
    one(common_dims(node)?)
}

/// Broadcasts all inputs and, where their contents are known, computes the output's.
fn computed(node: &Node<'_>) -> Shapes {
    let dims = common_dims(node)?;
    let data = contents(node, &dims);
    with_data(dims, data)
}

fn common_dims(node: &Node<'_>) -> Result<Vec<usize>, Reason> {
    let mut dims = node.dims(0)?.to_vec();
    for index in 1..node.inputs.len() {
        dims = broadcast(&dims, node.dims(index)?)?;
    }
    Ok(dims)
}

/// Operators of any number of inputs do one operation less than they have inputs.
fn operands(node: &Node<'_>, dims: &[usize]) -> Result<u64, Reason> {
    Ok(times(dims).saturating_mul(node.inputs.len().saturating_sub(1).max(1) as u64))
}

/// A quantised operator with two operands, each followed by its scale and zero point.
fn quantized_pair(node: &Node<'_>) -> Shapes {
    one(broadcast(node.dims(0)?, node.dims(3)?)?)
}

fn contents(node: &Node<'_>, dims: &[usize]) -> Option<Vec<Number>> {
    let facts = (0..node.inputs.len()).map(|index| node.input(index).ok());
    let facts = facts.collect::<Option<Vec<_>>>()?;
    let data = facts.iter().map(|fact| fact.data.as_deref());
    let data = data.collect::<Option<Vec<_>>>()?;
    let mut found = Vec::new();
    for_each_position(dims, |position| {
        let operand = |(fact, data): (&&super::Fact, &&[Number])| {
            data.get(broadcast_flat(position, &fact.dims)).copied()
        };
        let operands: Option<Vec<Number>> = facts.iter().zip(&data).map(operand).collect();
        found.push(operands.and_then(|operands| apply(node.operator(), &operands)));
    })?;
    found.into_iter().collect()
}

/// One element; `None` where the operator is not followed or the result does not exist.
fn apply(operator: &str, operands: &[Number]) -> Option<Number> {
    use Number::{Float, Int};
    let truth = |value: bool| Some(Int(i64::from(value)));
    match (operator, operands) {
        ("Where", [condition, yes, no]) => Some(if condition.is_true() { *yes } else { *no }),
        ("Max" | "Min", [first, rest @ ..]) => rest.iter().try_fold(*first, |best, &next| {
            let (low, high) = match compare(best, next)? {
                std::cmp::Ordering::Greater => (next, best),
                _ => (best, next),
            };
            Some(if operator == "Max" { high } else { low })
        }),
        ("Equal", [left, right]) => truth(compare(*left, *right)?.is_eq()),
        ("Less", [left, right]) => truth(compare(*left, *right)?.is_lt()),
        ("LessOrEqual", [left, right]) => truth(compare(*left, *right)?.is_le()),
        ("Greater", [left, right]) => truth(compare(*left, *right)?.is_gt()),
        ("GreaterOrEqual", [left, right]) => truth(compare(*left, *right)?.is_ge()),
        ("And", [left, right]) => truth(left.is_true() && right.is_true()),
        ("Or", [left, right]) => truth(left.is_true() || right.is_true()),
        ("Xor", [left, right]) => truth(left.is_true() != right.is_true()),
        ("Not", [value]) => truth(!value.is_true()),
        (_, [Int(left), Int(right)]) => int_pair(operator, *left, *right).map(Int),
        (_, [Float(left), Float(right)]) => float_pair(operator, *left, *right).map(Float),
        ("Pow", [left, right]) => float_pair("Pow", left.to_float(), right.to_float()).map(Float),
        (_, [Int(value)]) => int_function(operator, *value).map(Int),
        (_, [Float(value)]) => float_function(operator, *value).map(Float),
        _ => None,
    }
}

fn compare(left: Number, right: Number) -> Option<std::cmp::Ordering> {
    match (left, right) {
        (Number::Int(left), Number::Int(right)) => Some(left.cmp(&right)),
        (left, right) => left.to_float().partial_cmp(&right.to_float()),
    }
}

fn int_pair(operator: &str, left: i64, right: i64) -> Option<i64> {
    match operator {
        "Add" => left.checked_add(right),
        "Sub" => left.checked_sub(right),
        "Mul" => left.checked_mul(right),
        // Integer division truncates.
        "Div" => left.checked_div(right),
        // The remainder takes the divisor's sign; the other kind (`fmod`) agrees on sizes.
        "Mod" if left >= 0 && right > 0 => left.checked_rem(right),
        "Pow" => left.checked_pow(u32::try_from(right).ok()?),
        _ => None,
    }
}

fn float_pair(operator: &str, left: f64, right: f64) -> Option<f64> {
    match operator {
        "Add" => Some(left + right),
        "Sub" => Some(left - right),
        "Mul" => Some(left * right),
        "Div" => Some(left / right),
        "Pow" => Some(left.powf(right)),
        _ => None,
    }
}

fn int_function(operator: &str, value: i64) -> Option<i64> {
    match operator {
        "Abs" => value.checked_abs(),
        "Neg" => value.checked_neg(),
        "Sign" => Some(value.signum()),
        "Relu" => Some(value.max(0)),
        _ => None,
    }
}

fn float_function(operator: &str, value: f64) -> Option<f64> {
    match operator {
        "Abs" => Some(value.abs()),
        "Neg" => Some(-value),
        "Floor" => Some(value.floor()),
        "Ceil" => Some(value.ceil()),
        "Round" => Some(value.round_ties_even()),
        "Sqrt" => Some(value.sqrt()),
        "Reciprocal" => Some(value.recip()),
        "Relu" => Some(value.max(0.0)),
        _ => None,
    }
}
