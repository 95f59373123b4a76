//! Finds numbers by names, hashing each name once. Names live where the numbers lead to, so that
//! they are kept once.
//!
//! One array, searched from the place that the hash says to the first gap. Other tables look at
//! two places, one for tags and one for entries; with a million names, both are far away.

use std::hash::{BuildHasher, Hasher, RandomState};

use crate::slots::NONE;

/// A hash of a name. The manager hashes with keys of its own, so that nobody can choose names
/// that collide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameHash(u32);

/// Makes hashes.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameHasher(RandomState);

impl NameHasher {
    /// The hash of two texts. The longer one is best the second, because what is hashed first is
    /// hashed fastest.
    pub(crate) fn pair(&self, first: &str, second: &str) -> NameHash {
        let mut hasher = self.0.build_hasher();
        hasher.write(second.as_bytes());
        // No text has this byte, so no two pairs are the same bytes.
        hasher.write_u8(0xff);
        hasher.write(first.as_bytes());
        NameHash(hasher.finish() as u32)
    }

    /// The hash of a number and a text. The text comes first: the number may still be on its way
    /// from memory.
    pub(crate) fn numbered(&self, number: u32, text: &str) -> NameHash {
        let mut hasher = self.0.build_hasher();
        hasher.write(text.as_bytes());
        hasher.write_u32(number);
        NameHash(hasher.finish() as u32)
    }

    /// The hash of two numbers.
    pub(crate) fn numbers(&self, first: u32, second: u32) -> NameHash {
        NameHash(self.0.hash_one((first, second)) as u32)
    }
}

/// The numbers by their names' hashes. The hash is kept beside the number: most comparisons end
/// there, and growing does not have to visit any name.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// A power of two of them, or none; [`NONE`] is a gap.
    entries: Vec<(NameHash, u32)>,
    len: usize,
}

const GAP: (NameHash, u32) = (NameHash(0), NONE);

impl Index {
    /// The number with this hash whose name `is_it`.
    pub(crate) fn find(&self, hash: NameHash, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.home(hash);
        loop {
            let &(other, number) = self.entries.get(at)?;
            if number == NONE {
                return None;
            }
            if other == hash && is_it(number) {
                return Some(number);
            }
            at = self.next(at);
        }
    }

    /// Adds a number that is not there.
    pub(crate) fn insert(&mut self, hash: NameHash, number: u32) {
        // Not more than five of eight are taken, so that gaps are near.
        if (self.len + 1) * 8 > self.entries.len() * 5 {
            let larger = vec![GAP; (self.entries.len() * 2).max(8)];
            let entries = std::mem::replace(&mut self.entries, larger);
            for entry in entries.into_iter().filter(|entry| entry.1 != NONE) {
                self.put(entry);
            }
        }
        self.put((hash, number));
        self.len += 1;
    }

    /// Removes a number.
    pub(crate) fn remove(&mut self, hash: NameHash, number: u32) {
        let mut at = self.home(hash);
        while self.entries[at] != (hash, number) {
            if self.entries[at].1 == NONE {
                return;
            }
            at = self.next(at);
        }
        self.len -= 1;
        // What was pushed on by the removed entry moves back, so that no gap cuts it off.
        let mut gap = at;
        loop {
            at = self.next(at);
            let entry = self.entries[at];
            if entry.1 == NONE {
                break;
            }
            let mask = self.entries.len() - 1;
            let from_home = at.wrapping_sub(self.home(entry.0)) & mask;
            let from_gap = at.wrapping_sub(gap) & mask;
            if from_home >= from_gap {
                self.entries[gap] = entry;
                gap = at;
            }
        }
        self.entries[gap] = GAP;
    }

    fn put(&mut self, entry: (NameHash, u32)) {
        let mut at = self.home(entry.0);
        while self.entries[at].1 != NONE {
            at = self.next(at);
        }
        self.entries[at] = entry;
    }

    fn home(&self, hash: NameHash) -> usize {
        hash.0 as usize & self.entries.len().wrapping_sub(1)
    }

    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.entries.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_inserted_and_nothing_else() {
        let names: Vec<String> = (0..5000).map(|number| format!("name {number}")).collect();
        let hasher = NameHasher::default();
        let mut index = Index::default();
        for (number, name) in names.iter().enumerate() {
            index.insert(hasher.pair("", name), number as u32);
        }
        let find = |index: &Index, name: &str| {
            index.find(hasher.pair("", name), |number| names[number as usize] == name)
        };
        assert_eq!(find(&index, "name 4711"), Some(4711));
        assert_eq!(find(&index, "name 5000"), None);
        index.remove(hasher.pair("", "name 4711"), 4711);
        assert_eq!(find(&index, "name 4711"), None);
        assert_eq!(find(&index, "name 4712"), Some(4712));
    }

    #[test]
    fn the_border_between_two_texts_counts() {
        let hasher = NameHasher::default();
        assert_ne!(hasher.pair("ab", "c"), hasher.pair("a", "bc"));
        assert_eq!(hasher.pair("ab", "c"), hasher.pair("ab", "c"));
    }

    #[test]
    fn finds_as_an_ordered_map_does_after_any_inserts_and_removals() {
        let (hasher, mut index) = (NameHasher::default(), Index::default());
        let mut expected = std::collections::BTreeSet::new();
        let mut chance = 1u32;
        for _ in 0..20_000 {
            chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Few hashes, so that many collide.
            let number = (chance >> 16) % 300;
            let hash = NameHash(hasher.numbers(7, number % 50).0 % 64);
            let there = index.find(hash, |found| found == number).is_some();
            assert_eq!(there, expected.contains(&number));
            if there {
                index.remove(hash, number);
                expected.remove(&number);
            } else {
                index.insert(hash, number);
                expected.insert(number);
            }
        }
        assert_eq!(index.len, expected.len());
    }
}
