//! From chosen trunks to a plan: which of them each model really needs, the pieces, the wiring.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::classes::ClassValue;
use super::dims::{loosen, without_shapes};
use super::net::{Net, Origin};
use super::piece::{Feed, LeafInput, Piece, Wanted, describe_leaf, describe_value};
use super::plan::SharePlan;
use super::trunks::{Trunk, United};
use super::wiring::Wiring;
use crate::hoist::all_names;
use crate::structure::Leaf;

/// A trunk as one view uses it.
pub(super) type Use = (usize, usize);

pub(super) fn assemble(united: &United<'_>, trunks: &[Trunk]) -> SharePlan {
    let assembly = Assembly { united, trunks };
    let given: Vec<_> = (0..united.nets.len()).map(|model| assembly.given(model)).collect();
    let heads: Vec<Head> =
        (0..united.nets.len()).map(|model| assembly.head(model, &given[model])).collect();

    // Backwards: what a trunk has to give is known when all that come after it are.
    let mut demand: Vec<Demand> = trunks.iter().map(|_| Demand::default()).collect();
    for head in &heads {
        head.takes.iter().for_each(|(from, value)| demand[from.0].add(from.1, *value));
    }
    let mut pieces: Vec<Option<TrunkPiece>> = trunks.iter().map(|_| None).collect();
    for number in (0..trunks.len()).rev() {
        let Demand { views, values } = std::mem::take(&mut demand[number]);
        if views.is_empty() {
            continue;
        }
        let piece = assembly.piece(number, views, values);
        for (from, value) in piece.feeds.iter().filter_map(TrunkFeed::value) {
            piece.views.iter().for_each(|view| demand[from].add(*view, value));
        }
        pieces[number] = Some(piece);
    }
    let mut wiring = Wiring::new(&assembly);
    for (number, piece) in pieces.into_iter().enumerate() {
        piece.into_iter().for_each(|piece| wiring.trunk(number, piece));
    }
    for (model, head) in heads.into_iter().enumerate() {
        wiring.head(model, head, &given[model]);
    }
    wiring.finish()
}

/// What is asked of a trunk.
#[derive(Default)]
struct Demand {
    views: BTreeSet<usize>,
    values: BTreeSet<ClassValue>,
}

impl Demand {
    fn add(&mut self, view: usize, value: ClassValue) {
        self.views.insert(view);
        self.values.insert(value);
    }
}

/// What is left of a model.
pub(super) struct Head {
    /// `None` if trunks give all that the model returns.
    pub(super) piece: Option<Piece>,
    /// The piece is the model as it was given.
    pub(super) whole: bool,
    /// What trunks have to give it, or to its caller.
    takes: Vec<(Use, ClassValue)>,
}

/// A trunk that is used, as a piece of the model of its first view.
pub(super) struct TrunkPiece {
    pub(super) piece: Piece,
    pub(super) views: Vec<usize>,
    /// What it returns.
    pub(super) values: Vec<ClassValue>,
    /// What feeds each of its inputs.
    pub(super) feeds: Vec<TrunkFeed>,
}

pub(super) enum TrunkFeed {
    /// An input of the models.
    Slot { slot: usize, casts_inside: bool },
    /// From this trunk.
    Value(usize, ClassValue),
}

impl TrunkFeed {
    fn value(&self) -> Option<(usize, ClassValue)> {
        match *self {
            TrunkFeed::Value(from, value) => Some((from, value)),
            TrunkFeed::Slot { .. } => None,
        }
    }
}

/// What trunks give a model, by node and output.
pub(super) type Given = HashMap<(usize, usize), (Use, ClassValue)>;

pub(super) struct Assembly<'a> {
    pub(super) united: &'a United<'a>,
    trunks: &'a [Trunk],
}

impl<'a> Assembly<'a> {
    pub(super) fn net_of(&self, view: usize) -> &'a Net<'a> {
        &self.united.nets[self.united.views[view].model]
    }

    pub(super) fn node_in(&self, view: usize, class: usize) -> usize {
        self.united.classes.all[class].node_in(view).expect("every view of a trunk has its classes")
    }

    fn given(&self, model: usize) -> Given {
        let mut given = HashMap::new();
        for (number, trunk) in self.trunks.iter().enumerate() {
            let views = trunk.views.iter().filter(|view| self.united.views[**view].model == model);
            for view in views {
                for &(class, output) in &trunk.outputs {
                    let value = (self.node_in(*view, class), output);
                    given.entry(value).or_insert(((number, *view), (class, output)));
                }
            }
        }
        given
    }

    fn head(&self, model: usize, given: &Given) -> Head {
        let net = &self.united.nets[model];
        let mut values: Vec<(usize, usize)> = Vec::new();
        let mut echoes = Vec::new();
        let mut takes: Vec<(Use, ClassValue)> = Vec::new();
        for &(name, origin) in &net.outputs {
            match origin {
                Origin::Node(node, output) => match given.get(&(node, output)) {
                    Some(take) => takes.push(*take),
                    None if values.contains(&(node, output)) => {}
                    None => values.push((node, output)),
                },
                _ => echoes.push((name, origin)),
            }
        }
        if values.is_empty() && echoes.is_empty() {
            return Head { piece: None, whole: false, takes };
        }
        let leaves = own_leaves(net);
        let is_given = |node, output| given.contains_key(&(node, output));
        let wanted = Wanted { values, echoes, given: &is_given, leaves: &leaves };
        let piece = Piece::new(net, &wanted);
        takes.extend(piece.feeds.iter().filter_map(|feed| match *feed {
            Feed::Value(node, output) => Some(given[&(node, output)]),
            Feed::Leaf(_) => None,
        }));
        Head { piece: Some(piece), whole: takes.is_empty(), takes }
    }

    fn piece(
        &self,
        number: usize,
        views: BTreeSet<usize>,
        values: BTreeSet<ClassValue>,
    ) -> TrunkPiece {
        let trunk = &self.trunks[number];
        let views: Vec<usize> = views.into_iter().collect();
        let first = views[0];
        let net = self.net_of(first);
        let earlier = |node: usize, output: usize| {
            let class = self.united.classes.of_node(first, node)?;
            let serves = |other: &usize| {
                let other = &self.trunks[*other];
                trunk.views.iter().all(|view| other.views.contains(view))
                    && other.gives((class, output))
            };
            Some(((0..number).find(serves)?, (class, output)))
        };
        let leaves = self.leaf_inputs(&views);
        let is_given = |node, output| earlier(node, output).is_some();
        let in_net = |&(class, output): &ClassValue| (self.node_in(first, class), output);
        let wanted = Wanted {
            values: values.iter().map(in_net).collect(),
            echoes: Vec::new(),
            given: &is_given,
            leaves: &leaves,
        };
        let mut piece = Piece::new(net, &wanted);
        let feeds: Vec<TrunkFeed> = piece
            .feeds
            .iter()
            .map(|feed| match *feed {
                Feed::Leaf(leaf) => TrunkFeed::Slot {
                    slot: self.united.views[first].slots[&leaf],
                    casts_inside: leaves[&leaf].casts_inside,
                },
                Feed::Value(node, output) => {
                    let (from, value) = earlier(node, output).expect("only what is given is fed");
                    TrunkFeed::Value(from, value)
                }
            })
            .collect();
        let values: Vec<ClassValue> = values.into_iter().collect();
        self.loosen(&mut piece, &views, &feeds, &values);
        TrunkPiece { piece, views, values, feeds }
    }

    /// How a trunk takes the leaves of its first view. Casts that all uses do alike are done
    /// inside; then leaves that are one input in every use are one input of the trunk.
    fn leaf_inputs(&self, views: &[usize]) -> BTreeMap<usize, LeafInput> {
        let first = &self.united.views[views[0]];
        let net = &self.united.nets[first.model];
        let inputs = net.model().inputs();
        let mut taken = HashSet::new();
        all_names(net.model().graph(), &mut taken);
        let mut known: Vec<(Vec<usize>, bool, usize, String)> = Vec::new();
        let mut found = BTreeMap::new();
        for (&leaf, &slot) in &first.slots {
            // A view of the trunk may not see all that its model's first view does.
            let uses: Option<Vec<_>> = views.iter().map(|view| self.leaf_in(*view, slot)).collect();
            let Some(uses) = uses else { continue };
            let casts_inside = uses.iter().all(|other| other.casts == net.leaves[leaf].casts);
            let raw: Vec<usize> = uses.iter().map(|leaf| leaf.input).collect();
            let same =
                known.iter().find(|(inputs, inside, ..)| casts_inside && *inside && *inputs == raw);
            let name = match same {
                Some((.., name)) => name.clone(),
                None => {
                    let input = net.leaves[leaf].input;
                    let again = known.iter().filter(|(.., other, _)| *other == input).count();
                    let mut name = inputs[input].name.clone();
                    if again > 0 {
                        name.push_str("_again");
                        while !taken.insert(name.clone()) {
                            name.push('_');
                        }
                    }
                    known.push((raw, casts_inside, input, name.clone()));
                    name
                }
            };
            found.insert(leaf, LeafInput { name, casts_inside });
        }
        found
    }

    pub(super) fn leaf_in(&self, view: usize, slot: usize) -> Option<&'a Leaf> {
        let leaf = self.united.views[view].leaf(slot)?;
        Some(&self.net_of(view).leaves[leaf])
    }

    /// Declares of a trunk's inputs and outputs only what holds in every use.
    fn loosen(
        &self,
        piece: &mut Piece,
        views: &[usize],
        feeds: &[TrunkFeed],
        values: &[ClassValue],
    ) {
        let describe = |view: &usize| {
            let net = self.net_of(*view);
            let value = |&(class, output): &ClassValue| {
                describe_value(net, self.node_in(*view, class), output)
            };
            let inputs = feeds.iter().map(|feed| match feed {
                TrunkFeed::Slot { slot, casts_inside } => {
                    let leaf = self.united.views[*view].leaf(*slot);
                    describe_leaf(net, leaf.expect("every use fills all slots"), *casts_inside)
                }
                TrunkFeed::Value(_, taken) => value(taken),
            });
            inputs.chain(values.iter().map(value)).collect()
        };
        let others: Vec<Vec<_>> = views[1..].iter().map(describe).collect();
        let graph = piece.graph();
        let inputs = graph.input.len();
        let mut declared = [graph.input.as_slice(), &graph.output].concat();
        if loosen(&mut declared, &others) {
            graph.output = declared.split_off(inputs);
            graph.input = declared;
            without_shapes(&mut graph.output);
            graph.value_info.clear();
        }
    }
}

/// How a head takes the leaves of its own model: as the model's inputs.
fn own_leaves(net: &Net<'_>) -> BTreeMap<usize, LeafInput> {
    let inputs = net.model().inputs();
    let input =
        |leaf: &Leaf| LeafInput { name: inputs[leaf.input].name.clone(), casts_inside: true };
    net.leaves.iter().map(input).enumerate().collect()
}
