//! What can go wrong with shared tensors.

use std::fmt;

use holdfast_graph::{DataType, TensorError};

use crate::slots::TensorId;
use crate::storage::Place;
use crate::window::WindowError;

/// Why something could not be done with a shared tensor. Nothing was changed by it, but
/// for counts of lookups and the order of use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum SharingError {
    #[error("no tensor is named `{name}`: register or declare it first")]
    NotFound { name: String },
    #[error(
        "tensor {id} is no longer there: it was freed, or replaced and let go; look it up by its name"
    )]
    Gone { id: TensorId },
    #[error(
        "`{name}` is declared, but its bytes have not arrived: register it with its bytes first"
    )]
    NotReady { name: String },
    #[error("`{name}` cannot be a name: use 1 to 256 bytes without control characters")]
    BadName { name: String },
    #[error("`{name}` is there already: register it to replace it by a new version")]
    AlreadyThere { name: String },
    #[error("`{name}` was declared as {declared}, not as {given}: free it to declare it anew")]
    DeclaredOtherwise { name: String, declared: String, given: String },
    #[error("tensors of {dtype} have no fixed size and cannot be shared")]
    NoFixedSize { dtype: DataType },
    #[error("`{name}`: {source}")]
    Tensor { name: String, source: TensorError },
    #[error("the view of `{name}` is not possible: {source}")]
    Window { name: String, source: WindowError },
    #[error(
        "the elements of view `{name}` do not lie in bytes of their own, one after the other: materialise it"
    )]
    NotContiguous { name: String },
    #[error("`{name}` is in {place}: copy it to the host to read it")]
    NotOnHost { name: String, place: Place },
    #[error("`{model}` neither made `{name}` nor holds it, and cannot share it")]
    NotItsModel { name: String, model: String },
    #[error("`{name}` cannot be freed: {}", join(held_by))]
    Held { name: String, held_by: Vec<Holder> },
    #[error(transparent)]
    OverBudget(Box<OverBudget>),
    #[error(
        "there are {limit} tensors and views, the most that are allowed, and all are in use: release some"
    )]
    TooMany { limit: usize },
    #[error("a transfer to the host has to bring {expected} bytes, but brought {found}")]
    WrongLength { expected: u64, found: u64 },
}

impl SharingError {
    /// The kind of error in one word, the same in every language.
    pub fn kind(&self) -> &'static str {
        match self {
            SharingError::NotFound { .. } => "not_found",
            SharingError::Gone { .. } => "gone",
            SharingError::NotReady { .. } => "not_ready",
            SharingError::BadName { .. } => "bad_name",
            SharingError::AlreadyThere { .. } => "already_there",
            SharingError::DeclaredOtherwise { .. } => "declared_otherwise",
            SharingError::NoFixedSize { .. } => "no_fixed_size",
            SharingError::Tensor { .. } => "bad_tensor",
            SharingError::Window { .. } => "bad_window",
            SharingError::NotContiguous { .. } => "not_contiguous",
            SharingError::NotOnHost { .. } => "not_on_host",
            SharingError::NotItsModel { .. } => "not_its_model",
            SharingError::Held { .. } => "held",
            SharingError::OverBudget(_) => "over_budget",
            SharingError::TooMany { .. } => "too_many",
            SharingError::WrongLength { .. } => "wrong_length",
        }
    }
}

/// A tensor does not fit into the budget, even if all that is idle were evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverBudget {
    /// The tensor that does not fit.
    pub name: String,
    /// Its bytes.
    pub needed_bytes: u64,
    /// What all tensors may take together.
    pub budget_bytes: u64,
    /// What tensors take that are in use, transfers under way included.
    pub held_bytes: u64,
    /// What could be freed if it were let go: the caller's own tensors, those first that were not
    /// used for the longest time. Not more than [`OverBudget::LISTED`] are looked at.
    pub could_be_freed: Vec<HeldTensor>,
    /// Bytes of tensors that are in use and not in the list.
    pub other_bytes: u64,
}

impl OverBudget {
    /// How many tensors are looked at for the list.
    pub const LISTED: usize = 16;
}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OverBudget { name, needed_bytes, budget_bytes, held_bytes, .. } = self;
        write!(
            f,
            "`{name}` needs {needed_bytes} bytes, but of the budget of {budget_bytes}, {held_bytes} are in use"
        )?;
        for tensor in &self.could_be_freed {
            let HeldTensor { name, version, bytes, held_by } = tensor;
            write!(f, "; `{name}` version {version} ({bytes} bytes): {}", join(held_by))?;
        }
        if self.other_bytes > 0 {
            write!(f, "; others: {} bytes", self.other_bytes)?;
        }
        f.write_str(". Let go of what is not needed, or raise the budget")
    }
}

impl std::error::Error for OverBudget {}

/// A tensor that is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldTensor {
    /// Its name.
    pub name: String,
    /// Which version of that name.
    pub version: u32,
    /// What would be freed.
    pub bytes: u64,
    /// What keeps it.
    pub held_by: Vec<Holder>,
}

/// What keeps a tensor from being freed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// It is pinned.
    Pin,
    /// A model has acquired it, so many times.
    Model {
        /// The model.
        model: String,
        /// How often.
        references: u64,
    },
    /// A model has acquired views of it.
    Views {
        /// The model.
        model: String,
        /// How many views.
        views: u32,
    },
    /// So many of its views are pinned.
    PinnedViews(u32),
    /// It is being copied, so many times.
    Transfers(u32),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Pin => f.write_str("pinned"),
            Holder::Model { model, references } => {
                write!(f, "acquired by `{model}` × {references}")
            }
            Holder::Views { model, views } => write!(f, "{views} views acquired by `{model}`"),
            Holder::PinnedViews(views) => write!(f, "{views} pinned views"),
            Holder::Transfers(transfers) => write!(f, "{transfers} transfers under way"),
        }
    }
}

fn join(holders: &[Holder]) -> String {
    holders.iter().map(Holder::to_string).collect::<Vec<_>>().join(", ")
}
