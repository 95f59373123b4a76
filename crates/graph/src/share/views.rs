//! Which input of each model plays which part in what the models have in common.
//!
//! A *slot* is an input of the shared computation; a *view* of a model says which of its inputs
//! fills which slot. Two nodes are the same where their structures agree and their leaves fill
//! the same slots. A model that computes the same function of two inputs (two towers with the
//! same weights) has a second view, in which the second input fills the first one's slot.
//!
//! Structures with the longest computation behind them decide first, because they fix the most;
//! what would contradict them is left out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::net::{Net, Origin};
use super::prices::Prices;
use crate::structure::Structure;

/// A model with as many towers is not known; it bounds the work on one that was made up.
const MOST_VIEWS: usize = 16;

/// One way to see a model.
pub(super) struct View {
    pub(super) model: usize,
    /// The slot that each leaf fills, by its position; no two fill one.
    pub(super) slots: BTreeMap<usize, usize>,
}

impl View {
    fn slot(&self, leaf: usize) -> Option<usize> {
        self.slots.get(&leaf).copied()
    }

    /// The leaf that fills a slot.
    pub(super) fn leaf(&self, slot: usize) -> Option<usize> {
        self.slots.iter().find(|(_, filled)| **filled == slot).map(|(leaf, _)| *leaf)
    }

    /// The slots of these leaves, if each fills one.
    fn all(&self, leaves: &[usize]) -> Option<Vec<usize>> {
        leaves.iter().map(|leaf| self.slot(*leaf)).collect()
    }

    /// Lets leaves fill slots, unless that contradicts what they already do.
    fn fill(&mut self, leaves: &[usize], slots: &[usize]) -> bool {
        let agrees = |(leaf, slot): (&usize, &usize)| {
            self.slot(*leaf) == Some(*slot)
                || self.slot(*leaf).is_none() && self.leaf(*slot).is_none()
        };
        let agrees = leaves.iter().zip(slots).all(agrees);
        if agrees {
            self.slots.extend(leaves.iter().copied().zip(slots.iter().copied()));
        }
        agrees
    }
}

/// A node that has its structure with another one in common.
struct Occurrence<'a> {
    model: usize,
    leaves: &'a [usize],
}

/// Finds views under which the models have the most in common. The first view of a model comes
/// before its others.
pub(super) fn views(nets: &[Net<'_>], prices: &Prices) -> Vec<View> {
    let mut found: HashMap<Structure, (u64, Vec<Occurrence<'_>>)> = HashMap::new();
    for (model, net) in nets.iter().enumerate() {
        let behind = path_prices(net, prices);
        for (node, behind) in net.nodes.iter().zip(behind) {
            let Some((_, structure)) = node.structures.as_ref().and_then(|all| all.first()) else {
                continue;
            };
            if node.depends_on.is_empty() {
                continue;
            }
            let (largest, occurrences) = found.entry(*structure).or_default();
            *largest = behind.max(*largest);
            occurrences.push(Occurrence { model, leaves: &node.depends_on });
        }
    }
    let mut common: Vec<_> =
        found.into_iter().filter(|(_, (_, occurrences))| occurrences.len() > 1).collect();
    common.sort_by_key(|(structure, (behind, _))| (Reverse(*behind), *structure));

    let first = |model| View { model, slots: BTreeMap::new() };
    let mut state =
        State { views: (0..nets.len()).map(|model| vec![first(model)]).collect(), slots: 0 };
    for (_, (behind, occurrences)) in &common {
        state.bind(occurrences, *behind >= prices.launch);
    }
    state.views.into_iter().flatten().collect()
}

/// What the longest computation up to each node costs.
fn path_prices(net: &Net<'_>, prices: &Prices) -> Vec<u64> {
    let mut behind: Vec<u64> = Vec::with_capacity(net.nodes.len());
    for node in &net.nodes {
        let before = node.operands.iter().filter_map(|operand| match operand {
            Origin::Node(producer, _) => Some(behind[*producer]),
            _ => None,
        });
        // Never nothing, so that a node always comes before what it needs.
        let own = prices.time(&node.total).saturating_add(1);
        behind.push(own.saturating_add(before.max().unwrap_or(0)));
    }
    behind
}

struct State {
    /// By model.
    views: Vec<Vec<View>>,
    /// How many slots there are.
    slots: usize,
}

impl State {
    /// Makes all occurrences of one structure the same as far as possible.
    fn bind(&mut self, occurrences: &[Occurrence<'_>], worth_a_view: bool) {
        let mut bound: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
        for (number, occurrence) in occurrences.iter().enumerate() {
            for view in &self.views[occurrence.model] {
                let slots = view.all(occurrence.leaves);
                slots.into_iter().for_each(|slots| bound.entry(slots).or_default().push(number));
            }
        }
        // Most occurrences, then the oldest slots.
        let best = bound.iter().max_by_key(|(slots, who)| (who.len(), Reverse((*slots).clone())));
        let target = match best {
            Some((_, who)) if (0..occurrences.len()).all(|n| who.contains(&n)) => return,
            Some((slots, _)) => slots.clone(),
            None => self.bind_first(&occurrences[0]),
        };
        for (number, occurrence) in occurrences.iter().enumerate() {
            let shared_already = bound.values().any(|who| who.len() > 1 && who.contains(&number));
            let views = &mut self.views[occurrence.model];
            if views.iter().any(|view| view.all(occurrence.leaves).as_ref() == Some(&target))
                || views.iter_mut().any(|view| view.fill(occurrence.leaves, &target))
                || shared_already
                || !worth_a_view
                || views.len() == MOST_VIEWS
            {
                continue;
            }
            let mut view = View { model: occurrence.model, slots: BTreeMap::new() };
            view.fill(occurrence.leaves, &target);
            views.push(view);
        }
    }

    /// New slots for what the first view of a model does not see yet.
    fn bind_first(&mut self, occurrence: &Occurrence<'_>) -> Vec<usize> {
        let view = &mut self.views[occurrence.model][0];
        let slots = occurrence.leaves.iter().map(|leaf| {
            *view.slots.entry(*leaf).or_insert_with(|| {
                self.slots += 1;
                self.slots - 1
            })
        });
        slots.collect()
    }
}
