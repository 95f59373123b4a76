//! Hashing on all cores.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use holdfast_graph::{Digest, Model, WeightTable};

/// The weights of a model, hashed on all cores.
pub fn hashed_weights(model: &Model) -> WeightTable {
    WeightTable::hashed_by(model, |weights| {
        let slices: Vec<&[u8]> = weights.iter().map(|weight| &weight.tensor.bytes()[..]).collect();
        hash_all(&slices)
    })
}

/// The weights of a model whose bytes mostly lie where others do, whose digests are known: what
/// is the same memory is not hashed again.
pub fn hashed_like<'a>(
    model: &Model,
    known: impl IntoIterator<Item = (&'a [u8], Digest)>,
) -> WeightTable {
    let place = |bytes: &[u8]| (bytes.as_ptr() as usize, bytes.len());
    let known: HashMap<(usize, usize), Digest> =
        known.into_iter().map(|(bytes, digest)| (place(bytes), digest)).collect();
    WeightTable::hashed_by(model, |weights| {
        let digest = |weight: &holdfast_graph::Weight| {
            let bytes = weight.tensor.bytes();
            known.get(&place(bytes)).copied().unwrap_or_else(|| Digest::of(bytes))
        };
        weights.iter().map(digest).collect()
    })
}

/// The digests of several slices, in their order.
pub fn hash_all(slices: &[&[u8]]) -> Vec<Digest> {
    // The largest first, so that no core is left with a long one at the end.
    let mut by_size: Vec<usize> = (0..slices.len()).collect();
    by_size.sort_by_key(|&index| std::cmp::Reverse(slices[index].len()));
    let next = AtomicUsize::new(0);
    let digests = Mutex::new(vec![None; slices.len()]);
    let work = || {
        let mut own = Vec::new();
        while let Some(&index) = by_size.get(next.fetch_add(1, Ordering::Relaxed)) {
            own.push((index, Digest::of(slices[index])));
        }
        let mut digests = digests.lock().expect("hashing does not panic");
        own.into_iter().for_each(|(index, digest)| digests[index] = Some(digest));
    };
    let total: usize = slices.iter().map(|slice| slice.len()).sum();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    // Starting a thread takes as long as hashing some tens of kilobytes.
    let helpers = (cores - 1).min(total >> 18).min(slices.len().saturating_sub(1));
    thread::scope(|scope| {
        (0..helpers).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    let digests = digests.into_inner().expect("hashing does not panic");
    digests.into_iter().map(|digest| digest.expect("every slice was hashed")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_order_of_the_slices() {
        let buffers: Vec<Vec<u8>> =
            (0..50u8).map(|i| vec![i; 40_000 * usize::from(i % 7)]).collect();
        let slices: Vec<&[u8]> = buffers.iter().map(Vec::as_slice).collect();
        let one_by_one: Vec<Digest> = slices.iter().map(|slice| Digest::of(slice)).collect();
        assert_eq!(hash_all(&slices), one_by_one);
        assert_eq!(hash_all(&[]), []);
    }
}
