//! The blocked layout (NCHWc) that ONNX Runtime writes when it optimises for a CPU at level
//! `All`: channels are padded to whole blocks of 8 or 16, as the processor has it.

use std::collections::HashSet;

use super::Reason;
use super::convolve::{pool_work, pooled, pooled_whole, windowed, work};
use super::node::{Node, Shapes, axis, invalid, one, product, size};
use super::operator::Work::{Formula, Moves, PerInput};
use super::operator::{Operator, row};
use super::types::SAME;
use crate::model::Model;
use crate::proto::{GraphProto, NodeProto};

const DOMAIN: &str = "com.microsoft.nchwc";

pub(super) const NCHWC: &[Operator] = &[
    row("Conv", SAME, |node| windowed(node, 1), Formula(|node, dims| work(node, dims, 1))),
    row("MaxPool", SAME, pooled, Formula(pool_work)),
    row("AveragePool", SAME, pooled, Formula(pool_work)),
    row("GlobalMaxPool", SAME, pooled_whole, PerInput(1)),
    row("GlobalAveragePool", SAME, pooled_whole, PerInput(1)),
    row("ReorderInput", SAME, reorder_input, Moves),
    row("ReorderOutput", SAME, reorder_output, Moves),
    row("Upsample", SAME, upsample, Moves),
];

/// The block that a model was written for, where its weights give it away: one whose output
/// channels fill 8s but not 16s.
pub(super) fn block_of(model: &Model) -> Option<usize> {
    fn has_eights(graph: &GraphProto) -> bool {
        let convolves = |node: &&NodeProto| node.domain == DOMAIN && node.op_type == "Conv";
        let weights: HashSet<&String> =
            graph.node.iter().filter(convolves).filter_map(|node| node.input.get(1)).collect();
        let in_eights = |dim: Option<&i64>| dim.is_some_and(|dim| dim % 16 == 8);
        let mut tensors = graph.initializer.iter();
        tensors.any(|tensor| in_eights(tensor.dims.first()) && weights.contains(&tensor.name))
    }
    let blocked = model.opset(DOMAIN).is_some();
    (blocked && has_eights(model.graph())).then_some(8)
}

fn reorder_input(node: &Node<'_>) -> Shapes {
    let [batch, second, third, fourth] = node.ranked(0)?;
    let (channels, height, width) =
        if node.flag("channels_last") { (fourth, second, third) } else { (second, third, fourth) };
    let channels = match node.block {
        _ if channels % 16 == 0 => channels,
        Some(block) => size(channels.next_multiple_of(block))?,
        None => return Ok(vec![]),
    };
    one(vec![batch, channels, height, width])
}

fn reorder_output(node: &Node<'_>) -> Shapes {
    let [batch, padded, height, width] = node.ranked(0)?;
    let channels = node.attribute_size("channels")?;
    if channels > padded {
        return Err(invalid(format!("{channels} channels do not come out of {padded}")));
    }
    one(if node.flag("channels_last") {
        vec![batch, height, width, channels]
    } else {
        vec![batch, channels, height, width]
    })
}

fn upsample(node: &Node<'_>) -> Shapes {
    let mut dims = node.dims(0)?.to_vec();
    let scales = node.attribute_ints("scales").unwrap_or_default();
    for (index, &scale) in scales.iter().enumerate() {
        let at = axis(index as i64, dims.len())?;
        dims[at] = product(&[dims[at], size(scale)?])?;
    }
    Ok::<_, Reason>(vec![dims.into()])
}
