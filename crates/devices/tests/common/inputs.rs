//! Seeded inputs for any model.

use std::collections::BTreeMap;

use holdfast_graph::{DataType, Dim, Tensor, Value};
use holdfast_testkit::{Init, Numbers, Weights};

/// Tensors by name.
pub(crate) type Named = BTreeMap<String, Tensor>;

/// Inputs that fit what a model declares: named dimensions have the sizes given, others of no
/// fixed size the one given for `?`.
pub(crate) fn sample(declared: &[Value], sizes: &[(&str, usize)], seed: u64) -> Named {
    let size = |wanted: &str| {
        let found = sizes.iter().find(|(name, _)| *name == wanted).map(|(_, size)| *size);
        found.unwrap_or_else(|| panic!("the test gives no size for `{wanted}`"))
    };
    let dims = |value: &Value| -> Vec<usize> {
        let dim = |dim: &Dim| match dim {
            Dim::Fixed(size) => *size,
            Dim::Named(name) => size(name),
            Dim::Unknown => size("?"),
        };
        value.dims.as_ref().unwrap().iter().map(dim).collect()
    };
    let of = |value: &Value| (value.name.clone(), tensor(value, &dims(value), seed));
    declared.iter().map(of).collect()
}

fn tensor(value: &Value, dims: &[usize], seed: u64) -> Tensor {
    let name = value.name.as_str();
    let count: usize = dims.iter().product();
    let length = dims.last().copied().unwrap_or(1);
    let mut numbers = Numbers::labelled(seed, name);
    match (value.dtype.unwrap(), name) {
        (DataType::F32, _) => {
            let init = Init { mean: 0.0, deviation: 1.0 };
            Weights::new(seed).draw(name, dims, init).unwrap()
        }
        // Every row but the first is padded by one more.
        (DataType::I64, "attention_mask") => integers(dims, |index| {
            let (row, column) = (index / length, index % length);
            i64::from(column + row.min(length - 1) < length)
        }),
        (DataType::I64, "position_ids") => integers(dims, |index| (index % length) as i64),
        (DataType::I64, "token_type_ids") => integers(dims, |index| i64::from(index % 3 == 0)),
        // The smallest vocabulary in use has 256 tokens.
        (DataType::I64, _) => integers(dims, |_| numbers.below(256) as i64),
        (DataType::I32, _) => {
            let values: Vec<i32> = (0..count).map(|_| numbers.below(256) as i32).collect();
            Tensor::from_slice(dims, &values).unwrap()
        }
        (other, _) => panic!("no sample of {other} for `{name}`"),
    }
}

/// A tensor of integers, each from its position.
pub(crate) fn integers(dims: &[usize], mut value: impl FnMut(usize) -> i64) -> Tensor {
    let values: Vec<i64> = (0..dims.iter().product()).map(&mut value).collect();
    Tensor::from_slice(dims, &values).unwrap()
}

/// Tokens for MiniLM and gte-small.
pub(crate) fn minilm_inputs(batch: usize, tokens: usize) -> Named {
    let dims = [batch, tokens];
    let ids = integers(&dims, |index| 1000 + (index as i64 * 7919) % 20000);
    [
        ("input_ids", ids),
        ("attention_mask", integers(&dims, |_| 1)),
        ("token_type_ids", integers(&dims, |_| 0)),
    ]
    .map(|(name, tensor)| (name.to_owned(), tensor))
    .into()
}
