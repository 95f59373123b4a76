//! Slots in the order of their last use.
//!
//! In a linked list, a use would change both neighbours too, and among a million tensors these are
//! far away. So this is a log: a use is written at its end, and the one before it is void from then
//! on. Void uses are skipped when the oldest is asked for, and removed once most are void.
//!
//! That removal takes as long as there are uses (some 40 ms with a million tensors, as growing
//! does), but comes only after three times as many uses as there are tensors. (Without a branch
//! and in two passes it was slower.)

use crate::slots::{Listed, Slots};

/// From so many uses for each slot on, the void ones are removed.
const MOST: usize = 4;

/// So many more are not worth it.
const FEW: usize = 8;

/// The slots of one kind, by last use.
#[derive(Debug)]
pub(crate) struct Order {
    kind: Listed,
    /// The slot of each use, the latest at the end. Those that are not void are where their slot
    /// says.
    uses: Vec<u32>,
    /// All uses before this one are void.
    first: usize,
    pub(crate) len: usize,
    /// Bytes of all its slots.
    pub(crate) bytes: u64,
}

impl Order {
    pub(crate) fn new(kind: Listed) -> Order {
        Order { kind, uses: Vec::new(), first: 0, len: 0, bytes: 0 }
    }

    /// Adds a slot as the newest.
    pub(crate) fn push(&mut self, slots: &mut Slots, index: u32) {
        debug_assert_eq!(slots[index].list, Listed::Nowhere);
        slots[index].list = self.kind;
        self.len += 1;
        self.bytes += slots.byte_len(index);
        self.append(slots, index);
    }

    /// Takes a slot out.
    pub(crate) fn remove(&mut self, slots: &mut Slots, index: u32) {
        debug_assert_eq!(slots[index].list, self.kind);
        slots[index].list = Listed::Nowhere;
        self.len -= 1;
        self.bytes -= slots.byte_len(index);
        // So that what is held only for a moment leaves nothing behind.
        if self.is_newest(slots, index) {
            self.uses.pop();
        }
    }

    /// Makes a slot the newest.
    pub(crate) fn touch(&mut self, slots: &mut Slots, index: u32) {
        if !self.is_newest(slots, index) {
            self.append(slots, index);
        }
    }

    /// The slot that was not used for the longest time.
    pub(crate) fn oldest(&mut self, slots: &Slots) -> Option<u32> {
        loop {
            let index = *self.uses.get(self.first)?;
            if self.is_last(slots, self.first, index) {
                return Some(index);
            }
            self.first += 1;
        }
    }

    /// The slots from the oldest on, not more than so many. Void uses between them go, so that none
    /// is passed twice.
    pub(crate) fn oldest_few(&mut self, slots: &mut Slots, most: usize) -> &[u32] {
        let (mut few, mut end) = (Vec::new(), self.first);
        while few.len() < most && end < self.uses.len() {
            let index = self.uses[end];
            if self.is_last(slots, end, index) {
                few.push(index);
            }
            end += 1;
        }
        self.first = end - few.len();
        for (place, &index) in (self.first..).zip(&few) {
            self.uses[place] = index;
            slots[index].last_use = place as u32;
        }
        &self.uses[self.first..end]
    }

    /// Whether this is the last use of its slot, and not void.
    fn is_last(&self, slots: &Slots, place: usize, index: u32) -> bool {
        slots[index].last_use == place as u32 && slots[index].list == self.kind
    }

    fn is_newest(&self, slots: &Slots, index: u32) -> bool {
        slots[index].last_use as usize + 1 == self.uses.len()
    }

    fn append(&mut self, slots: &mut Slots, index: u32) {
        if self.uses.len() >= MOST * self.len + FEW {
            self.remove_void(slots);
        }
        slots[index].last_use = self.uses.len() as u32;
        self.uses.push(index);
    }

    /// Rare, and best not made a part of every use.
    #[cold]
    fn remove_void(&mut self, slots: &mut Slots) {
        let mut kept = 0;
        for place in self.first..self.uses.len() {
            let index = self.uses[place];
            if self.is_last(slots, place, index) {
                self.uses[kept] = index;
                slots[index].last_use = kept as u32;
                kept += 1;
            }
        }
        self.uses.truncate(kept);
        self.first = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::NameHash;
    use crate::slots::{Content, Record};
    use crate::storage::Place;
    use holdfast_graph::DataType;

    /// So many slots, all in one order, from the first to the last.
    fn ordered(count: u32) -> (Slots, Order) {
        let (mut slots, mut order) = (Slots::default(), Order::new(Listed::Idle));
        for _ in 0..count {
            let record = Record::new(DataType::U8, &[1], Place::Host, Content::Awaited);
            let index = slots.insert(0, "t", NameHash::default(), record);
            slots.set_byte_len(index, 10);
            order.push(&mut slots, index);
        }
        (slots, order)
    }

    fn all(slots: &mut Slots, order: &mut Order) -> Vec<u32> {
        order.oldest_few(slots, usize::MAX).to_vec()
    }

    #[test]
    fn keeps_the_order_of_use() {
        let (mut slots, mut order) = ordered(4);
        order.touch(&mut slots, 1);
        order.touch(&mut slots, 0);
        order.touch(&mut slots, 0);
        assert_eq!(all(&mut slots, &mut order), [2, 3, 1, 0]);
        assert_eq!(order.oldest(&slots), Some(2));
        order.remove(&mut slots, 2);
        order.remove(&mut slots, 0);
        assert_eq!(order.oldest(&slots), Some(3));
        assert_eq!(all(&mut slots, &mut order), [3, 1]);
        assert_eq!((order.len, order.bytes), (2, 20));
        order.push(&mut slots, 0);
        order.remove(&mut slots, 3);
        order.remove(&mut slots, 1);
        assert_eq!(all(&mut slots, &mut order), [0]);
        order.remove(&mut slots, 0);
        assert_eq!((order.oldest(&slots), order.len, order.bytes), (None, 0, 0));
    }

    #[test]
    fn a_use_in_one_order_is_none_in_another() {
        let (mut slots, mut idle) = ordered(2);
        let mut held = Order::new(Listed::Held);
        // Both are first in their order once, and the uses in `idle` stay behind.
        for index in [0, 1] {
            idle.remove(&mut slots, index);
            held.push(&mut slots, index);
        }
        assert_eq!(idle.oldest(&slots), None);
        assert_eq!(all(&mut slots, &mut held), [0, 1]);
    }

    #[test]
    fn what_comes_back_is_found_again() {
        let (mut slots, mut order) = ordered(3);
        order.remove(&mut slots, 0);
        order.remove(&mut slots, 1);
        assert_eq!(order.oldest(&slots), Some(2));
        order.remove(&mut slots, 2);
        // The void use of 1 is the last that is left, and was skipped.
        order.push(&mut slots, 1);
        assert_eq!(order.oldest(&slots), Some(1));
        assert_eq!(all(&mut slots, &mut order), [1]);
    }

    #[test]
    fn the_oldest_few_are_found_behind_void_uses_and_leave_none() {
        let (mut slots, mut order) = ordered(9);
        for index in [0, 2, 3, 4] {
            order.touch(&mut slots, index);
        }
        assert_eq!(order.oldest_few(&mut slots, 2), [1, 5]);
        assert_eq!((order.first, order.oldest(&slots)), (4, Some(1)));
        assert_eq!(all(&mut slots, &mut order), [1, 5, 6, 7, 8, 0, 2, 3, 4]);
    }

    #[test]
    fn void_uses_are_removed_and_the_order_stays() {
        let (mut slots, mut order) = ordered(10);
        for round in 0..1000 {
            order.touch(&mut slots, round % 7);
            assert!(order.uses.len() <= MOST * order.len + FEW);
        }
        // The last of a thousand was number 999, with slot 5.
        assert_eq!(all(&mut slots, &mut order), [7, 8, 9, 6, 0, 1, 2, 3, 4, 5]);
        assert_eq!(order.oldest(&slots), Some(7));
    }
}
