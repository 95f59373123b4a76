//! The sizes that a caller binds, and the shapes that inputs have with them.

use std::collections::{BTreeMap, HashMap};

use super::fact::Fact;
use super::node::product;
use crate::dtype::DataType;
use crate::model::{Dim, Model, Value};
use crate::tensor::Tensor;

/// Sizes for a model's symbolic dimensions.
///
/// Most models name them, and [`size`](Bindings::size) is all that is needed. Where a file
/// leaves a dimension without a name, [`shape`](Bindings::shape) binds an input's whole shape;
/// where shapes or branches depend on an input's contents, [`value`](Bindings::value) gives them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bindings {
    sizes: BTreeMap<String, usize>,
    shapes: BTreeMap<String, Vec<usize>>,
    values: BTreeMap<String, Tensor>,
}

/// Why the inputs' shapes are not determined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum InferError {
    #[error("dimension `{dimension}` of input `{input}` has no size; bind it")]
    Unbound { dimension: String, input: String },
    #[error(
        "dimension {axis} of input `{input}` has no name to bind; bind the input's whole shape"
    )]
    Unnamed { axis: usize, input: String },
    #[error("the model does not say what shape input `{input}` has; bind its whole shape")]
    NoShape { input: String },
    #[error("input `{input}` is {declared}, so it cannot have shape {bound:?}")]
    WrongShape { input: String, declared: String, bound: Vec<usize> },
    #[error(
        "dimension `{dimension}` is bound to {size}, but input `{input}` to a shape where it is {found}"
    )]
    Disagree { dimension: String, size: usize, input: String, found: usize },
    #[error("input `{input}` holds {declared}, so it cannot be bound to a value of {bound}")]
    WrongType { input: String, declared: DataType, bound: DataType },
    #[error("input `{input}` of shape {dims:?} has more elements than any memory can hold")]
    TooLarge { input: String, dims: Vec<usize> },
}

impl Bindings {
    /// No sizes: enough for a model whose inputs all have fixed shapes.
    pub fn new() -> Bindings {
        Bindings::default()
    }

    /// Binds the dimension of this name, wherever it appears.
    pub fn size(mut self, dimension: impl Into<String>, size: usize) -> Bindings {
        self.sizes.insert(dimension.into(), size);
        self
    }

    /// Binds the whole shape of an input, and with it the dimensions that it names.
    pub fn shape(mut self, input: impl Into<String>, dims: &[usize]) -> Bindings {
        self.shapes.insert(input.into(), dims.to_vec());
        self
    }

    /// Binds an input's contents, and with them its shape.
    pub fn value(mut self, input: impl Into<String>, value: Tensor) -> Bindings {
        self.values.insert(input.into(), value);
        self
    }

    /// What is known of each input. Inputs that are no tensors are left out.
    pub(super) fn resolve(&self, model: &Model) -> Result<HashMap<String, Fact>, InferError> {
        let inputs = model.inputs();
        let mut sizes = self.sizes.clone();
        for input in &inputs {
            if let Some(bound) = self.bound_shape(&input.name) {
                check_shape(input, bound, &mut sizes)?;
            }
        }
        let mut facts = HashMap::new();
        for input in inputs {
            let Some(dtype) = input.dtype else { continue };
            let fact = match self.values.get(&input.name) {
                Some(value) if value.dtype() != dtype => {
                    let (input, bound) = (input.name, value.dtype());
                    return Err(InferError::WrongType { input, declared: dtype, bound });
                }
                Some(value) => Fact::of_tensor(value),
                None => Fact::new(dtype, &self.dims(&input, &sizes)?),
            };
            if product(&fact.dims).is_err() {
                return Err(InferError::TooLarge { input: input.name, dims: fact.dims });
            }
            facts.insert(input.name, fact);
        }
        Ok(facts)
    }

    fn bound_shape(&self, input: &str) -> Option<&[usize]> {
        let value = self.values.get(input).map(Tensor::dims);
        value.or_else(|| self.shapes.get(input).map(Vec::as_slice))
    }

    fn dims(
        &self,
        input: &Value,
        sizes: &BTreeMap<String, usize>,
    ) -> Result<Vec<usize>, InferError> {
        let name = || input.name.clone();
        if let Some(dims) = self.bound_shape(&input.name) {
            return Ok(dims.to_vec());
        }
        let declared = input.dims.as_ref().ok_or_else(|| InferError::NoShape { input: name() })?;
        let size = |(axis, dim): (usize, &Dim)| match dim {
            Dim::Fixed(size) => Ok(*size),
            Dim::Named(dimension) if is_placeholder(dimension) => {
                Err(InferError::Unnamed { axis, input: name() })
            }
            Dim::Unknown => Err(InferError::Unnamed { axis, input: name() }),
            Dim::Named(dimension) => sizes
                .get(dimension)
                .copied()
                .ok_or_else(|| InferError::Unbound { dimension: dimension.clone(), input: name() }),
        };
        declared.iter().enumerate().map(size).collect()
    }
}

impl<Name: Into<String>> FromIterator<(Name, usize)> for Bindings {
    fn from_iter<I: IntoIterator<Item = (Name, usize)>>(sizes: I) -> Bindings {
        let sizes = sizes.into_iter().map(|(name, size)| (name.into(), size)).collect();
        Bindings { sizes, ..Bindings::default() }
    }
}

/// Paddle writes this for every dimension that it does not know, whatever their sizes.
fn is_placeholder(dimension: &str) -> bool {
    dimension == "?"
}

/// Checks a bound shape against the declared one, and takes sizes for the names in it.
fn check_shape(
    input: &Value,
    bound: &[usize],
    sizes: &mut BTreeMap<String, usize>,
) -> Result<(), InferError> {
    let Some(declared) = &input.dims else { return Ok(()) };
    let fits =
        |(dim, &size): (&Dim, &usize)| *dim == Dim::Fixed(size) || !matches!(dim, Dim::Fixed(_));
    if declared.len() != bound.len() || !declared.iter().zip(bound).all(fits) {
        let declared = input.to_string();
        let bound = bound.to_vec();
        return Err(InferError::WrongShape { input: input.name.clone(), declared, bound });
    }
    for (dim, &found) in declared.iter().zip(bound) {
        let Dim::Named(dimension) = dim else { continue };
        if is_placeholder(dimension) {
            continue;
        }
        let size = *sizes.entry(dimension.clone()).or_insert(found);
        if size != found {
            let (dimension, input) = (dimension.clone(), input.name.clone());
            return Err(InferError::Disagree { dimension, size, input, found });
        }
    }
    Ok(())
}
