//! Slots: where the manager keeps what it knows of each tensor.
//!
//! What every operation looks at is together in one cache line ([`Slot`]); what only some look at
//! is apart ([`Record`]). With a million tensors, nearly every look at another line has to wait
//! for memory, so the number of lines decides how long an operation takes. (Narrow arrays for each
//! field were tried: more of them fits into the caches, and it was slower by a third.)

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use compact_str::CompactString;
use holdfast_graph::DataType;
use smallvec::SmallVec;

use crate::index::NameHash;
use crate::storage::Place;
use crate::window::{Dims, Layout};

/// Identifies one version of a tensor or view for as long as it is there. It opens the tensor
/// whatever its namespace: hand it only to those who may see it. No two managers of a process have
/// an id in common, so one that is shown to the wrong manager, or outlives its own, opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId {
    manager: u32,
    pub(crate) slot: u32,
    generation: u32,
}

impl fmt::Display for TensorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.manager, self.slot, self.generation)
    }
}

/// The number of the next manager.
static NEXT_MANAGER: AtomicU32 = AtomicU32::new(0);

/// Stands for "no slot", "no hold" and the like.
pub(crate) const NONE: u32 = u32::MAX;

/// What every operation looks at.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Slot {
    name: CompactString,
    byte_len: u64,
    /// Of its name in its namespace.
    pub(crate) hash: NameHash,
    used_ms_low: u32,
    used_ms_high: u16,
    pub(crate) flags: Flags,
    pub(crate) list: Listed,
    /// The place of its last use in its order; the next free slot where there is no tensor.
    pub(crate) last_use: u32,
    namespace: u32,
    pub(crate) generation: u32,
    /// How many things keep it: holds, its pin, pins of its views, transfers.
    pub(crate) busy: u32,
    first_hold: u32,
}

const _: () = assert!(size_of::<Slot>() == 64, "a slot is one cache line");

impl Slot {
    /// When it was last used, in milliseconds.
    pub(crate) fn used_ms(&self) -> u64 {
        u64::from(self.used_ms_high) << 32 | u64::from(self.used_ms_low)
    }

    pub(crate) fn set_used_ms(&mut self, ms: u64) {
        self.used_ms_low = ms as u32;
        self.used_ms_high = (ms >> 32) as u16;
    }
}

/// The last moment that slots can tell apart: some 8900 years from the start.
pub(crate) const LAST_MS: u64 = (1 << 48) - 1;

/// What is true of a tensor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags(u8);

impl Flags {
    /// There is a tensor in the slot.
    pub(crate) const USED: u8 = 1;
    /// It can be read: its bytes are there.
    pub(crate) const READY: u8 = 2;
    pub(crate) const PINNED: u8 = 4;
    pub(crate) const VIEW: u8 = 8;
    /// Its name means it. Not so for old versions and for what is still arriving.
    pub(crate) const CURRENT: u8 = 16;
    /// Its place is taken, but a transfer has yet to bring it.
    pub(crate) const ARRIVING: u8 = 32;

    pub(crate) fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    pub(crate) fn set(&mut self, flag: u8, on: bool) {
        if on {
            self.0 |= flag;
        } else {
            self.0 &= !flag;
        }
    }
}

/// The order that a slot is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    Nowhere,
    /// Idle, with bytes that an eviction would gain.
    Idle,
    /// Idle, without bytes of its own.
    Weightless,
    /// In use, with bytes.
    Held,
}

/// The part of a tensor that only some operations look at.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) dtype: DataType,
    pub(crate) dims: Dims,
    pub(crate) place: Place,
    pub(crate) content: Content,
    pub(crate) version: u32,
    pub(crate) producer: Option<CompactString>,
    pub(crate) consumers: SmallVec<[CompactString; 1]>,
    pub(crate) pinned_views: u32,
    pub(crate) transfers: u32,
    /// Its views, or the neighbours among the views of one tensor.
    pub(crate) first_view: u32,
    pub(crate) views: u32,
    pub(crate) next_view: u32,
    pub(crate) previous_view: u32,
}

impl Record {
    pub(crate) fn new(dtype: DataType, dims: &[usize], place: Place, content: Content) -> Record {
        Record {
            dtype,
            dims: dims.into(),
            place,
            content,
            version: 1,
            producer: None,
            consumers: SmallVec::new(),
            pinned_views: 0,
            transfers: 0,
            first_view: NONE,
            views: 0,
            next_view: NONE,
            previous_view: NONE,
        }
    }

    /// What is left where a tensor was.
    fn vacant() -> Record {
        Record::new(DataType::U8, &[], Place::Host, Content::Awaited)
    }
}

/// Where the elements are.
#[derive(Debug)]
pub(crate) enum Content {
    /// Not there yet.
    Awaited,
    Host(Bytes),
    /// On the device of the record's place, under this name.
    Device(Arc<str>),
    View {
        /// The slot of the tensor that it looks into, which is never a view itself.
        root: u32,
        layout: Box<Layout>,
    },
}

/// All slots, with those that are free in a chain.
#[derive(Debug)]
pub(crate) struct Slots {
    manager: u32,
    slots: Vec<Slot>,
    /// One for each slot, [vacant](Record::vacant) where there is no tensor.
    records: Vec<Record>,
    first_free: u32,
    used: usize,
}

impl Default for Slots {
    fn default() -> Slots {
        let manager = NEXT_MANAGER.fetch_add(1, Ordering::Relaxed);
        Slots { manager, slots: Vec::new(), records: Vec::new(), first_free: NONE, used: 0 }
    }
}

impl Slots {
    /// How many slots have a tensor.
    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// The slot of a tensor that is still there.
    pub(crate) fn resolve(&self, id: TensorId) -> Option<u32> {
        let slot = self.slots.get(id.slot as usize)?;
        let same = slot.generation == id.generation && self.manager == id.manager;
        (same && slot.flags.has(Flags::USED)).then_some(id.slot)
    }

    pub(crate) fn id(&self, slot: u32) -> TensorId {
        TensorId { manager: self.manager, slot, generation: self[slot].generation }
    }

    pub(crate) fn name(&self, slot: u32) -> &str {
        &self[slot].name
    }

    pub(crate) fn namespace(&self, slot: u32) -> u32 {
        self[slot].namespace
    }

    pub(crate) fn first_hold(&self, slot: u32) -> u32 {
        self[slot].first_hold
    }

    pub(crate) fn set_first_hold(&mut self, slot: u32, hold: u32) {
        self[slot].first_hold = hold;
    }

    /// Bytes that count against the budget: zero for views and declarations.
    pub(crate) fn byte_len(&self, slot: u32) -> u64 {
        self[slot].byte_len
    }

    pub(crate) fn set_byte_len(&mut self, slot: u32, bytes: u64) {
        self[slot].byte_len = bytes;
    }

    pub(crate) fn record(&self, slot: u32) -> &Record {
        &self.records[slot as usize]
    }

    pub(crate) fn record_mut(&mut self, slot: u32) -> &mut Record {
        &mut self.records[slot as usize]
    }

    /// The slots that have a tensor.
    pub(crate) fn used(&self) -> impl Iterator<Item = u32> {
        let used =
            |(index, slot): (usize, &Slot)| slot.flags.has(Flags::USED).then_some(index as u32);
        self.slots.iter().enumerate().filter_map(used)
    }

    /// Puts a tensor into a free slot. The caller has made sure that there are fewer than
    /// [`NONE`] of them.
    pub(crate) fn insert(
        &mut self,
        namespace: u32,
        name: &str,
        hash: NameHash,
        record: Record,
    ) -> u32 {
        self.used += 1;
        let mut flags = Flags::default();
        flags.set(Flags::USED, true);
        let fresh = |generation| Slot {
            name: name.into(),
            byte_len: 0,
            hash,
            used_ms_low: 0,
            used_ms_high: 0,
            flags,
            list: Listed::Nowhere,
            last_use: NONE,
            namespace,
            generation,
            busy: 0,
            first_hold: NONE,
        };
        let index = self.first_free;
        if index == NONE {
            self.slots.push(fresh(0));
            self.records.push(record);
            return self.slots.len() as u32 - 1;
        }
        self.first_free = self[index].last_use;
        self[index] = fresh(self[index].generation);
        self.records[index as usize] = record;
        index
    }

    /// Takes a tensor out. Ids of it no longer resolve.
    pub(crate) fn remove(&mut self, index: u32) -> Record {
        self.used -= 1;
        self[index].last_use = std::mem::replace(&mut self.first_free, index);
        let slot = &mut self[index];
        slot.flags = Flags::default();
        slot.generation = slot.generation.wrapping_add(1);
        self[index].name = CompactString::const_new("");
        std::mem::replace(self.record_mut(index), Record::vacant())
    }
}

impl std::ops::Index<u32> for Slots {
    type Output = Slot;

    fn index(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Slots {
    fn index_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record::new(DataType::U8, &[1], Place::Host, Content::Awaited)
    }

    #[test]
    fn a_slot_is_used_again_but_its_old_id_is_not() {
        let mut slots = Slots::default();
        let first = slots.insert(0, "a", NameHash::default(), record());
        let old = slots.id(first);
        assert_eq!(slots.resolve(old), Some(first));
        slots.remove(first);
        assert_eq!(slots.resolve(old), None);
        let second = slots.insert(0, "b", NameHash::default(), record());
        assert_eq!(second, first);
        assert_eq!(slots.resolve(old), None);
        assert_eq!(slots.resolve(slots.id(second)), Some(second));
        assert_eq!(slots.len(), 1);
    }

    #[test]
    fn ids_from_elsewhere_do_not_resolve() {
        let (mut slots, mut others) = (Slots::default(), Slots::default());
        let first = slots.insert(0, "a", NameHash::default(), record());
        others.insert(0, "b", NameHash::default(), record());
        let id = slots.id(first);
        assert_eq!(others.resolve(id), None, "the same slot, but of another manager");
        assert_eq!(slots.resolve(TensorId { slot: 3, ..id }), None);
        assert_eq!(slots.resolve(TensorId { slot: NONE, ..id }), None);
    }

    #[test]
    fn times_keep_48_bits() {
        let mut slots = Slots::default();
        let slot = slots.insert(0, "a", NameHash::default(), record());
        slots[slot].set_used_ms(LAST_MS - 5);
        assert_eq!(slots[slot].used_ms(), LAST_MS - 5);
    }
}
