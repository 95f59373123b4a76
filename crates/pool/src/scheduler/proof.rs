//! What is known about batches: whether rows keep their bits.
//!
//! The first batch of a model, of so many rows of one shape on one kind of device, runs twice: as
//! a batch and one by one. Only if all bits are equal are such batches used from then on. The
//! shape counts, because engines compute small products in other ways than large ones. Only
//! powers of two are tried, so that there are few proofs.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_devices::SegmentId;

use super::queue::{GroupKey, Queue, Waiter};
use crate::batch::{Inputs, all_differ};

/// What a batch was of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Claim {
    pub(crate) segment: SegmentId,
    pub(crate) shape: Arc<[usize]>,
    pub(crate) rows: usize,
    /// What computed it.
    pub(crate) kind: Arc<str>,
}

/// How many requests from the front go together.
pub(crate) struct Fit {
    pub(crate) count: usize,
    pub(crate) claim: Claim,
    /// Whether they run one by one as well.
    pub(crate) prove: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is being tried.
    Underway,
    /// Rows keep their bits.
    Holds,
    /// They do not.
    Differs,
}

#[derive(Default)]
pub(crate) struct Proofs {
    verdicts: HashMap<Claim, Verdict>,
}

/// Requests that run together.
pub(crate) struct Gathered {
    pub(crate) claim: Claim,
    pub(crate) members: Vec<(Waiter, usize, Arc<Inputs>)>,
    /// Whether they run one by one as well.
    pub(crate) prove: bool,
}

/// Claims that are remembered. Past this all are forgotten, and proven again.
const LIMIT: usize = 8192;

impl Proofs {
    /// What of these, each with its rows, can go together from the front on; `None` if the first goes
    /// alone. They are of one model and one shape, which `of` tells, whatever its rows.
    pub(crate) fn fit<'a>(
        &self,
        of: &Claim,
        requests: impl Iterator<Item = (usize, &'a Inputs)>,
        max_batch: usize,
    ) -> Option<Fit> {
        let mut inputs: Vec<&Inputs> = Vec::new();
        let mut rows = 0;
        let mut best: Option<Fit> = None;
        for (more, given) in requests {
            rows += more;
            inputs.push(given);
            if rows > max_batch {
                break;
            }
            if !rows.is_power_of_two() || inputs.len() < 2 {
                continue;
            }
            let claim = Claim { rows, ..of.clone() };
            let prove = match self.verdicts.get(&claim) {
                Some(Verdict::Holds) => false,
                None if all_differ(&inputs) => true,
                None | Some(Verdict::Underway | Verdict::Differs) => continue,
            };
            best = Some(Fit { count: inputs.len(), claim, prove });
        }
        best
    }

    /// Takes from the front of a group what can go together; `None` if the first goes alone.
    pub(crate) fn gather(
        &mut self,
        queue: &mut Queue,
        key: &GroupKey,
        kind: &Arc<str>,
        max_batch: usize,
    ) -> Option<Gathered> {
        let shape = key.shape.as_ref()?;
        let group = queue.group(key)?;
        if group.waiting.len() < 2 || max_batch < 2 {
            return None;
        }
        let (segment, shape, kind) = (key.segment, shape.clone(), kind.clone());
        let of = Claim { segment, shape, rows: 0, kind };
        let waiting = group.waiting.values();
        let waiting = waiting.map_while(|waiter| Some((waiter.rows?, waiter.inputs.as_deref()?)));
        let Fit { count, claim, prove } = self.fit(&of, waiting, max_batch)?;
        if prove {
            if self.verdicts.len() >= LIMIT {
                self.verdicts.retain(|_, verdict| *verdict == Verdict::Underway);
            }
            self.verdicts.insert(claim.clone(), Verdict::Underway);
        }
        let members = (0..count).filter_map(|_| {
            let (_, mut waiter) = queue.pop(key)?;
            let (rows, inputs) = (waiter.rows.take()?, waiter.inputs.take()?);
            Some((waiter, rows, inputs))
        });
        let members = members.collect();
        Some(Gathered { claim, members, prove })
    }

    /// What came of a try; `None` if it was interrupted.
    pub(crate) fn settle(&mut self, claim: &Claim, verdict: Option<Verdict>) {
        match verdict {
            Some(verdict) => drop(self.verdicts.insert(claim.clone(), verdict)),
            None => drop(self.verdicts.remove(claim)),
        }
    }

    /// How many hold, and how many do not.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let count = |wanted| self.verdicts.values().filter(|verdict| **verdict == wanted).count();
        (count(Verdict::Holds), count(Verdict::Differs))
    }
}
