//! Which list a tensor is in: idle or held, and when it was last used.

use super::TensorSharingManager;
use crate::list::List;
use crate::slots::{Flags, Listed};

impl TensorSharingManager {
    /// Notes a use. That of a view is also one of the tensor that it looks into.
    pub(super) fn touch(&mut self, slot: u32) {
        let root = self.root_of(slot);
        self.touch_one(slot);
        if root != slot {
            self.touch_one(root);
        }
    }

    fn touch_one(&mut self, slot: u32) {
        self.slots[slot].set_used_ms(self.now_ms);
        let listed = self.slots[slot].list;
        let slots = &mut self.slots;
        match listed {
            Listed::Nowhere => {}
            Listed::Idle => self.idle.touch(slots, slot),
            Listed::Weightless => self.weightless.touch(slots, slot),
            Listed::Held => self.held.touch(slots, slot),
        }
    }

    /// One thing more keeps this slot.
    pub(super) fn keep(&mut self, slot: u32) {
        self.slots[slot].busy += 1;
        if self.slots[slot].busy == 1 {
            self.list_anew(slot);
        }
    }

    /// One thing less keeps this slot. An old version that nothing keeps is freed.
    pub(super) fn let_go(&mut self, slot: u32) {
        self.slots[slot].busy -= 1;
        if self.slots[slot].busy > 0 {
            return;
        }
        if self.slots[slot].flags.has(Flags::CURRENT) {
            self.list_anew(slot);
        } else {
            self.free_slot(slot);
        }
    }

    /// Puts a slot into the list where it belongs, as the one that was used last.
    pub(super) fn list_anew(&mut self, slot: u32) {
        self.unlist(slot);
        self.slots[slot].set_used_ms(self.now_ms);
        let listed = match (self.slots[slot].busy > 0, self.slots.byte_len(slot) > 0) {
            (true, true) => Listed::Held,
            (true, false) => return,
            (false, true) => Listed::Idle,
            (false, false) => Listed::Weightless,
        };
        if let (Some(list), slots) = self.list(listed) {
            list.push(slots, slot);
        }
    }

    /// Takes a slot out of its list.
    pub(super) fn unlist(&mut self, slot: u32) {
        let listed = self.slots[slot].list;
        if let (Some(list), slots) = self.list(listed) {
            list.remove(slots, slot);
        }
    }

    fn list(&mut self, listed: Listed) -> (Option<&mut List>, &mut crate::slots::Slots) {
        let list = match listed {
            Listed::Nowhere => None,
            Listed::Idle => Some(&mut self.idle),
            Listed::Weightless => Some(&mut self.weightless),
            Listed::Held => Some(&mut self.held),
        };
        (list, &mut self.slots)
    }
}
