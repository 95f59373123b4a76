//! What waits: groups of requests that can take each other's place, in order.
//!
//! Everything here is logarithmic in what waits: the heads of all groups are in one order of
//! their own, so that nobody looks through the queue.

use std::collections::btree_map::{self, BTreeMap};
use std::collections::{HashMap, hash_map};
use std::sync::Arc;

use holdfast_devices::SegmentId;
use holdfast_graph::Digest;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::member::{KindId, MemberId};
use super::turn::Turn;
use crate::batch::Inputs;
use crate::choice::Choice;
use crate::request::Priority;
use crate::route::Prepared;
use crate::values::Values;

/// Where a request stands: priority, then arrival. One that comes back after a failure has the
/// number that it came with, and so is first again.
pub(crate) type Order = (Priority, u64);

/// What a request wants to run on right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Wanted {
    pub(crate) choice: Choice,
    /// Whether it only counts if it is an accelerator.
    pub(crate) accelerated: bool,
    /// The one kind of devices that it is about, for whoever tries what devices of a kind do.
    pub(crate) kind: Option<KindId>,
}

impl Wanted {
    pub(crate) fn new(choice: Choice, accelerated: bool) -> Wanted {
        Wanted { choice, accelerated, kind: None }
    }
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
    /// Its inputs, where it may run with others.
    pub(crate) inputs: Option<Arc<Inputs>>,
    /// Its rows, where it can be put together with others of its group.
    pub(crate) rows: Option<usize>,
    /// What it computes on its way, where other models may need that too.
    pub(crate) values: Option<Arc<Values>>,
    /// The device that has just failed under it.
    pub(crate) avoid: Option<MemberId>,
    pub(crate) turn: oneshot::Sender<Turn>,
}

impl Waiter {
    /// What it needs that other models may need too.
    pub(crate) fn trunks(&self) -> &[Digest] {
        self.values.as_ref().map_or(&[], |values| &values.trunks)
    }
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
    /// Who needs a value that several models may need.
    by_value: HashMap<Digest, BTreeMap<Order, GroupKey>>,
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
        for value in waiter.trunks() {
            self.by_value.entry(*value).or_default().insert(order, key.clone());
        }
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

    /// How many wait for a graph, as it was imported, on this.
    pub(crate) fn waiting_on(&self, graph: Digest, wanted: Wanted) -> usize {
        let groups = self.groups.iter();
        let of_graph =
            groups.filter(|(key, group)| key.wanted == wanted && group.model.original == graph);
        of_graph.map(|(_, group)| group.waiting.len()).sum()
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
        for value in waiter.trunks() {
            if let hash_map::Entry::Occupied(mut waiting) = self.by_value.entry(*value) {
                waiting.get_mut().remove(&order);
                if waiting.get().is_empty() {
                    waiting.remove();
                }
            }
        }
        Some(waiter)
    }

    /// Who waits for a value, in order.
    pub(crate) fn waiting_for(&self, value: &Digest) -> impl Iterator<Item = (Order, &GroupKey)> {
        self.by_value.get(value).into_iter().flatten().map(|(order, key)| (*order, key))
    }

    /// Takes the first of a group.
    pub(crate) fn pop(&mut self, key: &GroupKey) -> Option<(Order, Waiter)> {
        let order = *self.groups.get(key)?.waiting.first_key_value()?.0;
        Some((order, self.remove(key, order)?))
    }

    /// Takes all of the groups that fit.
    pub(crate) fn take(
        &mut self,
        fits: impl Fn(&GroupKey, &Prepared) -> bool,
    ) -> Vec<(Order, Waiter)> {
        let groups = self.groups.iter().filter(|(key, group)| fits(key, &group.model));
        let keys: Vec<GroupKey> = groups.map(|(key, _)| key.clone()).collect();
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
