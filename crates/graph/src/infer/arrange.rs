//! Operators that give elements another shape or order without choosing among them.

use super::Reason;
use super::node::{
    Node, Shape, Shapes, axis, broadcast, broadcast_flat, distinct_axes, flat, invalid, one,
    picked, product, size, with_data,
};
use super::operator::Work::{Moves, Picks, View};
use super::operator::{Operator, row};
use super::types::{SAME, Type};
use crate::DataType;

pub(super) const ONNX: &[Operator] = &[
    row("Identity", SAME, identity, View),
    row("Dropout", &[Type::Same(0), Type::Is(DataType::Bool)], dropout, View),
    row("Reshape", SAME, reshape, View),
    row("Flatten", SAME, flatten, View),
    row("Squeeze", SAME, squeeze, View),
    row("Unsqueeze", SAME, unsqueeze, View),
    row("Transpose", SAME, transpose, Moves),
    row("Concat", SAME, concat, Moves),
    row("Split", SAME, split, Picks),
    row("Expand", SAME, expand, Moves),
    row("Tile", SAME, tile, Moves),
    row("Pad", SAME, pad, Moves),
    row("DepthToSpace", SAME, depth_to_space, Moves),
    row("SpaceToDepth", SAME, space_to_depth, Moves),
    row("ReverseSequence", SAME, super::elementwise::same_shape, Moves),
    row("Trilu", SAME, super::elementwise::same_shape, Moves),
];

fn identity(node: &Node<'_>) -> Shapes {
    let fact = node.input(0)?;
    with_data(fact.dims.clone(), fact.data.clone())
}

fn dropout(node: &Node<'_>) -> Shapes {
    let fact = node.input(0)?;
    // Only in training does it change anything.
    let training =
        node.has(2) && node.numbers(2).map_or(true, |mode| mode.iter().any(|n| n.is_true()));
    let data = fact.data.clone().filter(|_| !training);
    Ok(vec![Shape { dims: fact.dims.clone(), data }, fact.dims.clone().into()])
}

/// Other dimensions for the first input's elements.
fn reshaped(node: &Node<'_>, dims: Vec<usize>) -> Shapes {
    let fact = node.input(0)?;
    let (given, wanted) = (product(&fact.dims)?, product(&dims)?);
    if given != wanted {
        return Err(invalid(format!("{:?} cannot become {dims:?}", fact.dims)));
    }
    with_data(dims, fact.data.clone())
}

fn reshape(node: &Node<'_>) -> Shapes {
    let wanted = node.ints(1)?;
    let keep_zero = node.flag("allowzero");
    let mut dims = Vec::with_capacity(wanted.len());
    let mut open = None;
    for (position, &dim) in wanted.iter().enumerate() {
        dims.push(match dim {
            -1 if open.replace(position).is_some() => {
                return Err(invalid("more than one dimension is left open"));
            }
            -1 => 1,
            0 if !keep_zero => {
                let given = node.dims(0)?.get(position).copied();
                given.ok_or_else(|| invalid(format!("there is no dimension {position} to keep")))?
            }
            dim => size(dim)?,
        });
    }
    if let Some(position) = open {
        let (given, rest) = (product(node.dims(0)?)?, product(&dims)?);
        match given.checked_div(rest) {
            Some(dim) if dim * rest == given => dims[position] = dim,
            _ => return Err(invalid(format!("{:?} cannot become {wanted:?}", node.dims(0)?))),
        }
    }
    match node.input(0) {
        Ok(_) => reshaped(node, dims),
        // The shape alone says what comes out.
        Err(_) => one(dims),
    }
}

fn flatten(node: &Node<'_>) -> Shapes {
    let dims = node.dims(0)?;
    let given = node.attribute_int("axis").unwrap_or(1);
    let at = if given == dims.len() as i64 { dims.len() } else { axis(given, dims.len())? };
    reshaped(node, vec![product(&dims[..at])?, product(&dims[at..])?])
}

fn squeeze(node: &Node<'_>) -> Shapes {
    let dims = node.dims(0)?;
    let removed = match node.axes(1)? {
        Some(axes) => distinct_axes(&axes, dims.len())?,
        None => (0..dims.len()).filter(|&axis| dims[axis] == 1).collect(),
    };
    if let Some(axis) = removed.iter().find(|&&axis| dims[axis] != 1) {
        return Err(invalid(format!("dimension {axis} of {dims:?} is not 1")));
    }
    let kept = (0..dims.len()).filter(|axis| !removed.contains(axis));
    reshaped(node, kept.map(|axis| dims[axis]).collect())
}

fn unsqueeze(node: &Node<'_>) -> Shapes {
    let axes = node.axes(1)?.ok_or_else(|| invalid("its axes are missing"))?;
    let dims = node.dims(0)?;
    let rank = dims.len() + axes.len();
    let added = distinct_axes(&axes, rank)?;
    let mut given = dims.iter().copied();
    let dim = |axis| if added.contains(&axis) { Some(1) } else { given.next() };
    reshaped(node, (0..rank).filter_map(dim).collect())
}

fn transpose(node: &Node<'_>) -> Shapes {
    let fact = node.input(0)?;
    let rank = fact.dims.len();
    let order = match node.attribute_ints("perm") {
        Some(order) if order.len() == rank => distinct_axes(order, rank)?,
        Some(order) => return Err(invalid(format!("order {order:?} does not fit rank {rank}"))),
        None => (0..rank).rev().collect(),
    };
    let dims: Vec<usize> = order.iter().map(|&axis| fact.dims[axis]).collect();
    let data = picked(fact, &dims, |position| {
        let mut source = vec![0; rank];
        order.iter().zip(position).for_each(|(&axis, &at)| source[axis] = at);
        flat(&source, &fact.dims)
    });
    with_data(dims, data)
}

fn concat(node: &Node<'_>) -> Shapes {
    let mut dims = node.dims(0)?.to_vec();
    let given = node.attribute_int("axis").unwrap_or(0);
    let axis = axis(given, dims.len())?;
    for index in 1..node.inputs.len() {
        let next = node.dims(index)?;
        let fits = next.len() == dims.len()
            && (0..dims.len()).all(|other| other == axis || dims[other] == next[other]);
        if !fits {
            return Err(invalid(format!("{next:?} does not join {dims:?} along axis {axis}")));
        }
        dims[axis] = dims[axis].checked_add(next[axis]).ok_or(Reason::TooLarge)?;
    }
    let facts = (0..node.inputs.len()).map(|index| node.input(index));
    let facts = facts.collect::<Result<Vec<_>, _>>()?;
    let rows = product(&dims[..axis])?;
    let data = (|| {
        let mut joined = Vec::new();
        for row in 0..rows.min(super::fact::MAX_FOLLOWED) {
            for fact in &facts {
                let length = product(&fact.dims[axis..]).ok()?;
                joined
                    .extend_from_slice(fact.data.as_ref()?.get(row * length..(row + 1) * length)?);
            }
        }
        Some(joined)
    })();
    with_data(dims, data)
}

fn split(node: &Node<'_>) -> Shapes {
    let fact = node.input(0)?;
    let axis = axis(node.attribute_int("axis").unwrap_or(0), fact.dims.len())?;
    let parts = match node.attribute_ints("split") {
        Some(parts) => Some(parts.to_vec()),
        None => node.optional_ints(1)?,
    };
    let whole = fact.dims[axis];
    let parts = match parts {
        Some(parts) => parts.into_iter().map(size).collect::<Result<Vec<_>, _>>()?,
        None => {
            let count = node.proto.output.len().max(1);
            // The last part is smaller where the whole does not divide.
            let part = whole.div_ceil(count);
            (0..count)
                .map(|index| part.min(whole.saturating_sub(part.saturating_mul(index))))
                .collect()
        }
    };
    let total = parts.iter().try_fold(0usize, |total, &part| total.checked_add(part));
    if total != Some(whole) {
        return Err(invalid(format!("{whole} does not split into {parts:?}")));
    }
    let mut start = 0;
    let part = |part: usize| {
        let mut dims = fact.dims.clone();
        dims[axis] = part;
        let data = picked(fact, &dims, |position| {
            let mut source = position.to_vec();
            source[axis] += start;
            flat(&source, &fact.dims)
        });
        start += part;
        Shape { dims, data }
    };
    Ok(parts.into_iter().map(part).collect())
}

fn expand(node: &Node<'_>) -> Shapes {
    let wanted = node.ints(1)?.into_iter().map(size).collect::<Result<Vec<_>, _>>()?;
    let fact = node.input(0)?;
    let dims = broadcast(&fact.dims, &wanted)?;
    let data = picked(fact, &dims, |position| broadcast_flat(position, &fact.dims));
    with_data(dims, data)
}

fn tile(node: &Node<'_>) -> Shapes {
    let fact = node.input(0)?;
    let repeats = node.ints(1)?;
    if repeats.len() != fact.dims.len() {
        return Err(invalid(format!("{} repeats for {:?}", repeats.len(), fact.dims)));
    }
    let dim = |(&dim, &repeat): (&usize, &i64)| size((dim as i128) * i128::from(repeat));
    let dims = fact.dims.iter().zip(&repeats).map(dim).collect::<Result<Vec<_>, _>>()?;
    let data = picked(fact, &dims, |position| {
        let wrap = |(&at, &dim): (&usize, &usize)| at % dim.max(1);
        let source: Vec<usize> = position.iter().zip(&fact.dims).map(wrap).collect();
        flat(&source, &fact.dims)
    });
    with_data(dims, data)
}

fn pad(node: &Node<'_>) -> Shapes {
    let dims = node.dims(0)?;
    let pads = match node.attribute_ints("pads") {
        Some(pads) => pads.to_vec(),
        None => node.ints(1)?,
    };
    let axes = match node.optional_ints(3)? {
        Some(axes) => distinct_axes(&axes, dims.len())?,
        None => (0..dims.len()).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return Err(invalid(format!("{} paddings for {} axes", pads.len(), axes.len())));
    }
    let mut padded = dims.to_vec();
    for (index, &axis) in axes.iter().enumerate() {
        let around = i128::from(pads[index]) + i128::from(pads[axes.len() + index]);
        padded[axis] = size(dims[axis] as i128 + around)?;
    }
    one(padded)
}

fn depth_to_space(node: &Node<'_>) -> Shapes {
    let [batch, channels, height, width] = node.ranked(0)?;
    let block = node.attribute_size("blocksize")?;
    let area = product(&[block, block])?;
    if area == 0 || channels % area != 0 {
        return Err(invalid(format!("{channels} channels do not make blocks of {block}")));
    }
    let across = |dim| product(&[dim, block]);
    one(vec![batch, channels / area, across(height)?, across(width)?])
}

fn space_to_depth(node: &Node<'_>) -> Shapes {
    let [batch, channels, height, width] = node.ranked(0)?;
    let block = node.attribute_size("blocksize")?;
    if block == 0 || height % block != 0 || width % block != 0 {
        return Err(invalid(format!("{height} x {width} does not divide into blocks of {block}")));
    }
    one(vec![batch, product(&[channels, block, block])?, height / block, width / block])
}
