//! One node as the rules see it: what is known of its inputs, and its attributes.

use super::Reason;
use super::fact::{Fact, MAX_ELEMENTS, MAX_FOLLOWED, Number};
use crate::proto::{AttributeProto, NodeProto};

/// What a rule gives for one output. Contents are made to fit the output's type afterwards.
pub(crate) struct Shape {
    pub(crate) dims: Vec<usize>,
    pub(crate) data: Option<Vec<Number>>,
}

/// The shapes of a node's outputs. Outputs beyond the last depend on values.
pub(crate) type Shapes = Result<Vec<Shape>, Reason>;

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Shape {
        Shape { dims, data: None }
    }
}

/// The usual result of a rule: one output of these dimensions.
pub(crate) fn one(dims: Vec<usize>) -> Shapes {
    Ok(vec![dims.into()])
}

/// One output whose contents may be known.
pub(crate) fn with_data(dims: Vec<usize>, data: Option<Vec<Number>>) -> Shapes {
    Ok(vec![Shape { dims, data }])
}

/// What is known of one input.
#[derive(Clone, Copy)]
pub(crate) enum Input<'a> {
    /// The node leaves this optional input out.
    Absent,
    /// It could not be inferred.
    Unknown,
    /// It is this.
    Known(&'a Fact),
}

/// A node with what is known of its inputs.
pub(crate) struct Node<'a> {
    pub(crate) proto: &'a NodeProto,
    /// The version of the operator's domain that is in force.
    pub(crate) version: i64,
    /// The block of the blocked layout, where the model gives it away.
    pub(crate) block: Option<usize>,
    pub(crate) inputs: Vec<Input<'a>>,
}

impl<'a> Node<'a> {
    pub(crate) fn operator(&self) -> &'a str {
        &self.proto.op_type
    }

    /// An input that the operator requires.
    pub(crate) fn input(&self, index: usize) -> Result<&'a Fact, Reason> {
        self.optional(index)?.ok_or_else(|| invalid(format!("input {index} is missing")))
    }

    /// An input that may be left out.
    pub(crate) fn optional(&self, index: usize) -> Result<Option<&'a Fact>, Reason> {
        match self.inputs.get(index) {
            None | Some(Input::Absent) => Ok(None),
            Some(Input::Known(fact)) => Ok(Some(fact)),
            Some(Input::Unknown) => Err(Reason::Follows(self.proto.input[index].clone())),
        }
    }

    pub(crate) fn has(&self, index: usize) -> bool {
        !matches!(self.inputs.get(index), None | Some(Input::Absent))
    }

    /// The dimensions of a required input.
    pub(crate) fn dims(&self, index: usize) -> Result<&'a [usize], Reason> {
        Ok(&self.input(index)?.dims)
    }

    /// The dimensions of a required input of this rank.
    pub(crate) fn ranked<const RANK: usize>(&self, index: usize) -> Result<[usize; RANK], Reason> {
        let dims = self.dims(index)?;
        dims.try_into().map_err(|_| {
            invalid(format!("input {index} has rank {}, the operator takes {RANK}", dims.len()))
        })
    }

    /// The contents of a required input.
    pub(crate) fn numbers(&self, index: usize) -> Result<&'a [Number], Reason> {
        let data = self.input(index)?.data.as_deref();
        data.ok_or_else(|| Reason::Values(self.proto.input[index].clone()))
    }

    /// The contents of a required input of integers.
    pub(crate) fn ints(&self, index: usize) -> Result<Vec<i64>, Reason> {
        let int = |number: &Number| {
            let not_int = || invalid(format!("input {index} holds {}", number.to_float()));
            number.to_int().ok_or_else(not_int)
        };
        self.numbers(index)?.iter().map(int).collect()
    }

    /// The one integer that an input holds.
    pub(crate) fn int(&self, index: usize) -> Result<i64, Reason> {
        match self.ints(index)?.as_slice() {
            [value] => Ok(*value),
            values => Err(invalid(format!("input {index} holds {} values, not one", values.len()))),
        }
    }

    /// The contents of an optional input of integers.
    pub(crate) fn optional_ints(&self, index: usize) -> Result<Option<Vec<i64>>, Reason> {
        self.has(index).then(|| self.ints(index)).transpose()
    }

    fn attribute(&self, name: &str) -> Option<&'a AttributeProto> {
        self.proto.attribute.iter().find(|attribute| attribute.name == name)
    }

    pub(crate) fn attribute_int(&self, name: &str) -> Option<i64> {
        self.attribute(name)?.i
    }

    pub(crate) fn attribute_ints(&self, name: &str) -> Option<&'a [i64]> {
        self.attribute(name).map(|attribute| attribute.ints.as_slice())
    }

    pub(crate) fn attribute_text(&self, name: &str) -> Option<&'a str> {
        std::str::from_utf8(self.attribute(name)?.s.as_deref()?).ok()
    }

    pub(crate) fn attribute_tensor(&self, name: &str) -> Option<crate::Tensor> {
        crate::Tensor::from_proto(self.attribute(name)?.t.as_deref()?).ok()
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.attribute_int(name).unwrap_or(0) != 0
    }

    /// A required attribute that is a size.
    pub(crate) fn attribute_size(&self, name: &str) -> Result<usize, Reason> {
        let value = self.attribute_int(name);
        size(value.ok_or_else(|| invalid(format!("attribute `{name}` is missing")))?)
    }

    /// `axes`, an attribute in older versions of an operator and an input in newer ones.
    pub(crate) fn axes(&self, input: usize) -> Result<Option<Vec<i64>>, Reason> {
        match self.attribute_ints("axes") {
            Some(axes) => Ok(Some(axes.to_vec())),
            None => self.optional_ints(input),
        }
    }
}

/// The inputs do not fit the operator or each other.
pub(crate) fn invalid(problem: impl Into<String>) -> Reason {
    Reason::Invalid(problem.into())
}

/// The dimension that `axis` names; negative ones count from the end.
pub(crate) fn axis(axis: i64, rank: usize) -> Result<usize, Reason> {
    let rank_signed = rank as i64;
    let position = if axis < 0 { axis.checked_add(rank_signed) } else { Some(axis) };
    match position {
        Some(position) if (0..rank_signed).contains(&position) => Ok(position as usize),
        _ => Err(invalid(format!("axis {axis} does not exist in rank {rank}"))),
    }
}

/// The dimensions that several axes name, in the order given and each once.
pub(crate) fn distinct_axes(axes: &[i64], rank: usize) -> Result<Vec<usize>, Reason> {
    let mut found = Vec::with_capacity(axes.len());
    for &value in axes {
        let position = axis(value, rank)?;
        if found.contains(&position) {
            return Err(invalid(format!("axis {value} is named twice")));
        }
        found.push(position);
    }
    Ok(found)
}

/// A computed number as a size.
pub(crate) fn size(value: impl TryInto<usize> + Copy + std::fmt::Display) -> Result<usize, Reason> {
    match value.try_into() {
        Ok(size) if size <= MAX_ELEMENTS => Ok(size),
        _ => Err(invalid(format!("{value} is not a size"))),
    }
}

/// The product of sizes, where it is not absurd.
pub(crate) fn product(dims: &[usize]) -> Result<usize, Reason> {
    // Zeros are skipped so that an overflow cannot hide behind one.
    let product = dims
        .iter()
        .filter(|&&dim| dim != 0)
        .try_fold(1usize, |product, &dim| product.checked_mul(dim))
        .filter(|&product| product <= MAX_ELEMENTS)
        .ok_or(Reason::TooLarge)?;
    Ok(if dims.contains(&0) { 0 } else { product })
}

/// Multiplies work; beyond 64 bits it stays at the largest number.
pub(crate) fn times(factors: &[usize]) -> u64 {
    factors.iter().fold(1, |product, &factor| product.saturating_mul(factor as u64))
}

/// The common shape of two that are broadcast together.
pub(crate) fn broadcast(left: &[usize], right: &[usize]) -> Result<Vec<usize>, Reason> {
    let (long, short) = if left.len() >= right.len() { (left, right) } else { (right, left) };
    let mut dims = long.to_vec();
    let offset = long.len() - short.len();
    for (dim, &other) in dims[offset..].iter_mut().zip(short) {
        *dim = match (*dim, other) {
            (same, other) if same == other => same,
            (1, other) => other,
            (same, 1) => same,
            _ => return Err(invalid(format!("{left:?} and {right:?} do not broadcast"))),
        };
    }
    Ok(dims)
}

/// Contents of an output whose element at each position is the input's at another one.
pub(crate) fn picked(
    fact: &Fact,
    dims: &[usize],
    source: impl Fn(&[usize]) -> usize,
) -> Option<Vec<Number>> {
    let data = fact.data.as_ref()?;
    let mut picked = Vec::new();
    for_each_position(dims, |position| picked.push(data.get(source(position)).copied()))?;
    picked.into_iter().collect()
}

/// Visits every position in row-major order; `None` where there are too many to follow.
pub(crate) fn for_each_position(dims: &[usize], mut visit: impl FnMut(&[usize])) -> Option<()> {
    let count = product(dims).ok()?;
    if count > MAX_FOLLOWED {
        return None;
    }
    let mut position = vec![0; dims.len()];
    for _ in 0..count {
        visit(&position);
        for axis in (0..dims.len()).rev() {
            position[axis] += 1;
            if position[axis] < dims[axis] {
                break;
            }
            position[axis] = 0;
        }
    }
    Some(())
}

/// The index in row-major order of a position in `dims`.
pub(crate) fn flat(position: &[usize], dims: &[usize]) -> usize {
    position.iter().zip(dims).fold(0, |index, (&at, &dim)| index * dim + at)
}

/// The index in a value of shape `dims` that is read for `position` of the broadcast result.
pub(crate) fn broadcast_flat(position: &[usize], dims: &[usize]) -> usize {
    let position = &position[position.len() - dims.len()..];
    let at = |(&at, &dim): (&usize, &usize)| if dim == 1 { (0, dim) } else { (at, dim) };
    position.iter().zip(dims).map(at).fold(0, |index, (at, dim)| index * dim + at)
}
