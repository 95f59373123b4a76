//! Acquiring, releasing, sharing and pinning.

use compact_str::CompactString;

use super::TensorSharingManager;
use crate::error::SharingError;
use crate::slots::{Flags, TensorId};

impl TensorSharingManager {
    /// A model takes a reference to a tensor, which keeps it until it is released as often.
    /// Returns how many the model has now.
    pub fn acquire(&mut self, id: TensorId, model: &str) -> Result<u64, SharingError> {
        let slot = self.resolve(id)?;
        let root = self.root_of(slot);
        let model = self.models.add_use(&self.hasher, self.slots.namespace(slot), model);
        let hold = self.hold(slot, model);
        let hold = self.holds.get_mut(hold);
        hold.references += 1;
        let references = hold.references;
        if root != slot && references == 1 {
            let through = self.hold(root, model);
            self.holds.get_mut(through).views += 1;
        }
        // The holds have counted their own uses of the model's number.
        self.models.end_use(model);
        self.touch(slot);
        Ok(references)
    }

    /// A model gives back one reference. False, and nothing is changed, if it has none.
    pub fn release(&mut self, id: TensorId, model: &str) -> bool {
        let Some(slot) = self.slots.resolve(id) else { return false };
        let Some(hold) = self.hold_of(slot, model) else { return false };
        if self.holds.get(hold).references == 0 {
            return false;
        }
        self.give_back(slot, hold, 1);
        true
    }

    /// Shares a tensor: each of `to` becomes one of its consumers and acquires it. `from` has to
    /// be the model that made it, or one that holds it.
    pub fn share(&mut self, id: TensorId, from: &str, to: &[&str]) -> Result<(), SharingError> {
        let slot = self.resolve(id)?;
        let made = self.slots.record(slot).producer.as_deref() == Some(from);
        let holds = |hold: u32| self.holds.get(hold).references > 0;
        if !made && !self.hold_of(slot, from).is_some_and(holds) {
            let name = self.name_of(slot);
            return Err(SharingError::NotItsModel { name, model: from.to_owned() });
        }
        for model in to {
            let consumers = &mut self.slots.record_mut(slot).consumers;
            if !consumers.iter().any(|consumer| consumer == model) {
                consumers.push(CompactString::from(*model));
            }
            self.acquire(id, model)?;
        }
        Ok(())
    }

    /// Pins a tensor: it stays until it is unpinned. False if it was pinned already.
    pub fn pin(&mut self, id: TensorId) -> Result<bool, SharingError> {
        let slot = self.resolve(id)?;
        let pinned = self.slots[slot].flags.has(Flags::PINNED);
        if pinned {
            self.touch(slot);
        } else {
            self.set_pinned(slot, true);
        }
        Ok(!pinned)
    }

    /// Unpins a tensor. False, and nothing is changed, if it was not pinned.
    pub fn unpin(&mut self, id: TensorId) -> bool {
        let slot = self.slots.resolve(id);
        match slot.filter(|&slot| self.slots[slot].flags.has(Flags::PINNED)) {
            Some(slot) => {
                self.set_pinned(slot, false);
                true
            }
            None => false,
        }
    }

    /// Gives back every reference of a model. Returns how many tensors and views it held.
    pub fn release_model_tensors(&mut self, namespace: &str, model: &str) -> usize {
        let Some(namespace) = self.namespace(namespace) else { return 0 };
        let Some(model) = self.model(namespace, model) else { return 0 };
        // Views are released through their own holds.
        let held: Vec<u32> = self
            .holds
            .of_model(&self.models, model)
            .filter(|hold| hold.references > 0)
            .map(|hold| hold.slot)
            .collect();
        for &slot in &held {
            if let Some(hold) = self.holds.find(&self.hasher, &self.slots, slot, model) {
                let references = self.holds.get(hold).references;
                self.give_back(slot, hold, references);
            }
        }
        held.len()
    }

    /// The hold of a model on a slot, made if it is not there.
    fn hold(&mut self, slot: u32, model: u32) -> u32 {
        if let Some(hold) = self.holds.find(&self.hasher, &self.slots, slot, model) {
            return hold;
        }
        self.models.use_again(model);
        self.keep(slot);
        self.holds.add(&self.hasher, &mut self.slots, &mut self.models, slot, model)
    }

    fn give_back(&mut self, slot: u32, hold: u32, references: u64) {
        let root = self.root_of(slot);
        let left = self.holds.get_mut(hold);
        left.references -= references;
        if left.references > 0 {
            self.touch(slot);
            return;
        }
        let model = left.model;
        self.end_hold_if_empty(hold);
        if root != slot
            && let Some(through) = self.holds.find(&self.hasher, &self.slots, root, model)
        {
            self.holds.get_mut(through).views -= 1;
            self.end_hold_if_empty(through);
        }
    }

    /// Something of a hold was given back, which is a use of its tensor.
    fn end_hold_if_empty(&mut self, number: u32) {
        let hold = self.holds.get(number);
        let (slot, model) = (hold.slot, hold.model);
        if hold.references > 0 || hold.views > 0 {
            self.touch_one(slot);
            return;
        }
        self.holds.remove(&self.hasher, &mut self.slots, &mut self.models, number);
        self.models.end_use(model);
        self.let_go(slot);
    }

    fn set_pinned(&mut self, slot: u32, pinned: bool) {
        let root = self.root_of(slot);
        self.slots[slot].flags.set(Flags::PINNED, pinned);
        if pinned {
            self.counters.pinned += 1;
            self.keep(slot);
            if root != slot {
                self.slots.record_mut(root).pinned_views += 1;
                self.keep(root);
            }
        } else {
            self.counters.pinned -= 1;
            if root != slot {
                self.slots.record_mut(root).pinned_views -= 1;
            }
            self.let_go(slot);
            if root != slot {
                self.let_go(root);
            }
        }
    }
}
