//! What waits: groups of requests that can take each other's place, in order.
//!
//! Everything here is logarithmic in what waits: the heads of all groups are in one order of
//! their own, so that nobody looks through the queue.

use std::collections::btree_map::{self, BTreeMap};
use std::collections::{HashMap, hash_map};
use std::sync::Arc;

use holdfast_devices::SegmentId;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::member::MemberId;
use super::turn::Turn;
use crate::batch::Inputs;
use crate::choice::Choice;
use crate::prepare::Prepared;
use crate::request::Priority;

/// Where a request stands: priority, then arrival. One that comes back after a failure has the
/// number that it came with, and so is first again.
pub(crate) type Order = (Priority, u64);

/// What a request wants to run on right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Wanted {
    pub(crate) choice: Choice,
    /// Whether it only counts if it is an accelerator.
    pub(crate) accelerated: bool,
}

/// What the requests of a group have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupKey {
    pub(crate) wanted: Wanted,
    pub(crate) segment: SegmentId,
    /// The sizes of the inputs but for their rows, where rows are free: requests of one group can
    /// be put together.
    pub(crate) shape: Option<Arc<[usize]>>,
}

/// A request that waits.
pub(crate) struct Waiter {
    pub(crate) since: Instant,
    /// Its inputs and their rows, where it can go with others.
    pub(crate) rows: Option<(usize, Arc<Inputs>)>,
    /// The device that has just failed under it.
    pub(crate) avoid: Option<MemberId>,
    pub(crate) turn: oneshot::Sender<Turn>,
}

pub(crate) struct Group {
    pub(crate) model: Arc<Prepared>,
    pub(crate) waiting: BTreeMap<Order, Waiter>,
}

#[derive(Default)]
pub(crate) struct Queue {
    groups: HashMap<GroupKey, Group>,
    /// The first of each group.
    heads: BTreeMap<Order, GroupKey>,
    by_priority: [usize; Priority::ALL.len()],
    by_segment: HashMap<SegmentId, usize>,
}

impl Queue {
    pub(crate) fn insert(
        &mut self,
        key: &GroupKey,
        order: Order,
        model: &Arc<Prepared>,
        waiter: Waiter,
    ) {
        let group = self
            .groups
            .entry(key.clone())
            .or_insert_with(|| Group { model: model.clone(), waiting: BTreeMap::new() });
        let head = group.waiting.first_key_value().map(|(order, _)| *order);
        group.waiting.insert(order, waiter);
        if head.is_none_or(|head| order < head) {
            if let Some(head) = head {
                self.heads.remove(&head);
            }
            self.heads.insert(order, key.clone());
        }
        self.by_priority[order.0 as usize] += 1;
        *self.by_segment.entry(key.segment).or_default() += 1;
    }

    pub(crate) fn remove(&mut self, key: &GroupKey, order: Order) -> Option<Waiter> {
        let group = self.groups.get_mut(key)?;
        let waiter = group.waiting.remove(&order)?;
        if self.heads.remove(&order).is_some()
            && let Some((head, _)) = group.waiting.first_key_value()
        {
            self.heads.insert(*head, key.clone());
        }
        if group.waiting.is_empty() {
            self.groups.remove(key);
        }
        self.by_priority[order.0 as usize] -= 1;
        if let hash_map::Entry::Occupied(mut count) = self.by_segment.entry(key.segment) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        Some(waiter)
    }

    /// Takes the first of a group.
    pub(crate) fn pop(&mut self, key: &GroupKey) -> Option<(Order, Waiter)> {
        let order = *self.groups.get(key)?.waiting.first_key_value()?.0;
        Some((order, self.remove(key, order)?))
    }

    /// Takes all of the groups that fit.
    pub(crate) fn take(&mut self, fits: impl Fn(&GroupKey) -> bool) -> Vec<(Order, Waiter)> {
        let keys: Vec<GroupKey> = self.groups.keys().filter(|key| fits(key)).cloned().collect();
        let mut taken = Vec::new();
        for key in keys {
            while let Some(waiter) = self.pop(&key) {
                taken.push(waiter);
            }
        }
        taken
    }

    /// The groups, the one with the best head first.
    pub(crate) fn in_order(&self) -> btree_map::Values<'_, Order, GroupKey> {
        self.heads.values()
    }

    pub(crate) fn group(&self, key: &GroupKey) -> Option<&Group> {
        self.groups.get(key)
    }

    pub(crate) fn waits_for(&self, segment: &SegmentId) -> bool {
        self.by_segment.contains_key(segment)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// How many wait, by priority.
    pub(crate) fn lengths(&self) -> [usize; Priority::ALL.len()] {
        self.by_priority
    }

    /// When the one that waits longest of those in front came.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        let heads = self.heads.iter();
        heads.filter_map(|(order, key)| Some(self.groups.get(key)?.waiting.get(order)?.since)).min()
    }
}
