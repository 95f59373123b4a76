//! Namespaces and models by number, for as long as something has to do with them.

use compact_str::CompactString;

use crate::index::{Index, NameHash, NameHasher};
use crate::slots::NONE;

/// Texts with a number each. A number is given back when its last use ends, so that callers and
/// models that come and go leave nothing behind.
#[derive(Debug, Default)]
pub(crate) struct Interned {
    entries: Vec<Entry>,
    free: Vec<u32>,
    index: Index,
}

#[derive(Debug)]
struct Entry {
    hash: NameHash,
    /// The number of what the text belongs to: the namespace of a model.
    within: u32,
    text: CompactString,
    uses: usize,
    /// The first of the holds of a model.
    first_hold: u32,
}

impl Interned {
    /// The number of a text, if it is in use.
    pub(crate) fn find(&self, hasher: &NameHasher, within: u32, text: &str) -> Option<u32> {
        self.find_hashed(hasher.numbered(within, text), within, text)
    }

    fn find_hashed(&self, hash: NameHash, within: u32, text: &str) -> Option<u32> {
        self.index.find(hash, |number| {
            let entry = &self.entries[number as usize];
            entry.within == within && entry.text == text
        })
    }

    /// Counts a use of a text and returns its number.
    pub(crate) fn add_use(&mut self, hasher: &NameHasher, within: u32, text: &str) -> u32 {
        let hash = hasher.numbered(within, text);
        if let Some(number) = self.find_hashed(hash, within, text) {
            self.entries[number as usize].uses += 1;
            return number;
        }
        let entry = Entry { hash, within, text: text.into(), uses: 1, first_hold: NONE };
        let number = match self.free.pop() {
            Some(number) => {
                self.entries[number as usize] = entry;
                number
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        self.index.insert(hash, number);
        number
    }

    /// Counts another use of a number that is in use.
    pub(crate) fn use_again(&mut self, number: u32) {
        self.entries[number as usize].uses += 1;
    }

    /// Ends one use.
    pub(crate) fn end_use(&mut self, number: u32) {
        let entry = &mut self.entries[number as usize];
        entry.uses -= 1;
        if entry.uses == 0 {
            entry.text = CompactString::const_new("");
            self.index.remove(entry.hash, number);
            self.free.push(number);
        }
    }

    pub(crate) fn text(&self, number: u32) -> &str {
        &self.entries[number as usize].text
    }

    pub(crate) fn first_hold(&self, number: u32) -> u32 {
        self.entries[number as usize].first_hold
    }

    pub(crate) fn set_first_hold(&mut self, number: u32, hold: u32) {
        self.entries[number as usize].first_hold = hold;
    }

    /// Every number in use, with what it belongs to and its text.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32, &str)> {
        let used = |(number, entry): (usize, _)| {
            let Entry { within, text, uses, .. }: &Entry = entry;
            (*uses > 0).then_some((number as u32, *within, text.as_str()))
        };
        self.entries.iter().enumerate().filter_map(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_lasts_as_long_as_it_is_used() {
        let hasher = NameHasher::default();
        let mut interned = Interned::default();
        let bert = interned.add_use(&hasher, 0, "bert");
        assert_eq!(interned.add_use(&hasher, 0, "bert"), bert);
        assert_ne!(interned.add_use(&hasher, 1, "bert"), bert);
        interned.end_use(bert);
        assert_eq!(interned.find(&hasher, 0, "bert"), Some(bert));
        interned.end_use(bert);
        assert_eq!(interned.find(&hasher, 0, "bert"), None);
        assert_eq!(interned.add_use(&hasher, 0, "vit"), bert);
        assert_eq!(interned.iter().count(), 2);
    }
}
