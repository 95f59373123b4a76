//! How far two tensors are apart.

use anyhow::{Result, bail, ensure};
use holdfast_graph::{DataType, Tensor};

/// The largest difference of two elements. Integers differ by nothing or by everything: there is
/// no tolerance for an index.
pub(crate) fn difference(ours: &Tensor, theirs: &Tensor) -> Result<f64> {
    ensure!(ours.dims() == theirs.dims(), "{:?} is not {:?}", ours.dims(), theirs.dims());
    match (ours.dtype(), theirs.dtype()) {
        (DataType::F32, DataType::F32) => {
            let pairs = ours.to_vec::<f32>()?.into_iter().zip(theirs.to_vec::<f32>()?);
            // A number that is not one differs from everything.
            let apart = pairs.map(|(a, b)| f64::from((a - b).abs()));
            Ok(apart.fold(0.0, |worst: f64, difference| {
                if difference.is_nan() { f64::INFINITY } else { worst.max(difference) }
            }))
        }
        (DataType::I64, DataType::I64) | (DataType::I32, DataType::I32) => {
            Ok(if ours.bytes() == theirs.bytes() { 0.0 } else { f64::INFINITY })
        }
        (ours, theirs) => bail!("{ours} and {theirs} are not compared"),
    }
}
