//! The nodes of all models as one graph, in which equal nodes are one.
//!
//! A *class* is a node as all views see it. The views that have a class also have what it needs,
//! so the set of views only shrinks from a node to those that follow it.

use std::collections::{BTreeSet, HashMap};

use super::net::{Net, Origin};
use super::views::View;
use crate::structure::Structure;

/// A value in the united graph: a class and which of its outputs.
pub(super) type ClassValue = (usize, usize);

pub(super) struct Classes {
    /// In an order in which each follows what it needs.
    pub(super) all: Vec<Class>,
    /// The class of each node by view, where it has one.
    of_node: Vec<Vec<Option<usize>>>,
}

pub(super) struct Class {
    /// The views that have it, ascending, with the node in each.
    pub(super) members: Vec<(usize, usize)>,
    /// What it needs of other classes.
    pub(super) operands: Vec<ClassValue>,
}

impl Class {
    pub(super) fn node_in(&self, view: usize) -> Option<usize> {
        let found = self.members.binary_search_by_key(&view, |(view, _)| *view).ok()?;
        Some(self.members[found].1)
    }

    /// Whether all of these views have it.
    pub(super) fn is_in_all(&self, views: &[usize]) -> bool {
        views.iter().all(|view| self.node_in(*view).is_some())
    }

    pub(super) fn views(&self) -> Vec<usize> {
        self.members.iter().map(|(view, _)| *view).collect()
    }
}

/// What two nodes must have in common to be one class: structures, the slots that their leaves
/// fill, in order, and what they need. `x - y` and `y - x` differ in the order of their leaves.
type Key<'a> = (&'a [(usize, Structure)], Vec<usize>, Vec<Operand>);

#[derive(PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Operand {
    Slot(usize),
    Value(ClassValue),
}

impl Classes {
    pub(super) fn new(nets: &[Net<'_>], views: &[View]) -> Classes {
        let mut known: HashMap<Key<'_>, usize> = HashMap::new();
        let mut classes = Classes { all: Vec::new(), of_node: Vec::new() };
        for (number, view) in views.iter().enumerate() {
            let net = &nets[view.model];
            let mut of_node: Vec<Option<usize>> = Vec::with_capacity(net.nodes.len());
            for (position, node) in net.nodes.iter().enumerate() {
                let operands = node.operands.iter().filter_map(|operand| match *operand {
                    Origin::Weight(_) => None,
                    Origin::Leaf(leaf) => Some(view.slots.get(&leaf).copied().map(Operand::Slot)),
                    Origin::Node(node, output) => {
                        Some(of_node[node].map(|class| Operand::Value((class, output))))
                    }
                });
                let operands: Option<Vec<Operand>> = operands.collect();
                let leaves = node.depends_on.iter().map(|leaf| view.slots.get(leaf).copied());
                let leaves: Option<Vec<usize>> = leaves.collect();
                let (Some(structures), Some(leaves), Some(mut operands)) =
                    (&node.structures, leaves, operands)
                else {
                    of_node.push(None);
                    continue;
                };
                // A sum may be written either way round.
                operands.sort_unstable();
                let values = operands.iter().filter_map(|operand| match operand {
                    Operand::Value(value) => Some(*value),
                    Operand::Slot(_) => None,
                });
                let values: Vec<ClassValue> = values.collect();
                let class = *known.entry((structures, leaves, operands)).or_insert_with(|| {
                    classes.all.push(Class { members: Vec::new(), operands: values });
                    classes.all.len() - 1
                });
                classes.all[class].members.push((number, position));
                of_node.push(Some(class));
            }
            classes.of_node.push(of_node);
        }
        classes
    }

    pub(super) fn of_node(&self, view: usize, node: usize) -> Option<usize> {
        self.of_node[view][node]
    }

    /// The sets of views that have something in common, supersets first.
    pub(super) fn sets(&self) -> Vec<Vec<usize>> {
        let shared = self.all.iter().filter(|class| class.members.len() > 1);
        let sets: BTreeSet<Vec<usize>> = shared.map(Class::views).collect();
        let mut sets: Vec<Vec<usize>> = sets.into_iter().collect();
        sets.sort_by_key(|set| std::cmp::Reverse(set.len()));
        sets
    }
}
