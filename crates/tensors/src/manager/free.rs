//! Freeing: by name, as a new version comes, and everything that is idle.

use super::TensorSharingManager;
use crate::error::{Holder, SharingError};
use crate::slots::{Content, Flags, NONE, TensorId};
use crate::storage::Place;
use crate::transfer::Dropped;
use crate::usage::Optimized;

impl TensorSharingManager {
    /// Whether nothing keeps the tensor: no model, no pin, no view that is kept, no transfer.
    /// Not so for one that is gone.
    pub fn can_be_freed(&self, id: TensorId) -> bool {
        self.slots.resolve(id).is_some_and(|slot| self.slots[slot].busy == 0)
    }

    /// Frees a tensor, its idle views, or a view. Returns the bytes that are free now. What
    /// something keeps is refused, with what keeps it.
    pub fn free(&mut self, id: TensorId) -> Result<u64, SharingError> {
        let slot = self.resolve(id)?;
        if self.slots[slot].busy > 0 {
            let held_by = self.holders(slot);
            return Err(SharingError::Held { name: self.name_of(slot), held_by });
        }
        let bytes = self.slots.byte_len(slot);
        self.free_slot(slot);
        Ok(bytes)
    }

    /// Frees everything that nothing keeps, in all namespaces.
    pub fn optimize_memory_usage(&mut self) -> Optimized {
        let bytes_before = self.counters.bytes;
        let mut freed = Vec::new();
        while let Some(slot) = self.oldest() {
            let bytes = self.slots.byte_len(slot);
            freed.push((self.namespace_of(slot).to_owned(), self.name_of(slot), bytes));
            self.free_slot(slot);
        }
        Optimized { bytes_before, bytes_after: self.counters.bytes, freed }
    }

    /// Gives the manager up: everything that it has on devices.
    pub fn into_dropped(mut self) -> Vec<Dropped> {
        let mut dropped = self.take_dropped();
        dropped.extend(self.slots.used().filter_map(|slot| {
            let record = self.slots.record(slot);
            match (&record.content, &record.place) {
                (Content::Device(name), Place::Device { device, .. }) => {
                    Some(Dropped { device: device.clone(), name: name.clone() })
                }
                _ => None,
            }
        }));
        dropped
    }

    /// What keeps a tensor.
    pub(crate) fn holders(&self, slot: u32) -> Vec<Holder> {
        let record = self.slots.record(slot);
        let mut holders = Vec::new();
        if self.slots[slot].flags.has(Flags::PINNED) {
            holders.push(Holder::Pin);
        }
        for hold in self.holds.of_slot(&self.slots, slot) {
            let model = || self.models.text(hold.model).to_owned();
            if hold.references > 0 {
                holders.push(Holder::Model { model: model(), references: hold.references });
            }
            if hold.views > 0 {
                holders.push(Holder::Views { model: model(), views: hold.views });
            }
        }
        if record.pinned_views > 0 {
            holders.push(Holder::PinnedViews(record.pinned_views));
        }
        if record.transfers > 0 {
            holders.push(Holder::Transfers(record.transfers));
        }
        holders.sort();
        holders
    }

    /// Makes room for a new version: the old one goes at once, or when it is let go.
    pub(super) fn supersede(&mut self, slot: u32) {
        if self.slots[slot].busy == 0 {
            self.free_slot(slot);
            return;
        }
        self.unname(slot);
        self.counters.old_versions += 1;
    }

    /// A name no longer means this slot.
    fn unname(&mut self, slot: u32) {
        self.slots[slot].flags.set(Flags::CURRENT, false);
        self.names.remove(self.slots[slot].hash, slot);
    }

    /// Frees a slot that nothing keeps. Its views are not kept either, and go with it.
    pub(super) fn free_slot(&mut self, slot: u32) {
        debug_assert_eq!(self.slots[slot].busy, 0);
        loop {
            let view = self.slots.record(slot).first_view;
            if view == NONE {
                break;
            }
            self.free_one(view);
        }
        self.free_one(slot);
    }

    fn free_one(&mut self, slot: u32) {
        self.unlist(slot);
        let flags = self.slots[slot].flags;
        if flags.has(Flags::CURRENT) {
            self.unname(slot);
        } else if flags.has(Flags::ARRIVING) {
            self.counters.arriving -= 1;
            self.counters.arriving_bytes -= self.slots.byte_len(slot);
        } else {
            self.counters.old_versions -= 1;
        }
        self.counters.bytes -= self.slots.byte_len(slot);
        let namespace = self.slots.namespace(slot);
        let record = self.slots.remove(slot);
        self.namespaces.end_use(namespace);
        match record.content {
            Content::Awaited if flags.has(Flags::ARRIVING) => {}
            Content::Awaited => self.counters.declared -= 1,
            Content::Host(_) => {}
            Content::Device(name) => {
                if let Place::Device { device, .. } = record.place {
                    self.dropped.push(Dropped { device, name });
                }
            }
            Content::View { root, .. } => {
                self.counters.views -= 1;
                self.unlink_view(root, record.previous_view, record.next_view);
            }
        }
    }

    fn unlink_view(&mut self, root: u32, previous: u32, next: u32) {
        if next != NONE {
            self.slots.record_mut(next).previous_view = previous;
        }
        if previous != NONE {
            self.slots.record_mut(previous).next_view = next;
        }
        let root = self.slots.record_mut(root);
        root.views -= 1;
        if previous == NONE {
            root.first_view = next;
        }
    }
}
