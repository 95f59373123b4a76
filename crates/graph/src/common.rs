//! What two models compute alike.

use std::collections::HashMap;

use crate::model::Model;
use crate::structure::{Fingerprint, Fingerprints, Leaf, Structure};
use crate::topology::order;

/// The values that two models have in common under one binding of their inputs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Common {
    /// Which input of the left model is which of the right one, in the order they are met.
    pub binding: Vec<(Leaf, Leaf)>,
    /// Pairs of values that are the same function of the bound inputs, in the left model's order.
    pub values: Vec<(String, String)>,
}

/// Finds what `left` and `right` have in common: node outputs that depend on an input.
///
/// The last value that matches fixes the binding, because it depends on the most; values that
/// would need another binding are left out.
pub fn common(left: (&Model, &Fingerprints), right: (&Model, &Fingerprints)) -> Common {
    let mut by_structure: HashMap<Structure, Vec<(&str, &Fingerprint)>> = HashMap::new();
    for (name, fingerprint) in computed(right.0, right.1) {
        by_structure.entry(fingerprint.structure).or_default().push((name, fingerprint));
    }
    let mut found = Common::default();
    for (name, fingerprint) in computed(left.0, left.1).into_iter().rev() {
        let candidates = by_structure.get(&fingerprint.structure).into_iter().flatten();
        // From the back as well, so that two symmetrical parts pair up in their order.
        for (other, candidate) in candidates.rev() {
            if extend(&mut found.binding, fingerprint, candidate) {
                found.values.push((name.to_owned(), (*other).to_owned()));
                break;
            }
        }
    }
    found.values.reverse();
    found
}

/// The outputs of a model's nodes that are a function of its inputs, in topological order.
fn computed<'a>(model: &'a Model, prints: &'a Fingerprints) -> Vec<(&'a str, &'a Fingerprint)> {
    let graph = model.graph();
    let order = order(graph).expect("a checked model has no cycles");
    let outputs = order.into_iter().flat_map(|index| &graph.node[index].output);
    outputs
        .filter_map(|name| Some((name.as_str(), prints.get(name)?)))
        .filter(|(_, fingerprint)| !fingerprint.leaves.is_empty())
        .collect()
}

/// Adds the pairs that two equal structures imply, unless they contradict the binding.
fn extend(binding: &mut Vec<(Leaf, Leaf)>, left: &Fingerprint, right: &Fingerprint) -> bool {
    let pairs = left.leaves.iter().zip(right.leaves.iter());
    let contradicts = |(a, b): (&Leaf, &Leaf)| {
        binding.iter().any(|(bound_a, bound_b)| (bound_a == a) != (bound_b == b))
    };
    if pairs.clone().any(contradicts) {
        return false;
    }
    for (a, b) in pairs {
        if !binding.iter().any(|(bound, _)| bound == a) {
            binding.push((a.clone(), b.clone()));
        }
    }
    true
}
