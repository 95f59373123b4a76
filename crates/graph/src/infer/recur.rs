//! Recurrent networks.

use super::Reason;
use super::node::{Node, Shapes, invalid, product, size, times};
use super::operator::Work::Formula;
use super::operator::{Operator, row};
use super::types::SAME;

pub(super) const ONNX: &[Operator] = &[
    row("LSTM", SAME, recurrent, Formula(|node, _| work(node, 4, 9))),
    row("GRU", SAME, recurrent, Formula(|node, _| work(node, 3, 8))),
    row("RNN", SAME, recurrent, Formula(|node, _| work(node, 1, 1))),
];

pub(super) const MICROSOFT: &[Operator] =
    &[row("DynamicQuantizeLSTM", SAME, recurrent, Formula(|node, _| work(node, 4, 9)))];

/// The sizes of a recurrent layer.
struct Layer {
    steps: usize,
    batch: usize,
    inputs: usize,
    directions: usize,
    hidden: usize,
    batch_first: bool,
}

impl Layer {
    fn read(node: &Node<'_>) -> Result<Layer, Reason> {
        let [first, second, inputs] = node.ranked(0)?;
        let batch_first = node.flag("layout");
        let (steps, batch) = if batch_first { (second, first) } else { (first, second) };
        let directions = match node.attribute_text("direction") {
            None | Some("forward" | "reverse") => 1,
            Some("bidirectional") => 2,
            Some(other) => return Err(invalid(format!("direction `{other}` does not exist"))),
        };
        let hidden = match node.attribute_int("hidden_size") {
            Some(hidden) => size(hidden)?,
            None => {
                let [_, _, hidden] = node.ranked(2)?;
                hidden
            }
        };
        Ok(Layer { steps, batch, inputs, directions, hidden, batch_first })
    }
}

/// All hidden states, the last ones, and for an LSTM the last cells.
fn recurrent(node: &Node<'_>) -> Shapes {
    let Layer { steps, batch, directions, hidden, batch_first, .. } = Layer::read(node)?;
    let (all, last) = if batch_first {
        (vec![batch, steps, directions, hidden], vec![batch, directions, hidden])
    } else {
        (vec![steps, directions, batch, hidden], vec![directions, batch, hidden])
    };
    Ok(vec![all.into(), last.clone().into(), last.into()])
}

/// In each step every gate is a product with the input and with the hidden state, with two
/// biases; then come the activations and what combines them.
fn work(node: &Node<'_>, gates: usize, combine: usize) -> Result<u64, Reason> {
    let layer = Layer::read(node)?;
    let outputs = product(&[layer.steps, layer.batch, layer.directions, layer.hidden])?;
    let products = times(&[2, gates]).saturating_mul((layer.inputs + layer.hidden) as u64);
    let biases = if node.has(3) { 2 * gates } else { gates };
    let each = products.saturating_add((biases + combine) as u64);
    Ok((outputs as u64).saturating_mul(each))
}
