//! Weights drawn by seed and name.
//!
//! A weight depends on nothing but the seed, its name, its shape and its distribution. That is
//! what makes families: models that draw a weight by the same name from the same source have
//! it in common, byte for byte, and in memory too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use holdfast_graph::{DataType, Tensor, TensorError};

use crate::numbers::Numbers;

/// A source of weights. Clones share what was drawn.
#[derive(Clone, Debug)]
pub struct Weights {
    seed: u64,
    drawn: Arc<Mutex<HashMap<Key, Bytes>>>,
}

/// What a weight depends on, apart from the seed.
type Key = (String, Vec<usize>, [u32; 2]);

/// A bell-shaped distribution (a sum of four uniform numbers, so it has no far tails).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Init {
    /// The middle.
    pub mean: f32,
    /// The standard deviation.
    pub deviation: f32,
}

impl Init {
    /// Keeps the variance of what passes through a matrix with this many rows.
    pub fn fan_in(rows: usize) -> Init {
        Init { mean: 0.0, deviation: 1.0 / (rows.max(1) as f32).sqrt() }
    }

    /// Small numbers around zero.
    pub fn bias() -> Init {
        Init { mean: 0.0, deviation: 0.02 }
    }

    /// Numbers around one, as the scale of a normalisation has. Not all ones: every layer of
    /// a trained model has its own.
    pub fn scale() -> Init {
        Init { mean: 1.0, deviation: 0.1 }
    }

    /// Large enough that what follows depends on the token even without a normalisation.
    pub fn embedding() -> Init {
        Init { mean: 0.0, deviation: 0.5 }
    }
}

impl Weights {
    /// The weights that belong to a seed.
    pub fn new(seed: u64) -> Weights {
        Weights { seed, drawn: Arc::default() }
    }

    /// Other weights under the same names, for what is not in common within a family.
    pub fn variant(&self, label: &str) -> Weights {
        Weights::new(Numbers::labelled(self.seed, label).next_u64())
    }

    /// The weight of this name; the second time the same bytes are handed out again.
    /// Fails where memory cannot hold that many elements.
    pub fn draw(&self, name: &str, dims: &[usize], init: Init) -> Result<Tensor, TensorError> {
        let bits = [init.mean.to_bits(), init.deviation.to_bits()];
        let key = (name.to_owned(), dims.to_vec(), bits);
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = drawn.get(&key) {
            return Tensor::new(DataType::F32, key.1, bytes.clone());
        }
        let mut numbers = Numbers::labelled(self.seed, name);
        let bytes = fill(&mut numbers, byte_len(dims)?, init);
        let tensor = Tensor::new(DataType::F32, dims.to_vec(), bytes.clone())?;
        drawn.insert(key, bytes);
        Ok(tensor)
    }
}

fn byte_len(dims: &[usize]) -> Result<usize, TensorError> {
    let too_many = || TensorError::TooManyElements(dims.iter().map(|&dim| dim as i64).collect());
    dims.iter()
        .try_fold(size_of::<f32>(), |len, &dim| len.checked_mul(dim))
        .filter(|&len| len <= isize::MAX as usize)
        .ok_or_else(too_many)
}

/// Integers and one IEEE multiplication and addition a number: the same bits everywhere.
fn fill(numbers: &mut Numbers, byte_len: usize, init: Init) -> Bytes {
    /// The standard deviation of the sum of four uniform 16-bit numbers.
    const SUM_DEVIATION: f32 = 37_837.23;
    const SUM_MEAN: i32 = 2 * 0xffff;
    let step = init.deviation / SUM_DEVIATION;
    let mut bytes = vec![0u8; byte_len];
    for element in bytes.chunks_exact_mut(size_of::<f32>()) {
        let bits = numbers.next_u64();
        let sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
        let value = init.mean + (sum as i32 - SUM_MEAN) as f32 * step;
        element.copy_from_slice(&value.to_le_bytes());
    }
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(seed: u64, name: &str, init: Init) -> Vec<f32> {
        Weights::new(seed).draw(name, &[64, 64], init).unwrap().to_vec().unwrap()
    }

    #[test]
    fn has_these_bits_on_every_platform() {
        let bits: Vec<u32> =
            values(1, "a", Init::bias())[..3].iter().map(|value| value.to_bits()).collect();
        // Computed apart from this code, with numpy.
        assert_eq!(bits, [1_011_524_650, 3_156_202_857, 3_145_058_090]);
    }

    #[test]
    fn has_the_distribution_asked_for() {
        let values = values(1, "a", Init { mean: 1.0, deviation: 0.1 });
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        let variance =
            values.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / values.len() as f32;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        assert!((variance.sqrt() - 0.1).abs() < 0.005, "{variance}");
    }

    #[test]
    fn differs_by_seed_name_and_variant() {
        let one = values(1, "a", Init::bias());
        assert_eq!(one, values(1, "a", Init::bias()));
        assert_ne!(one, values(2, "a", Init::bias()));
        assert_ne!(one, values(1, "b", Init::bias()));
        let variant = Weights::new(1).variant("head").draw("a", &[64, 64], Init::bias());
        assert_ne!(one, variant.unwrap().to_vec::<f32>().unwrap());
    }

    #[test]
    fn draws_once_and_shares_the_bytes() {
        let weights = Weights::new(1);
        let one = weights.draw("a", &[8], Init::bias()).unwrap();
        let two = weights.clone().draw("a", &[8], Init::bias()).unwrap();
        assert_eq!(one.bytes().as_ptr(), two.bytes().as_ptr());
        let other_shape = weights.draw("a", &[4], Init::bias()).unwrap();
        assert_ne!(one.bytes().as_ptr(), other_shape.bytes().as_ptr());
    }

    #[test]
    fn refuses_more_elements_than_memory_can_hold() {
        let result = Weights::new(1).draw("a", &[usize::MAX, 2], Init::bias());
        assert!(matches!(result, Err(TensorError::TooManyElements(_))));
    }
}
