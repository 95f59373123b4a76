//! The manager: all shared tensors of one device, or of the host.

mod free;
mod hold;
mod place;
mod register;
mod room;
mod transfer;
mod usage;

use std::time::Duration;

use crate::error::SharingError;
use crate::holds::Holds;
use crate::index::{Index, NameHash, NameHasher};
use crate::interned::Interned;
use crate::key::Key;
use crate::order::Order;
use crate::slots::{Content, Flags, LAST_MS, Listed, Slots, TensorId};
use crate::stats::{Counters, Stats};
use crate::tensor::SharedTensor;
use crate::transfer::Dropped;

pub use register::{Declaration, NewTensor, Source};

/// What a manager may grow to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all tensors together, transfers under way included.
    pub budget_bytes: u64,
    /// Tensors, versions, declarations and views together.
    pub max_entries: usize,
    /// How long a tensor stays that nothing holds and nobody uses; `None` for as long as there
    /// is room.
    pub max_age: Option<Duration>,
}

impl Limits {
    /// A budget, with room for a million entries of any age.
    pub fn budget(budget_bytes: u64) -> Limits {
        Limits { budget_bytes, max_entries: 1 << 20, max_age: None }
    }
}

/// The shared tensors of one device, or of the host. See the crate's documentation.
///
/// No operation has more to do the more tensors there are, but that old uses are cleared away from
/// time to time; those that concern many tensors at once take as long as these are many.
#[derive(Debug)]
pub struct TensorSharingManager {
    limits: Limits,
    now_ms: u64,
    hasher: NameHasher,
    slots: Slots,
    /// The current version of every name.
    names: Index,
    namespaces: Interned,
    models: Interned,
    holds: Holds,
    /// Idle tensors with bytes, in the order in which they are evicted.
    idle: Order,
    /// Idle views and declarations.
    weightless: Order,
    /// Tensors with bytes that something holds.
    held: Order,
    counters: Counters,
    dropped: Vec<Dropped>,
}

impl TensorSharingManager {
    /// A manager without tensors. Its time starts at zero.
    pub fn new(limits: Limits) -> TensorSharingManager {
        TensorSharingManager {
            limits,
            now_ms: 0,
            hasher: NameHasher::default(),
            slots: Slots::default(),
            names: Index::default(),
            namespaces: Interned::default(),
            models: Interned::default(),
            holds: Holds::default(),
            idle: Order::new(Listed::Idle),
            weightless: Order::new(Listed::Weightless),
            held: Order::new(Listed::Held),
            counters: Counters::default(),
            dropped: Vec::new(),
        }
    }

    /// What it may grow to.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Says what time it is, counted in whole milliseconds from any start, and removes what is
    /// over the age limit. Returns how many that were. Time never goes back: an earlier moment
    /// than the last one is taken for the last one.
    pub fn advance_to(&mut self, now: Duration) -> usize {
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(LAST_MS).min(LAST_MS);
        self.now_ms = self.now_ms.max(now_ms);
        self.expire()
    }

    /// The tensor or view of this name, for use: it counts as a hit, and as a use. Where there is
    /// none, or none whose bytes have arrived, it counts as a miss.
    pub fn get<'k>(&mut self, key: impl Into<Key<'k>>) -> Result<SharedTensor<'_>, SharingError> {
        let key = key.into();
        let found = self.current(key, self.hash(key));
        match found.filter(|&slot| self.is_ready(slot)) {
            Some(slot) => {
                self.counters.hits += 1;
                self.touch(slot);
                Ok(SharedTensor::new(self, slot))
            }
            None => {
                self.counters.misses += 1;
                let name = key.name.to_owned();
                Err(match found {
                    Some(_) => SharingError::NotReady { name },
                    None => SharingError::NotFound { name },
                })
            }
        }
    }

    /// The tensor, declaration or view of this name, only to look at it: nothing is counted.
    pub fn find<'k>(&self, key: impl Into<Key<'k>>) -> Option<SharedTensor<'_>> {
        let key = key.into();
        Some(SharedTensor::new(self, self.current(key, self.hash(key))?))
    }

    /// The tensor, declaration or view with this id, only to look at it: nothing is counted.
    pub fn tensor(&self, id: TensorId) -> Option<SharedTensor<'_>> {
        Some(SharedTensor::new(self, self.slots.resolve(id)?))
    }

    /// How full it is, and how well it serves.
    pub fn stats(&self) -> Stats {
        self.counters.stats(&self.limits, self.slots.len(), self.idle.bytes)
    }

    /// What has to be dropped on devices, because it was freed here. Its owner takes this after
    /// operations that may free something, and before it starts a transfer.
    pub fn take_dropped(&mut self) -> Vec<Dropped> {
        std::mem::take(&mut self.dropped)
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    pub(crate) fn holds(&self) -> &Holds {
        &self.holds
    }

    pub(crate) fn namespace_of(&self, slot: u32) -> &str {
        self.namespaces.text(self.slots.namespace(slot))
    }

    pub(crate) fn namespace(&self, namespace: &str) -> Option<u32> {
        self.namespaces.find(&self.hasher, 0, namespace)
    }

    pub(crate) fn model(&self, namespace: u32, model: &str) -> Option<u32> {
        self.models.find(&self.hasher, namespace, model)
    }

    pub(crate) fn hold_of(&self, slot: u32, model: &str) -> Option<u32> {
        let model = self.model(self.slots.namespace(slot), model)?;
        self.holds.find(&self.hasher, &self.slots, slot, model)
    }

    fn hash(&self, key: Key<'_>) -> NameHash {
        self.hasher.pair(key.namespace, key.name)
    }

    /// The slot that a name means.
    fn current(&self, key: Key<'_>, hash: NameHash) -> Option<u32> {
        self.names.find(hash, |slot| {
            self.slots.name(slot) == key.name && self.namespace_of(slot) == key.namespace
        })
    }

    fn resolve(&self, id: TensorId) -> Result<u32, SharingError> {
        self.slots.resolve(id).ok_or(SharingError::Gone { id })
    }

    fn name_of(&self, slot: u32) -> String {
        self.slots.name(slot).to_string()
    }

    /// The tensor whose bytes a slot is about: that which a view looks into, or the slot itself.
    pub(crate) fn root_of(&self, slot: u32) -> u32 {
        if !self.slots[slot].flags.has(Flags::VIEW) {
            return slot;
        }
        match self.slots.record(slot).content {
            Content::View { root, .. } => root,
            _ => slot,
        }
    }

    pub(crate) fn is_ready(&self, slot: u32) -> bool {
        self.slots[self.root_of(slot)].flags.has(Flags::READY)
    }
}
