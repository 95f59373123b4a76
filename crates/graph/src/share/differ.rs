//! Why what is not shared is not, for people.

use std::collections::{HashMap, HashSet};
use std::fmt;

use prost::Message;

use super::net::{Net, NetNode, Origin};
use super::plan::{SegmentKind, SharePlan};
use super::trunks::United;
use crate::canonical::is_random;
use crate::structure::{Structure, leaf_structure};
use crate::validate::node_label;

/// More would not be read.
const MOST_FOR_A_MODEL: usize = 5;

/// A place where a model parts ways with the one that it has most in common with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The model, by position.
    pub model: usize,
    /// The one that it is compared with.
    pub other: usize,
    /// What messages call the node at which they differ: all before it is the same in both.
    pub node: String,
    /// The node's operator.
    pub operator: String,
    /// In what they differ.
    pub reason: Reason,
}

/// In what a node differs from what another model has in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum Reason {
    /// Nothing is equal to what depends on chance.
    Chance,
    Weight {
        name: String,
        other: String,
    },
    Attribute {
        name: String,
        other: String,
    },
    Operator {
        other: String,
    },
    Operands {
        other: String,
    },
    /// The other model has no node there.
    Ends,
    /// The other model computes the same of inputs that play another part in the rest.
    Inputs,
    /// Computing it again takes less than passing it on.
    NotWorth,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Chance => f.write_str("it depends on chance, so nothing is equal to it"),
            Reason::Weight { name, other } => {
                write!(f, "its weight `{name}` is not the other model's `{other}`")
            }
            Reason::Attribute { name, other } => {
                write!(f, "its attribute `{name}` is another than that of {other}")
            }
            Reason::Operator { other } => write!(f, "the other model goes on with {other}"),
            Reason::Operands { other } => write!(f, "it takes other values than {other}"),
            Reason::Ends => f.write_str("the other model has nothing like it there"),
            Reason::Inputs => f.write_str(
                "the other model computes the same, but of inputs that play another part in the rest",
            ),
            Reason::NotWorth => f.write_str(
                "both models have it, but computing it again takes less than passing it on",
            ),
        }
    }
}

/// Where each model parts ways with the one that it has most in common with.
pub(super) fn differences(united: &United<'_>, plan: &SharePlan) -> Vec<Difference> {
    let sides: Vec<Side<'_>> = united.nets.iter().map(Side::new).collect();
    let mut found = Vec::new();
    for (model, side) in sides.iter().enumerate() {
        let others = (0..sides.len()).filter(|other| *other != model);
        // The first of several that have as much in common.
        let closest = others.rev().max_by_key(|other| side.common(&sides[*other], united));
        let Some(other) = closest else { continue };
        let name = |(node, reason): (&NetNode<'_>, Reason)| Difference {
            model,
            other,
            node: node_label(node.proto),
            operator: node.proto.op_type.clone(),
            reason,
        };
        found.extend(side.differences(&sides[other]).into_iter().map(name));
        found.extend(left_apart(united, plan, side, (model, other), &sides[other]).map(name));
    }
    found
}

/// What is common by structure, and yet in no trunk of both.
fn left_apart<'a>(
    united: &United<'_>,
    plan: &SharePlan,
    side: &Side<'a>,
    (model, other): (usize, usize),
    other_side: &Side<'_>,
) -> Option<(&'a NetNode<'a>, Reason)> {
    let in_view_of = |wanted: usize| move |view: &usize| united.views[*view].model == wanted;
    let bound = |node: usize| {
        (0..united.views.len()).filter(in_view_of(model)).any(|view| {
            let class = united.classes.of_node(view, node);
            class.is_some_and(|class| {
                united.classes.all[class].views().iter().any(in_view_of(other))
            })
        })
    };
    let common = || {
        let nodes = side.net.nodes.iter().enumerate();
        nodes.filter(|(_, node)| !node.depends_on.is_empty() && side.is_in(node, other_side))
    };
    if let Some((_, node)) = common().find(|(number, _)| !bound(*number)) {
        return Some((node, Reason::Inputs));
    }
    let joined = plan.segments.iter().any(|segment| {
        segment.kind == SegmentKind::Trunk
            && segment.users.contains(&model)
            && segment.users.contains(&other)
    });
    let last = common().next_back().filter(|_| !joined);
    last.map(|(_, node)| (node, Reason::NotWorth))
}

/// One of two models that are compared.
struct Side<'a> {
    net: &'a Net<'a>,
    structures: HashSet<Structure>,
}

impl<'a> Side<'a> {
    fn new(net: &'a Net<'a>) -> Side<'a> {
        let structures = net.nodes.iter().filter_map(structure).collect();
        Side { net, structures }
    }

    fn is_in(&self, node: &NetNode<'_>, other: &Side<'_>) -> bool {
        structure(node).is_some_and(|structure| other.structures.contains(&structure))
    }

    /// What both compute, by its price.
    fn common(&self, other: &Side<'_>, united: &United<'_>) -> u64 {
        let common = self.net.nodes.iter().filter(|node| self.is_in(node, other));
        common.fold(0, |sum, node| sum.saturating_add(united.prices.time(&node.total)))
    }

    /// The first nodes that the other does not have.
    fn differences(&self, other: &Side<'_>) -> Vec<(&'a NetNode<'a>, Reason)> {
        let theirs = other.frontier(self);
        let mut found = Vec::new();
        for node in self.frontier(other).into_iter().take(MOST_FOR_A_MODEL) {
            let reason = if node.structures.is_none() {
                Reason::Chance
            } else {
                let like = |candidate: &&&NetNode<'_>| other.likeness(candidate, self, node);
                let closest = theirs.iter().rev().max_by_key(like);
                let closest = closest.filter(|candidate| like(candidate).0 > 0);
                closest.map_or(Reason::Ends, |closest| self.reason(node, other, closest))
            };
            found.push((node, reason));
        }
        found
    }

    /// The nodes that the other does not have although it has all that they need.
    fn frontier(&self, other: &Side<'_>) -> Vec<&'a NetNode<'a>> {
        let has = |operand: &Origin| match *operand {
            Origin::Node(node, _) => self.is_in(&self.net.nodes[node], other),
            _ => true,
        };
        let first = |node: &&NetNode<'_>| {
            // A node that depends on chance without using it itself follows from one that does.
            let follows = node.structures.is_none() && !is_random(node.proto);
            !self.is_in(node, other) && !follows && node.operands.iter().all(has)
        };
        self.net.nodes.iter().filter(first).collect()
    }

    /// How many operands two nodes have in common, then whether their operators agree.
    fn likeness(
        &self,
        node: &NetNode<'_>,
        other: &Side<'_>,
        theirs: &NetNode<'_>,
    ) -> (usize, bool) {
        let theirs_takes = other.takes(theirs);
        let mut counts: HashMap<Structure, usize> = HashMap::new();
        theirs_takes.iter().for_each(|structure| *counts.entry(*structure).or_default() += 1);
        let common = self.takes(node).into_iter().filter(|structure| {
            counts.get_mut(structure).is_some_and(|left| {
                let had = *left > 0;
                *left = left.saturating_sub(1);
                had
            })
        });
        (common.count(), node.proto.op_type == theirs.proto.op_type)
    }

    /// The structures of what a node takes, weights apart.
    fn takes(&self, node: &NetNode<'_>) -> Vec<Structure> {
        let taken = node.operands.iter().filter_map(|operand| match *operand {
            Origin::Node(node, output) => {
                let structures = self.net.nodes[node].structures.as_ref()?.iter();
                structures.into_iter().find(|(number, _)| *number == output).map(|(_, s)| *s)
            }
            Origin::Leaf(leaf) => {
                let leaf = &self.net.leaves[leaf];
                let declared = || self.net.model().inputs()[leaf.input].dtype;
                Some(leaf_structure(leaf.casts.last().copied().or_else(declared)))
            }
            Origin::Weight(_) => None,
        });
        taken.collect()
    }

    fn reason(&self, node: &NetNode<'_>, other: &Side<'_>, theirs: &NetNode<'_>) -> Reason {
        let label = || node_label(theirs.proto);
        let (own, their) = (node.proto, theirs.proto);
        if (&own.op_type, &own.domain) != (&their.op_type, &their.domain) {
            return Reason::Operator { other: label() };
        }
        let attributes = own.attribute.iter().chain(&their.attribute);
        for name in attributes.map(|attribute| &attribute.name) {
            let find = |node: &crate::proto::NodeProto| {
                let found = node.attribute.iter().find(|attribute| attribute.name == *name);
                // Bodies are compared by what they compute, not by how they are written.
                found.filter(|attribute| attribute.g.is_none()).map(Message::encode_to_vec)
            };
            if find(own) != find(their) {
                return Reason::Attribute { name: name.clone(), other: label() };
            }
        }
        for (name, their) in own.input.iter().zip(&their.input) {
            let weight = |side: &Side<'_>, name: &str| match side.net.origin(name)? {
                Origin::Weight(_) => side.net.member.prints.get(name).map(|print| print.structure),
                _ => None,
            };
            let pair = (weight(self, name), weight(other, their));
            if let (Some(own), Some(other)) = pair
                && own != other
            {
                return Reason::Weight { name: name.clone(), other: their.clone() };
            }
        }
        Reason::Operands { other: label() }
    }
}

fn structure(node: &NetNode<'_>) -> Option<Structure> {
    node.structures.as_ref()?.first().map(|(_, structure)| *structure)
}
