//! The budget, the age limit, and who goes when there is no room.

use std::time::Duration;

use super::TensorSharingManager;
use crate::error::{HeldTensor, OverBudget, SharingError};
use crate::key::Key;
use crate::slots::NONE;

/// Tensors that are looked at for those of one namespace.
const SCANNED: usize = 4096;

impl TensorSharingManager {
    /// Whether there is room for a new tensor once all that is idle is gone. Asked before
    /// anything is changed.
    pub(super) fn check_room(
        &mut self,
        key: Key<'_>,
        bytes: u64,
        new_entry: bool,
    ) -> Result<(), SharingError> {
        let held_bytes = self.counters.bytes - self.idle.bytes;
        if held_bytes.saturating_add(bytes) > self.limits.budget_bytes {
            return Err(SharingError::OverBudget(Box::new(self.over_budget(key, bytes))));
        }
        let idle = self.idle.len + self.weightless.len;
        // The last number stands for "none".
        let limit = self.limits.max_entries.min(NONE as usize);
        if new_entry && self.slots.len() - idle >= limit {
            return Err(SharingError::TooMany { limit });
        }
        Ok(())
    }

    /// Evicts until there is room; [`Self::check_room`] has said that this can be done.
    pub(super) fn make_room(&mut self, bytes: u64, new_entry: bool) {
        let evicted_before = self.slots.len();
        while self.counters.bytes + bytes > self.limits.budget_bytes {
            let Some(oldest) = self.idle.oldest(&self.slots) else { break };
            self.free_slot(oldest);
        }
        let limit = self.limits.max_entries.min(NONE as usize);
        while new_entry && self.slots.len() >= limit {
            let Some(oldest) = self.oldest() else { break };
            self.free_slot(oldest);
        }
        self.counters.evicted += (evicted_before - self.slots.len()) as u64;
    }

    /// The idle slot that goes first. Views and declarations do: they are quickly made again.
    pub(super) fn oldest(&mut self) -> Option<u32> {
        self.weightless.oldest(&self.slots).or_else(|| self.idle.oldest(&self.slots))
    }

    /// Removes what nobody used for longer than the age limit.
    pub(super) fn expire(&mut self) -> usize {
        let Some(max_age) = self.limits.max_age else { return 0 };
        let max_age_ms = u64::try_from(max_age.as_millis()).unwrap_or(u64::MAX);
        let before = self.slots.len();
        for weightless in [true, false] {
            loop {
                let order = if weightless { &mut self.weightless } else { &mut self.idle };
                let Some(oldest) = order.oldest(&self.slots) else { break };
                if self.now_ms - self.slots[oldest].used_ms() <= max_age_ms {
                    break;
                }
                self.free_slot(oldest);
            }
        }
        let expired = before - self.slots.len();
        self.counters.expired += expired as u64;
        expired
    }

    /// How long ago a tensor was last used.
    pub(crate) fn age(&self, slot: u32) -> Duration {
        Duration::from_millis(self.now_ms - self.slots[slot].used_ms())
    }

    fn over_budget(&mut self, key: Key<'_>, needed_bytes: u64) -> OverBudget {
        // Others may have held theirs for longer. However many these are, they are not all looked at.
        let held = self.held.oldest_few(&mut self.slots, SCANNED).to_vec();
        let own = held.into_iter().filter(|&slot| self.namespace_of(slot) == key.namespace);
        let own = own.take(OverBudget::LISTED);
        let could_be_freed: Vec<HeldTensor> = own
            .map(|slot| HeldTensor {
                name: self.name_of(slot),
                version: self.slots.record(slot).version,
                bytes: self.slots.byte_len(slot),
                held_by: self.holders(slot),
            })
            .collect();
        let listed: u64 = could_be_freed.iter().map(|tensor| tensor.bytes).sum();
        OverBudget {
            name: key.name.to_owned(),
            needed_bytes,
            budget_bytes: self.limits.budget_bytes,
            held_bytes: self.held.bytes,
            could_be_freed,
            other_bytes: self.held.bytes - listed,
        }
    }
}
