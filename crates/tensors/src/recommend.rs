//! What a user could do to save memory. Every recommendation is about something that was found,
//! never a general advice.

use std::fmt;

use crate::error::Holder;
use crate::families::SharedKind;
use crate::opportunities::{SameBytes, SharingOpportunities};
use crate::stats::Stats;
use crate::tensor::SharedTensor;

/// One thing that a user could do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recommendation {
    /// Register a tensor once instead of under several names.
    RegisterOnce(SameBytes),
    /// Unpin tensors that nothing but their pin keeps.
    Unpin {
        /// Their names, in order.
        names: Vec<String>,
        /// What could be freed then.
        bytes: u64,
    },
    /// Let go of old versions.
    LetGoOfOldVersions {
        /// Their names, in order.
        names: Vec<String>,
        /// What would be freed.
        bytes: u64,
    },
    /// Raise the budget: tensors were evicted, and lookups missed.
    RaiseBudget {
        /// Tensors and views that were evicted.
        evicted: u64,
        /// Lookups that missed.
        misses: u64,
    },
    /// See whether models of related families are the same function somewhere.
    CompareModels {
        /// What they have by their families.
        kind: SharedKind,
        /// Their names.
        models: Vec<String>,
    },
}

impl fmt::Display for Recommendation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Recommendation::RegisterOnce(same) => write!(
                f,
                "register {} once instead of {} times: saves {} bytes",
                same.names.join(", "),
                same.names.len(),
                same.wasted_bytes()
            ),
            Recommendation::Unpin { names, bytes } => {
                write!(f, "unpin {}, which no model holds: {bytes} bytes", names.join(", "))
            }
            Recommendation::LetGoOfOldVersions { names, bytes } => {
                write!(f, "let go of old versions of {}: {bytes} bytes", names.join(", "))
            }
            Recommendation::RaiseBudget { evicted, misses } => write!(
                f,
                "raise the budget: {evicted} tensors were evicted and {misses} lookups missed"
            ),
            Recommendation::CompareModels { kind, models } => write!(
                f,
                "{} may have a {kind} in common: compare them, and share it by name if it is the same",
                models.join(", ")
            ),
        }
    }
}

pub(crate) fn recommend<'a>(
    stats: &Stats,
    opportunities: SharingOpportunities,
    tensors: impl Iterator<Item = SharedTensor<'a>>,
) -> Vec<Recommendation> {
    let mut recommendations: Vec<Recommendation> =
        opportunities.same_bytes.into_iter().map(Recommendation::RegisterOnce).collect();
    let (mut pinned, mut old) = (Found::default(), Found::default());
    for tensor in tensors {
        if tensor.is_pinned() && tensor.held_by() == [Holder::Pin] {
            pinned.add(tensor);
        }
        if !tensor.is_current() {
            old.add(tensor);
        }
    }
    if let Some((names, bytes)) = pinned.finish() {
        recommendations.push(Recommendation::Unpin { names, bytes });
    }
    if let Some((names, bytes)) = old.finish() {
        recommendations.push(Recommendation::LetGoOfOldVersions { names, bytes });
    }
    if stats.evicted > 0 && stats.misses > 0 {
        let (evicted, misses) = (stats.evicted, stats.misses);
        recommendations.push(Recommendation::RaiseBudget { evicted, misses });
    }
    let compare = |(kind, models)| Recommendation::CompareModels { kind, models };
    recommendations.extend(opportunities.by_family.into_iter().map(compare));
    recommendations
}

#[derive(Default)]
struct Found {
    names: Vec<String>,
    bytes: u64,
}

impl Found {
    fn add(&mut self, tensor: SharedTensor<'_>) {
        self.names.push(tensor.name().to_owned());
        if !tensor.is_view() && tensor.is_ready() {
            self.bytes += tensor.byte_len();
        }
    }

    fn finish(mut self) -> Option<(Vec<String>, u64)> {
        self.names.sort();
        (!self.names.is_empty()).then_some((self.names, self.bytes))
    }
}
