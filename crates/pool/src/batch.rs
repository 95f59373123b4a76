//! Requests of one model as one batch: which models allow it, how rows are put together and taken
//! apart again.
//!
//! Only what the graph says is believed: the first dimension of every input and output is one
//! free dimension of the same name, which appears nowhere else. That the rows then keep their bits
//! is not believed but proven, by whoever runs the batch (`scheduler/together.rs`).

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use holdfast_devices::Returned;
use holdfast_graph::{DataType, Dim, Tensor, Value};

/// Inputs of a request, by name.
pub(crate) type Inputs = Vec<(String, Tensor)>;

/// A model whose requests can be put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    inputs: Vec<(String, DataType)>,
}

impl Rows {
    /// Reads off a graph whether its rows are free.
    pub(crate) fn of(inputs: &[Value], outputs: &[Value]) -> Option<Rows> {
        let (first, others) = inputs.first()?.dims.as_ref()?.split_first()?;
        let Dim::Named(name) = first else { return None };
        let is_rows = |dim: &Dim| matches!(dim, Dim::Named(other) if other == name);
        if others.iter().any(is_rows) || outputs.is_empty() {
            return None;
        }
        let free = |value: &Value| {
            let dims = value.dims.as_ref().and_then(|dims| dims.split_first());
            let whole_bytes =
                value.dtype.and_then(DataType::bits).is_some_and(|bits| bits % 8 == 0);
            whole_bytes
                && dims.is_some_and(|(first, rest)| is_rows(first) && !rest.iter().any(is_rows))
        };
        if !inputs.iter().chain(outputs).all(free) {
            return None;
        }
        let inputs = inputs.iter().filter_map(|input| Some((input.name.clone(), input.dtype?)));
        Some(Rows { inputs: inputs.collect() })
    }

    /// How many rows a request has, and what has to be equal for another to go with it. `None`
    /// for one that does not fit the model; the device says what is wrong with it.
    pub(crate) fn shape(&self, given: &Inputs) -> Option<(usize, Arc<[usize]>)> {
        if given.len() != self.inputs.len() {
            return None;
        }
        let mut rows = None;
        let mut shape = Vec::new();
        for (name, dtype) in &self.inputs {
            let (_, tensor) = given.iter().find(|(given, _)| given == name)?;
            let (&first, rest) = tensor.dims().split_first()?;
            if tensor.dtype() != *dtype || first == 0 || *rows.get_or_insert(first) != first {
                return None;
            }
            shape.push(rest.len());
            shape.extend(rest);
        }
        Some((rows?, shape.into()))
    }

    /// One request of several, which have the same shape. Every byte is copied once.
    pub(crate) fn merge(&self, requests: &[&Inputs]) -> Inputs {
        let merged = self.inputs.iter().filter_map(|(name, dtype)| {
            let parts = requests.iter().filter_map(|request| {
                request.iter().find(|(given, _)| given == name).map(|(_, tensor)| tensor)
            });
            let parts: Vec<&Tensor> = parts.collect();
            let mut bytes = BytesMut::with_capacity(parts.iter().map(|t| t.bytes().len()).sum());
            parts.iter().for_each(|tensor| bytes.extend_from_slice(tensor.bytes()));
            let mut dims = parts.first()?.dims().to_vec();
            *dims.first_mut()? = parts.iter().filter_map(|tensor| tensor.dims().first()).sum();
            let tensor = Tensor::new(*dtype, dims, bytes.freeze()).ok()?;
            Some((name.clone(), tensor))
        });
        merged.collect()
    }
}

/// Takes the outputs of a batch apart, without copying. `None` if they are not the rows that were
/// asked for.
pub(crate) fn split(outputs: &[Returned], rows: &[usize]) -> Option<Vec<Vec<Returned>>> {
    let total: usize = rows.iter().sum();
    let mut parts: Vec<Vec<Returned>> = rows.iter().map(|_| Vec::new()).collect();
    for Returned { step, name, tensor } in outputs {
        let (&first, rest) = tensor.dims().split_first()?;
        if first != total || total == 0 {
            return None;
        }
        let row_bytes = tensor.bytes().len() / total;
        let mut start = 0;
        for (part, &rows) in parts.iter_mut().zip(rows) {
            let end = start + rows * row_bytes;
            let bytes: Bytes = tensor.bytes().slice(start..end);
            let dims = [rows].into_iter().chain(rest.iter().copied()).collect();
            let tensor = Tensor::new(tensor.dtype(), dims, bytes).ok()?;
            part.push(Returned { step: *step, name: name.clone(), tensor });
            start = end;
        }
    }
    Some(parts)
}

/// Whether no two of these are the same. A model that mixes rows may give the right answer for
/// rows that are all alike, so these prove nothing.
pub(crate) fn all_differ(requests: &[&Inputs]) -> bool {
    requests.iter().enumerate().all(|(position, one)| {
        requests[..position].iter().all(|other| {
            one.iter().any(|(name, tensor)| {
                !other.iter().any(|(given, same)| given == name && same == tensor)
            })
        })
    })
}

/// Whether two runs gave the same bits.
pub(crate) fn same_bits(left: &[Returned], right: &[Returned]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).all(|(a, b)| a.name == b.name && a.tensor == b.tensor)
}

#[cfg(test)]
mod tests {
    use holdfast_testkit::{fixed, named};

    use super::*;

    fn value(name: &str, dtype: DataType, dims: &[Dim]) -> Value {
        Value { name: name.to_owned(), dtype: Some(dtype), dims: Some(dims.to_vec()) }
    }

    fn f32s(name: &str, dims: &[Dim]) -> Value {
        value(name, DataType::F32, dims)
    }

    #[test]
    fn rows_are_free_if_everything_has_them_first() {
        let ids = value("ids", DataType::I64, &[named("batch"), named("tokens")]);
        let hidden = f32s("hidden", &[named("batch"), named("tokens"), fixed(4)]);
        assert!(Rows::of(&[ids], &[hidden]).is_some());
        assert!(Rows::of(&[f32s("x", &[named("n")])], &[f32s("y", &[named("n")])]).is_some());
    }

    #[test]
    fn rows_are_not_free_if_anything_says_otherwise() {
        let x = || f32s("x", &[named("n"), fixed(3)]);
        let y = || f32s("y", &[named("n"), fixed(2)]);
        let cases = [
            ("no inputs", vec![], vec![y()]),
            ("no outputs", vec![x()], vec![]),
            ("a fixed size", vec![f32s("x", &[fixed(1)])], vec![y()]),
            ("an unknown size", vec![f32s("x", &[Dim::Unknown])], vec![y()]),
            ("a scalar input", vec![x(), f32s("s", &[])], vec![y()]),
            ("another name", vec![x(), f32s("z", &[named("m")])], vec![y()]),
            ("an output without rows", vec![x()], vec![y(), f32s("z", &[fixed(2)])]),
            ("an output of another name", vec![x()], vec![f32s("y", &[named("m")])]),
            ("rows in a second place", vec![x()], vec![f32s("y", &[named("n"), named("n")])]),
            ("rows behind", vec![f32s("x", &[fixed(2), named("n")])], vec![y()]),
            ("half a byte", vec![value("x", DataType::U4, &[named("n")])], vec![y()]),
        ];
        for (what, inputs, outputs) in cases {
            assert_eq!(Rows::of(&inputs, &outputs), None, "{what}");
        }
    }

    fn rows() -> Rows {
        let x = f32s("x", &[named("n"), named("m")]);
        Rows::of(&[x], &[f32s("y", &[named("n")])]).unwrap()
    }

    fn request(dims: &[usize], values: &[f32]) -> Inputs {
        vec![("x".to_owned(), Tensor::from_slice(dims, values).unwrap())]
    }

    #[test]
    fn what_is_merged_comes_apart_the_same() {
        let (one, two) = (request(&[1, 2], &[1.0, 2.0]), request(&[2, 2], &[3.0, 4.0, 5.0, 6.0]));
        let (first, second) = (rows().shape(&one).unwrap(), rows().shape(&two).unwrap());
        assert_eq!((first.0, second.0), (1, 2));
        assert_eq!(first.1, second.1);
        let merged = rows().merge(&[&one, &two]);
        assert_eq!(merged, request(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        let [(name, tensor)] = &merged[..] else { panic!() };
        let returned = Returned { step: 0, name: name.clone(), tensor: tensor.clone() };
        let parts = split(&[returned], &[1, 2]).unwrap();
        assert_eq!(parts[0][0].tensor, one[0].1);
        assert_eq!(parts[1][0].tensor, two[0].1);
        // Not a copy: a window of the same memory.
        assert_eq!(parts[0][0].tensor.bytes().as_ptr(), tensor.bytes().as_ptr());
    }

    #[test]
    fn what_does_not_fit_is_not_merged() {
        let other = request(&[1, 3], &[1.0, 2.0, 3.0]);
        let shape = rows().shape(&request(&[1, 2], &[1.0, 2.0])).unwrap().1;
        assert_ne!(rows().shape(&other).unwrap().1, shape);
        let wrong = vec![("x".to_owned(), Tensor::zeros(DataType::I64, &[1, 2]).unwrap())];
        assert_eq!(rows().shape(&wrong), None);
        assert_eq!(rows().shape(&vec![]), None);
        let returned = Returned { step: 0, name: "y".to_owned(), tensor: other[0].1.clone() };
        assert!(split(&[returned], &[1, 2]).is_none(), "it has one row, not three");
    }

    #[test]
    fn rows_that_are_alike_prove_nothing() {
        let (one, two) = (request(&[1, 2], &[1.0, 2.0]), request(&[1, 2], &[1.0, 3.0]));
        assert!(all_differ(&[&one, &two]));
        assert!(!all_differ(&[&one, &two, &one]));
    }
}
