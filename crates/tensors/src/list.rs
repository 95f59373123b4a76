//! Lists of slots by last use, threaded through the slots themselves: entering, leaving and
//! moving to the end take the same time however long a list is.

use crate::slots::{Link, Listed, NONE, Slots};

/// One of the lists: the slot that was not used for the longest time is its `oldest`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    kind: Listed,
    pub(crate) oldest: u32,
    newest: u32,
    pub(crate) len: usize,
    /// Bytes of all its slots.
    pub(crate) bytes: u64,
}

impl List {
    pub(crate) fn new(kind: Listed) -> List {
        List { kind, oldest: NONE, newest: NONE, len: 0, bytes: 0 }
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
        self.detach(slots, index);
    }

    /// Makes a slot the newest.
    pub(crate) fn touch(&mut self, slots: &mut Slots, index: u32) {
        if self.newest != index {
            self.detach(slots, index);
            self.append(slots, index);
        }
    }

    fn append(&mut self, slots: &mut Slots, index: u32) {
        let newest = std::mem::replace(&mut self.newest, index);
        *slots.link_mut(index) = Link { older: newest, newer: NONE };
        if newest == NONE {
            self.oldest = index;
        } else {
            slots.link_mut(newest).newer = index;
        }
    }

    fn detach(&mut self, slots: &mut Slots, index: u32) {
        let Link { older, newer } = slots.link(index);
        if older == NONE {
            self.oldest = newer;
        } else {
            slots.link_mut(older).newer = newer;
        }
        if newer == NONE {
            self.newest = older;
        } else {
            slots.link_mut(newer).older = older;
        }
    }

    /// The slots from the oldest on.
    pub(crate) fn iter<'a>(&self, slots: &'a Slots) -> impl Iterator<Item = u32> + use<'a> {
        let known = |index: u32| (index != NONE).then_some(index);
        std::iter::successors(known(self.oldest), move |&index| known(slots.link(index).newer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::{Content, Record};
    use crate::storage::Place;
    use holdfast_graph::DataType;

    #[test]
    fn keeps_the_order_of_use() {
        let mut slots = Slots::default();
        let record = || Record::new(DataType::U8, &[1], Place::Host, Content::Awaited);
        let indexes: Vec<u32> = ["a", "b", "c", "d"].map(|n| slots.insert(0, n, record())).into();
        let mut list = List::new(Listed::Idle);
        for &index in &indexes {
            slots.set_byte_len(index, 10);
            list.push(&mut slots, index);
        }
        list.touch(&mut slots, 1);
        list.touch(&mut slots, 0);
        list.touch(&mut slots, 0);
        assert_eq!(list.iter(&slots).collect::<Vec<_>>(), [2, 3, 1, 0]);
        list.remove(&mut slots, 3);
        list.remove(&mut slots, 0);
        assert_eq!(list.iter(&slots).collect::<Vec<_>>(), [2, 1]);
        assert_eq!((list.len, list.bytes), (2, 20));
        list.remove(&mut slots, 2);
        list.remove(&mut slots, 1);
        assert_eq!(list.iter(&slots).count(), 0);
        assert_eq!((list.oldest, list.newest, list.bytes), (NONE, NONE, 0));
    }
}
