//! Which order a tensor is in, that of the idle or that of the held, and when it was last used.

use super::TensorSharingManager;
use crate::order::Order;
use crate::slots::{Flags, Listed, Slots};

impl TensorSharingManager {
    /// Notes a use. That of a view is also one of the tensor that it looks into.
    pub(super) fn touch(&mut self, slot: u32) {
        let root = self.root_of(slot);
        self.touch_one(slot);
        if root != slot {
            self.touch_one(root);
        }
    }

    pub(super) fn touch_one(&mut self, slot: u32) {
        self.slots[slot].set_used_ms(self.now_ms);
        let listed = self.slots[slot].list;
        if let (Some(order), slots) = self.order(listed) {
            order.touch(slots, slot);
        }
    }

    /// One thing more keeps this slot, which is a use.
    pub(super) fn keep(&mut self, slot: u32) {
        self.slots[slot].busy += 1;
        if self.slots[slot].busy == 1 {
            self.list_anew(slot);
        } else {
            self.touch_one(slot);
        }
    }

    /// One thing less keeps this slot, which is a use too. An old version that nothing keeps is
    /// freed.
    pub(super) fn let_go(&mut self, slot: u32) {
        self.slots[slot].busy -= 1;
        if self.slots[slot].busy > 0 {
            self.touch_one(slot);
        } else if self.slots[slot].flags.has(Flags::CURRENT) {
            self.list_anew(slot);
        } else {
            self.free_slot(slot);
        }
    }

    /// Puts a slot into the order where it belongs, as the one that was used last.
    pub(super) fn list_anew(&mut self, slot: u32) {
        self.unlist(slot);
        self.slots[slot].set_used_ms(self.now_ms);
        let listed = match (self.slots[slot].busy > 0, self.slots.byte_len(slot) > 0) {
            (true, true) => Listed::Held,
            (true, false) => return,
            (false, true) => Listed::Idle,
            (false, false) => Listed::Weightless,
        };
        if let (Some(order), slots) = self.order(listed) {
            order.push(slots, slot);
        }
    }

    /// Takes a slot out of its order.
    pub(super) fn unlist(&mut self, slot: u32) {
        let listed = self.slots[slot].list;
        if let (Some(order), slots) = self.order(listed) {
            order.remove(slots, slot);
        }
    }

    fn order(&mut self, listed: Listed) -> (Option<&mut Order>, &mut Slots) {
        let order = match listed {
            Listed::Nowhere => None,
            Listed::Idle => Some(&mut self.idle),
            Listed::Weightless => Some(&mut self.weightless),
            Listed::Held => Some(&mut self.held),
        };
        (order, &mut self.slots)
    }
}
