//! Normalisation. Fused operators count what their usual decomposition takes.

use super::Reason;
use super::elementwise::same_shape;
use super::node::{Node, Shape, Shapes, axis, times};
use super::operator::Work::{Formula, PerOutput};
use super::operator::{Operator, row};
use super::types::{SAME, Type};
use crate::DataType;

/// Maximum, difference, exponential, sum, quotient.
pub(super) const SOFTMAX: u64 = 5;
/// Mean, difference, square, mean, quotient, scale, shift.
const LAYER: u64 = 7;
/// Square, mean, quotient, scale.
const ROOT_MEAN_SQUARE: u64 = 4;

const F32: Type = Type::Is(DataType::F32);
const LAYER_TYPES: &[Type] = &[Type::Same(0), F32];
const SKIP_TYPES: &[Type] = &[Type::Same(0), F32, F32, Type::Same(0)];

pub(super) const ONNX: &[Operator] = &[
    row("Softmax", SAME, same_shape, PerOutput(SOFTMAX)),
    row("LogSoftmax", SAME, same_shape, PerOutput(SOFTMAX + 1)),
    row("Hardmax", SAME, same_shape, PerOutput(1)),
    row("LayerNormalization", LAYER_TYPES, layer, PerOutput(LAYER)),
    row("SimplifiedLayerNormalization", LAYER_TYPES, simplified, PerOutput(ROOT_MEAN_SQUARE)),
    row("RMSNormalization", SAME, same_shape, PerOutput(ROOT_MEAN_SQUARE)),
    row("GroupNormalization", SAME, same_shape, PerOutput(LAYER)),
    row("InstanceNormalization", SAME, same_shape, PerOutput(LAYER)),
    row("MeanVarianceNormalization", SAME, same_shape, PerOutput(LAYER - 2)),
    row("LpNormalization", SAME, same_shape, PerOutput(3)),
    row("LRN", SAME, same_shape, PerOutput(4)),
    // Its statistics are constants: difference, quotient, scale, shift.
    row("BatchNormalization", &[Type::Same(0), Type::Same(3)], batch, PerOutput(4)),
];

pub(super) const MICROSOFT: &[Operator] = &[
    row(
        "SkipLayerNormalization",
        SKIP_TYPES,
        skip,
        Formula(|node, dims| skip_work(node, dims, LAYER, 4)),
    ),
    row(
        "SkipSimplifiedLayerNormalization",
        SKIP_TYPES,
        skip,
        Formula(|node, dims| skip_work(node, dims, ROOT_MEAN_SQUARE, 3)),
    ),
    row("SimplifiedLayerNormalization", LAYER_TYPES, simplified, PerOutput(ROOT_MEAN_SQUARE)),
    row("EmbedLayerNormalization", OF_EMBED, embed, Formula(embed_work)),
    row("BiasSoftmax", SAME, same_shape, PerOutput(SOFTMAX + 1)),
    row("QLinearSoftmax", SAME, same_shape, PerOutput(SOFTMAX)),
    row("GroupNorm", SAME, same_shape, PerOutput(LAYER)),
];

const OF_EMBED: &[Type] = &[Type::Same(2), Type::Is(DataType::I32), Type::Same(2)];

/// The dimensions of the statistics: those that are normalised over become 1.
fn statistics(dims: &[usize], from: i64) -> Result<Vec<usize>, Reason> {
    let from = axis(from, dims.len())?;
    Ok(dims.iter().enumerate().map(|(index, &dim)| if index < from { dim } else { 1 }).collect())
}

fn layer(node: &Node<'_>) -> Shapes {
    let dims = node.dims(0)?.to_vec();
    let statistics = statistics(&dims, node.attribute_int("axis").unwrap_or(-1))?;
    Ok(vec![dims.into(), statistics.clone().into(), statistics.into()])
}

/// Its only statistic is the inverse deviation.
fn simplified(node: &Node<'_>) -> Shapes {
    let mut shapes = layer(node)?;
    shapes.truncate(2);
    Ok(shapes)
}

fn batch(node: &Node<'_>) -> Shapes {
    let statistics = || Ok(Shape::from(node.dims(3)?.to_vec()));
    Ok(vec![node.dims(0)?.to_vec().into(), statistics()?, statistics()?])
}

fn skip(node: &Node<'_>) -> Shapes {
    let dims = node.dims(0)?.to_vec();
    let statistics = statistics(&dims, -1)?;
    Ok(vec![dims.clone().into(), statistics.clone().into(), statistics.into(), dims.into()])
}

fn skip_work(node: &Node<'_>, dims: &[usize], norm: u64, bias: usize) -> Result<u64, Reason> {
    Ok(times(dims).saturating_mul(norm + 1 + u64::from(node.has(bias))))
}

/// Token ids, segment ids, word, position and segment tables → their sum, normalised.
fn embed(node: &Node<'_>) -> Shapes {
    let [batch, tokens] = node.ranked(0)?;
    let [_, width] = node.ranked(2)?;
    let dims = vec![batch, tokens, width];
    Ok(vec![dims.clone().into(), vec![batch].into(), dims.into()])
}

fn embed_work(node: &Node<'_>, dims: &[usize]) -> Result<u64, Reason> {
    Ok(times(dims).saturating_mul(LAYER + 1 + u64::from(node.has(4))))
}
