//! What tensors and models take.

use holdfast_graph::DataType;

use crate::error::Holder;
use crate::slots::TensorId;
use crate::storage::Place;

/// What one tensor, declaration or view takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorUsage {
    /// What identifies it.
    pub id: TensorId,
    /// Its name.
    pub name: String,
    /// Which version of its name.
    pub version: u32,
    /// The element type.
    pub dtype: DataType,
    /// The dimensions.
    pub dims: Vec<usize>,
    /// Where it is.
    pub place: Place,
    /// Bytes that count against the budget: none for views and declarations.
    pub bytes: u64,
    /// What keeps it.
    pub held_by: Vec<Holder>,
}

/// What one model keeps from being freed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelUsage {
    /// Tensors and views that it acquired.
    pub tensors: usize,
    /// Bytes of the tensors that it keeps, by itself or through views, each counted once.
    pub bytes: u64,
    /// The part of these that other models keep too.
    pub shared_bytes: u64,
}

/// What freeing everything idle has brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Optimized {
    /// Bytes of all tensors before.
    pub bytes_before: u64,
    /// And after.
    pub bytes_after: u64,
    /// What was freed: namespace, name and bytes. Views go before the tensors they look into.
    pub freed: Vec<(String, String, u64)>,
}
