//! Sharing: what several models have in common becomes trunks, what is left becomes heads.
//!
//! ```text
//! Member ─► Net ──┐
//! Member ─► Net ──┼─► views ─► classes ─► trunks ─► pieces ─► SharePlan
//! Member ─► Net ──┘  (which    (equal     (what is   (as
//!                     input is  nodes      worth      models)
//!                     which)    are one)   sharing)
//! ```
//!
//! Equal structures are the same function of their leaves, and a piece of a lowered graph has the
//! bits of the whole, so a plan changes no answer.

mod amounts;
mod assemble;
mod classes;
mod differ;
mod dims;
mod dot;
mod flow;
mod layout;
mod net;
mod piece;
mod plan;
mod prices;
mod svg;
mod trunks;
mod views;
mod wiring;

pub use differ::{Difference, Reason};
pub use plan::{Route, Segment, SegmentCost, SegmentKind, SharePlan, Source, Step, StepOutput};
pub use prices::Prices;

use crate::infer::{Bindings, InferError};
use crate::model::Model;
use crate::structure::Fingerprints;
use classes::Classes;
use net::Net;
use trunks::United;

/// A model to share with others.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// What the plan calls it.
    pub name: &'a str,
    /// The lowered model.
    pub model: &'a Model,
    /// Its fingerprints.
    pub prints: &'a Fingerprints,
    /// Typical sizes: what is worth sharing depends on them, what is right does not.
    pub sizes: &'a Bindings,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot tell what it would save to share model `{model}`: {source}")]
pub struct ShareError {
    /// The model's name.
    pub model: String,
    /// What is not known of its inputs.
    pub source: InferError,
}

/// Plans how to run models so that what they have in common is held and computed once.
///
/// Models must be lowered already: cutting is exact only where no optimiser runs afterwards. The
/// plan does not depend on the order of the members.
///
/// ```no_run
/// use holdfast_graph::{Fingerprints, Model, WeightTable, infer::Bindings};
/// use holdfast_graph::share::{Member, Prices, share};
/// let model = Model::open("model.onnx")?;
/// let prints = Fingerprints::new(&model, &WeightTable::new(&model));
/// let sizes = Bindings::new().size("batch", 1).size("sequence", 128);
/// let member = Member { name: "one", model: &model, prints: &prints, sizes: &sizes };
/// let plan = share(&[member, Member { name: "two", ..member }], &Prices::default())?;
/// assert_eq!(plan.segments.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn share(members: &[Member<'_>], prices: &Prices) -> Result<SharePlan, ShareError> {
    // By name, so that the order in which models are given makes no difference.
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|&index| members[index].name);
    let net = |&index: &usize| {
        let member = &members[index];
        let failed = |source| ShareError { model: member.name.to_owned(), source };
        Net::new(member).map_err(failed)
    };
    let nets: Vec<Net<'_>> = order.iter().map(net).collect::<Result<_, _>>()?;
    let views = views::views(&nets, prices);
    let classes = Classes::new(&nets, &views);
    let united = United { nets: &nets, views: &views, classes: &classes, prices };
    let trunks = trunks::trunks(&united);
    let mut plan = assemble::assemble(&united, &trunks);
    plan.differences = differ::differences(&united, &plan);
    plan.reorder(&order);
    Ok(plan)
}
