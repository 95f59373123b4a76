//! Which pieces go into one graph: those that have weights in common, as long as a device can still
//! hold what each of their models needs. A graph is there as a whole or not at all, so one that is too
//! large for the device would leave all its models unshared.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use holdfast_graph::WeightId;

use super::weights::Common;

/// What a piece needs, and who needs it.
pub(super) struct Held {
    /// The models that run it, by number.
    pub(super) users: BTreeSet<usize>,
    /// Its weights, with their bytes.
    pub(super) weights: HashMap<WeightId, u64>,
}

/// Groups of two or more pieces. No model needs more than `most` bytes of weights for all the graphs
/// that it runs.
pub(super) fn groups(
    held: &[Held],
    common: &HashMap<WeightId, Common>,
    most: u64,
) -> Vec<Vec<usize>> {
    let group_of = (0..held.len()).collect();
    let mut grouping = Grouping { held, group_of, too_large: HashSet::new(), most };
    // Where not everything fits, what saves most comes first.
    let mut common: Vec<(&WeightId, &Common)> = common.iter().collect();
    common.sort_unstable_by_key(|(id, common)| (Reverse(common.saved_bytes()), **id));
    for (_, Common { pieces, .. }) in common {
        for &piece in pieces {
            // With the first of those before it that it fits to.
            let mut before = pieces.range(..piece);
            before.any(|&other| grouping.join(piece, other));
        }
    }
    grouping.finish()
}

struct Grouping<'a> {
    held: &'a [Held],
    /// By piece; a group is called by its first piece.
    group_of: Vec<usize>,
    /// Pairs of groups that do not fit together, nor ever will: groups only grow.
    too_large: HashSet<(usize, usize)>,
    most: u64,
}

impl Grouping<'_> {
    /// Brings two pieces into one group, unless that would be too large.
    fn join(&mut self, one: usize, other: usize) -> bool {
        let (one, other) = (self.group_of[one], self.group_of[other]);
        let pair = (one.min(other), one.max(other));
        if one == other {
            return true;
        }
        if self.too_large.contains(&pair) {
            return false;
        }
        let joined = |group: usize| if group == pair.1 { pair.0 } else { group };
        let joined: Vec<usize> = self.group_of.iter().map(|group| joined(*group)).collect();
        if !self.fits(&joined, pair.0) {
            self.too_large.insert(pair);
            return false;
        }
        self.group_of = joined;
        true
    }

    /// Whether all models with a piece in a group can have what they need.
    fn fits(&self, group_of: &[usize], group: usize) -> bool {
        let pieces = || self.held.iter().zip(group_of);
        let in_group = pieces().filter(|(_, of)| **of == group);
        let users: BTreeSet<usize> = in_group.flat_map(|(held, _)| &held.users).copied().collect();
        users.iter().all(|user| {
            let needed = pieces().filter(|(held, _)| held.users.contains(user));
            let needed: BTreeSet<usize> = needed.map(|(_, of)| *of).collect();
            // Each graph has its own copy of what it needs, once.
            let weights: HashMap<(usize, WeightId), u64> = pieces()
                .filter(|(_, of)| needed.contains(of))
                .flat_map(|(held, of)| held.weights.iter().map(|(id, bytes)| ((*of, *id), *bytes)))
                .collect();
            weights.values().sum::<u64>() <= self.most
        })
    }

    fn finish(self) -> Vec<Vec<usize>> {
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (piece, group) in self.group_of.into_iter().enumerate() {
            groups.entry(group).or_default().push(piece);
        }
        groups.into_values().filter(|group| group.len() > 1).collect()
    }
}

#[cfg(test)]
mod tests {
    use holdfast_graph::Digest;

    use super::*;

    fn weight(name: &str) -> WeightId {
        WeightId(Digest::of(name.as_bytes()))
    }

    /// Groups of pieces with these weights; each piece is a model of its own unless told otherwise.
    fn check(pieces: &[(usize, &[(&str, u64)])], most: u64, expected: &[&[usize]]) {
        let held: Vec<Held> = pieces
            .iter()
            .map(|(user, weights)| Held {
                users: BTreeSet::from([*user]),
                weights: weights.iter().map(|(name, bytes)| (weight(name), *bytes)).collect(),
            })
            .collect();
        let mut common: HashMap<WeightId, Common> = HashMap::new();
        for (piece, held) in held.iter().enumerate() {
            for (id, bytes) in &held.weights {
                let new = || Common { bytes: *bytes, pieces: BTreeSet::new() };
                common.entry(*id).or_insert_with(new).pieces.insert(piece);
            }
        }
        common.retain(|_, common| common.pieces.len() > 1);
        assert_eq!(groups(&held, &common, most), expected, "with {most} bytes");
    }

    #[test]
    fn pieces_go_together_as_long_as_they_fit() {
        let pieces: [(usize, &[(&str, u64)]); 5] = [
            (0, &[("base", 10), ("a", 40)]),
            (1, &[("base", 10), ("b", 40)]),
            (2, &[("base", 10), ("c", 40)]),
            (3, &[("base", 10), ("d", 40)]),
            (4, &[("else", 10)]),
        ];
        check(&pieces, 1000, &[&[0, 1, 2, 3]]);
        check(&pieces, 170, &[&[0, 1, 2, 3]]);
        check(&pieces, 169, &[&[0, 1, 2]]);
        check(&pieces, 90, &[&[0, 1], &[2, 3]]);
        check(&pieces, 89, &[]);
    }

    #[test]
    fn what_saves_most_goes_together_first() {
        let pieces: [(usize, &[(&str, u64)]); 3] =
            [(0, &[("small", 10)]), (1, &[("small", 10), ("large", 50)]), (2, &[("large", 50)])];
        check(&pieces, 60, &[&[0, 1, 2]]);
        check(&pieces, 59, &[]);
        let pieces: [(usize, &[(&str, u64)]); 3] = [
            (0, &[("small", 10), ("a", 20)]),
            (1, &[("small", 10), ("large", 50)]),
            (2, &[("large", 50), ("c", 1)]),
        ];
        check(&pieces, 70, &[&[1, 2]]);
    }

    #[test]
    fn what_a_model_needs_beside_the_group_counts() {
        let apart: [(usize, &[(&str, u64)]); 3] =
            [(0, &[("base", 50)]), (1, &[("base", 50), ("b", 10)]), (2, &[("rest", 60)])];
        check(&apart, 100, &[&[0, 1]]);
        let own: [(usize, &[(&str, u64)]); 3] =
            [(0, &[("base", 50)]), (1, &[("base", 50), ("b", 10)]), (0, &[("rest", 60)])];
        check(&own, 100, &[]);
    }
}
