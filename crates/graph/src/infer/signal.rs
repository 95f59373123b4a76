//! Signals: Fourier transforms, windows, mel filters.

use super::Reason;
use super::node::{Node, Shapes, axis, invalid, one, product, size, times};
use super::operator::Work::{Formula, PerOutput};
use super::operator::{Operator, row};
use super::types::{SAME, Type, named};
use crate::DataType;

/// `output_datatype`, else `f32`.
const OF_WINDOW: &[Type] =
    &[Type::Rule(|node, _| named(node, "output_datatype").or(Some(DataType::F32)))];

pub(super) const ONNX: &[Operator] = &[
    row("DFT", SAME, transform, Formula(transform_work)),
    row("STFT", SAME, short_time, Formula(short_time_work)),
    row("HannWindow", OF_WINDOW, window, PerOutput(3)),
    row("HammingWindow", OF_WINDOW, window, PerOutput(3)),
    row("BlackmanWindow", OF_WINDOW, window, PerOutput(5)),
    row("MelWeightMatrix", OF_WINDOW, mel, PerOutput(1)),
];

/// The axis of a transform: an attribute until version 20, then an input.
fn along(node: &Node<'_>, rank: usize) -> Result<usize, Reason> {
    let given = match node.attribute_int("axis") {
        Some(axis) => axis,
        None if node.version < 20 => 1,
        None if node.has(2) => node.int(2)?,
        None => -2,
    };
    axis(given, rank)
}

fn transform(node: &Node<'_>) -> Shapes {
    let mut dims = node.dims(0)?.to_vec();
    let along = along(node, dims.len())?;
    if along + 1 >= dims.len() {
        return Err(invalid("the last dimension holds real and imaginary parts"));
    }
    if node.has(1) {
        dims[along] = size(node.int(1)?)?;
    }
    let (onesided, inverse) = (node.flag("onesided"), node.flag("inverse"));
    if onesided && inverse {
        return Err(Reason::Operator("ai.onnx::DFT, one-sided and inverse".to_owned()));
    }
    if onesided {
        dims[along] = dims[along] / 2 + 1;
    }
    if let Some(parts) = dims.last_mut() {
        *parts = 2;
    }
    one(dims)
}

/// What a fast transform of `length` points takes: 5 n log2 n.
fn fast(length: usize) -> u64 {
    let levels = usize::BITS - length.max(1).next_power_of_two().leading_zeros() - 1;
    times(&[5, length, levels as usize])
}

fn transform_work(node: &Node<'_>, dims: &[usize]) -> Result<u64, Reason> {
    let along = along(node, dims.len())?;
    let given = node.dims(0)?.get(along).copied().unwrap_or(1);
    let others = (0..dims.len() - 1).filter(|&axis| axis != along).map(|axis| dims[axis]);
    Ok(times(&others.collect::<Vec<_>>()).saturating_mul(fast(given)))
}

/// The frame length, from its own input or from the window.
fn frame(node: &Node<'_>) -> Result<usize, Reason> {
    if node.has(3) {
        return size(node.int(3)?);
    }
    node.dims(2)?.first().copied().ok_or_else(|| invalid("the window has no length"))
}

fn short_time(node: &Node<'_>) -> Shapes {
    let (batch, length) = match node.dims(0)? {
        [batch, length] | [batch, length, _] => (*batch, *length),
        dims => return Err(invalid(format!("{dims:?} is no signal"))),
    };
    let step = size(node.int(1)?)?;
    let frame = frame(node)?;
    if step == 0 || frame > length {
        return Err(invalid(format!("frames of {frame} every {step} in a signal of {length}")));
    }
    let frames = (length - frame) / step + 1;
    let onesided = node.attribute_int("onesided").unwrap_or(1) != 0;
    let bins = if onesided { frame / 2 + 1 } else { frame };
    one(vec![batch, frames, bins, 2])
}

fn short_time_work(node: &Node<'_>, dims: &[usize]) -> Result<u64, Reason> {
    let frames = dims.get(..2).map_or(0, times);
    let frame = frame(node)?;
    Ok(frames.saturating_mul(fast(frame).saturating_add(frame as u64)))
}

fn window(node: &Node<'_>) -> Shapes {
    one(vec![size(node.int(0)?)?])
}

/// Bands, transform length, rate, lowest and highest frequency.
fn mel(node: &Node<'_>) -> Shapes {
    let (bands, length) = (size(node.int(0)?)?, size(node.int(1)?)?);
    let bins = length / 2 + 1;
    product(&[bins, bands])?;
    one(vec![bins, bands])
}
