//! Sampling a grid at other places.

use super::Reason;
use super::node::{Node, Shapes, axis, distinct_axes, invalid, one, size};
use super::operator::Work::{Formula, PerOutput};
use super::operator::{Operator, row};
use super::types::SAME;

pub(super) const ONNX: &[Operator] = &[
    row("Resize", SAME, resize, Formula(resize_work)),
    row("GridSample", SAME, grid_sample, PerOutput(8)),
    row("CenterCropPad", SAME, crop, super::operator::Work::Moves),
];

fn resize(node: &Node<'_>) -> Shapes {
    let mut dims = node.dims(0)?.to_vec();
    let axes = match node.attribute_ints("axes") {
        Some(axes) => distinct_axes(axes, dims.len())?,
        None => (0..dims.len()).collect(),
    };
    let fits = |length: usize| {
        let wrong = || invalid(format!("{length} sizes or scales for {} axes", axes.len()));
        if length == axes.len() { Ok(()) } else { Err(wrong()) }
    };
    // An empty tensor of scales stands for none.
    let given = |index: usize| {
        let fact = if node.has(index) { Some(node.input(index)?) } else { None };
        Ok::<_, Reason>(fact.is_some_and(|fact| fact.dims != [0]))
    };
    if given(3)? {
        let sizes = node.ints(3)?;
        fits(sizes.len())?;
        return one(sized(node, dims, &axes, &sizes)?);
    }
    if !given(2)? {
        return Err(invalid("neither sizes nor scales are given"));
    }
    let scales = node.numbers(2)?;
    fits(scales.len())?;
    for (&axis, scale) in axes.iter().zip(scales) {
        // Single precision, as the runtimes compute it: rounding decides the size.
        let scaled = dims[axis] as f32 * scale.to_float() as f32;
        if !scaled.is_finite() || scaled < 0.0 {
            return Err(invalid(format!("scale {scaled} makes no size")));
        }
        dims[axis] = size(scaled.floor() as i128)?;
    }
    one(dims)
}

fn sized(
    node: &Node<'_>,
    mut dims: Vec<usize>,
    axes: &[usize],
    sizes: &[i64],
) -> Result<Vec<usize>, Reason> {
    let policy = node.attribute_text("keep_aspect_ratio_policy").unwrap_or("stretch");
    let ratios = axes.iter().zip(sizes).map(|(&axis, &size)| size as f32 / dims[axis] as f32);
    let ratio = match policy {
        "not_larger" => ratios.reduce(f32::min),
        "not_smaller" => ratios.reduce(f32::max),
        _ => None,
    };
    for (&axis, &wanted) in axes.iter().zip(sizes) {
        dims[axis] = match ratio {
            Some(ratio) if ratio.is_finite() => size((dims[axis] as f32 * ratio).round() as i128)?,
            Some(_) => return Err(invalid("the aspect ratio is not finite")),
            None => size(wanted)?,
        };
    }
    Ok(dims)
}

/// Nearest copies, linear weighs two neighbours in each changed dimension, cubic four.
fn resize_work(node: &Node<'_>, dims: &[usize]) -> Result<u64, Reason> {
    let neighbours: u64 = match node.attribute_text("mode").unwrap_or("nearest") {
        "nearest" => return Ok(0),
        "cubic" => 4,
        _ => 2,
    };
    let given = node.dims(0)?;
    let changed = given.iter().zip(dims).filter(|(given, wanted)| given != wanted).count();
    let weighed = neighbours.saturating_pow(u32::try_from(changed).unwrap_or(u32::MAX));
    Ok(super::node::times(dims).saturating_mul(weighed.saturating_mul(2)))
}

fn grid_sample(node: &Node<'_>) -> Shapes {
    let (given, grid) = (node.dims(0)?, node.dims(1)?);
    if given.len() < 3 || grid.len() != given.len() {
        return Err(invalid(format!("grid {grid:?} does not fit {given:?}")));
    }
    one([&given[..2], &grid[1..grid.len() - 1]].concat())
}

fn crop(node: &Node<'_>) -> Shapes {
    let mut dims = node.dims(0)?.to_vec();
    let wanted = node.ints(1)?;
    let axes = match node.attribute_ints("axes") {
        Some(axes) => axes.to_vec(),
        None => (0..dims.len() as i64).collect(),
    };
    if axes.len() != wanted.len() {
        return Err(invalid(format!("{} sizes for {} axes", wanted.len(), axes.len())));
    }
    for (&along, &wanted) in axes.iter().zip(&wanted) {
        let at = axis(along, dims.len())?;
        dims[at] = size(wanted)?;
    }
    one(dims)
}
