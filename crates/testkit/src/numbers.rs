//! Seeded integers: the one source of chance in this crate, the same on every platform.

/// The SplitMix64 generator: 64 bits of state, fast, and any seed is a good one.
///
/// ```
/// use holdfast_testkit::Numbers;
/// let (mut one, mut same) = (Numbers::new(7), Numbers::new(7));
/// assert_eq!(one.next_u64(), same.next_u64());
/// ```
#[derive(Clone, Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// The sequence that belongs to a seed.
    pub fn new(seed: u64) -> Numbers {
        Numbers(seed)
    }

    /// The sequence that belongs to a seed and a label: unrelated to those of other labels.
    pub fn labelled(seed: u64, label: &str) -> Numbers {
        // FNV-1a tells labels apart; one step of the generator spreads its bits.
        let hash = label.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Numbers(Numbers(seed).next_u64() ^ Numbers(hash).next_u64())
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `limit`, which must not be zero.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next_u64() % limit as u64) as usize
    }

    /// True once in `times` on average.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of the items; `None` where there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() { None } else { items.get(self.below(items.len())) }
    }

    /// Puts items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_published_sequence() {
        let mut numbers = Numbers::new(1_234_567);
        assert_eq!(numbers.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(numbers.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn labels_and_seeds_both_matter() {
        let first = |seed, label| Numbers::labelled(seed, label).next_u64();
        assert_eq!(first(1, "a"), first(1, "a"));
        assert_ne!(first(1, "a"), first(1, "b"));
        assert_ne!(first(1, "a"), first(2, "a"));
    }
}
