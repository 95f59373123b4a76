//! Where models might share: hints by family, and tensors that are kept twice.

use std::collections::BTreeMap;

use holdfast_graph::{DataType, Digest};

use crate::families::{Family, SharedKind};
use crate::tensor::SharedTensor;

/// What models might share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharingOpportunities {
    /// Models whose families have tensors of one kind. Only a hint for who shares by name: their
    /// tensors mean different things unless the models are the same function there.
    pub by_family: Vec<(SharedKind, Vec<String>)>,
    /// Tensors of the host with the same type, dimensions and bytes under several names.
    pub same_bytes: Vec<SameBytes>,
}

/// One tensor, registered under several names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SameBytes {
    /// The names, in order.
    pub names: Vec<String>,
    /// What one of them takes.
    pub bytes: u64,
}

impl SameBytes {
    /// What would be saved if it were registered once.
    pub fn wasted_bytes(&self) -> u64 {
        self.bytes * (self.names.len() as u64 - 1)
    }
}

pub(crate) fn analyze<'a>(
    models: &[String],
    tensors: impl Iterator<Item = SharedTensor<'a>>,
) -> SharingOpportunities {
    SharingOpportunities { by_family: by_family(models), same_bytes: same_bytes(tensors) }
}

fn by_family(models: &[String]) -> Vec<(SharedKind, Vec<String>)> {
    let of_kind = |kind: SharedKind| {
        let fits = |family: Family| kind.families().contains(&family);
        let fitting: Vec<String> = models
            .iter()
            .filter(|name| Family::of_model(name).is_some_and(fits))
            .cloned()
            .collect();
        (fitting.len() > 1).then_some((kind, fitting))
    };
    SharedKind::ALL.into_iter().filter_map(of_kind).collect()
}

fn same_bytes<'a>(tensors: impl Iterator<Item = SharedTensor<'a>>) -> Vec<SameBytes> {
    // Few tensors have the same type and dimensions by chance; only these are hashed.
    let mut alike: BTreeMap<(DataType, &[usize]), Vec<SharedTensor<'a>>> = BTreeMap::new();
    for tensor in tensors {
        if tensor.bytes().is_some_and(|bytes| !bytes.is_empty()) && tensor.is_current() {
            alike.entry((tensor.dtype(), tensor.dims())).or_default().push(tensor);
        }
    }
    let mut found = Vec::new();
    for tensors in alike.into_values().filter(|tensors| tensors.len() > 1) {
        let mut equal: BTreeMap<Digest, Vec<String>> = BTreeMap::new();
        let bytes = tensors[0].byte_len();
        for tensor in tensors {
            let digest = tensor.bytes().map(|bytes| Digest::of(bytes));
            equal.entry(digest.unwrap_or(Digest([0; 32]))).or_default().push(tensor.name().into());
        }
        for mut names in equal.into_values().filter(|names| names.len() > 1) {
            names.sort();
            found.push(SameBytes { names, bytes });
        }
    }
    found.sort_by(|a, b| (b.wasted_bytes(), &a.names).cmp(&(a.wasted_bytes(), &b.names)));
    found
}
