//! Which classes are worth computing once, and where to cut.
//!
//! For a set of views, every class that they all have is computed in the trunk, in each head, or
//! in both (shape arithmetic is cheaper to repeat than to pass on). What a head takes from the
//! trunk crosses, once however many use it. The cheapest such choice is a cheapest cut: for
//! each class the vertices `outside` ("not in the trunk") and `repeated` ("in the heads"), for each
//! value `wanted` ("some head needs it"), with these edges, where being on the source's side is yes:
//!
//! ```text
//! source   → outside(v)    price of v in the trunk       paid unless v is outside
//! repeated → sink          price of v in every head      paid if v is repeated
//! outside  → repeated      ∞     what the trunk lacks, heads compute
//! outside(u) → outside(v)  ∞     v needs u: the trunk has what it needs
//! repeated(v) → wanted(u)  ∞     v needs u: a head needs what its nodes need
//! source   → wanted(u)     ∞     something that is not common, or the caller, needs u
//! wanted   → repeated(u)   price of moving u, or ∞ if it cannot cross
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};

use super::classes::{ClassValue, Classes};
use super::flow::{FORBIDDEN, Network};
use super::net::{Net, Origin};
use super::prices::Prices;
use super::views::View;

/// A part of the united graph that several views have in common.
pub(super) struct Trunk {
    pub(super) views: Vec<usize>,
    /// What others take from it, ascending.
    pub(super) outputs: Vec<ClassValue>,
    placed: HashMap<usize, Placed>,
}

/// What became of a class in a trunk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Placed {
    /// It is computed there for all who need it.
    Inside,
    /// It is computed there, and again wherever else it is needed.
    Repeated,
}

impl Trunk {
    fn serves(&self, views: &[usize]) -> bool {
        views.iter().all(|view| self.views.contains(view))
    }

    pub(super) fn gives(&self, value: ClassValue) -> bool {
        self.outputs.binary_search(&value).is_ok()
    }
}

/// Everything that the choice is made from.
pub(super) struct United<'a> {
    pub(super) nets: &'a [Net<'a>],
    pub(super) views: &'a [View],
    pub(super) classes: &'a Classes,
    pub(super) prices: &'a Prices,
}

/// Chooses trunks, larger circles of views first: a trunk only needs what earlier ones give.
pub(super) fn trunks(united: &United<'_>) -> Vec<Trunk> {
    let consumers: Vec<_> = united.nets.iter().map(Net::consumers).collect();
    let mut trunks: Vec<Trunk> = Vec::new();
    for views in united.classes.sets() {
        let circle = Circle::new(united, &consumers, &views);
        if circle.could_pay()
            && let Some(trunk) = circle.trunk(&trunks)
        {
            trunks.push(trunk);
        }
    }
    trunks
}

/// Who needs each output of each node of a model.
type Consumers = HashMap<(usize, usize), Vec<usize>>;

/// A set of views, and what it costs to compute something in it.
struct Circle<'a> {
    united: &'a United<'a>,
    consumers: &'a [Consumers],
    views: &'a [usize],
    /// How many times the trunk runs for one input of every model: a model may use it twice.
    runs: u64,
    models: u64,
}

/// A class that may be in the trunk, and its vertices.
struct Candidate {
    class: usize,
    outside: usize,
    repeated: usize,
    /// By output.
    wanted: Vec<usize>,
}

impl<'a> Circle<'a> {
    fn new(united: &'a United<'a>, consumers: &'a [Consumers], views: &'a [usize]) -> Circle<'a> {
        let mut uses: BTreeMap<usize, u64> = BTreeMap::new();
        views.iter().for_each(|view| *uses.entry(united.views[*view].model).or_default() += 1);
        let runs = uses.values().copied().max().unwrap_or(0);
        Circle { united, consumers, views, runs, models: uses.len() as u64 }
    }

    /// What a class costs in the trunk and in all heads together.
    fn prices(&self, class: usize) -> (u64, u64) {
        let (view, node) = self.united.classes.all[class].members[0];
        let total = &self.united.nets[self.united.views[view].model].nodes[node].total;
        let time = self.united.prices.time(total).min(FORBIDDEN >> 20);
        let weights = total.weight_bytes.saturating_mul(self.united.prices.weight_byte);
        let weights = weights.min(FORBIDDEN >> 20);
        (self.runs * time + weights, self.views.len() as u64 * time + self.models * weights)
    }

    /// Whether what just these views have is worth a launch, if nothing had to cross.
    fn could_pay(&self) -> bool {
        let all = self.united.classes.all.iter().enumerate();
        let own = all.filter(|(_, class)| class.views() == self.views);
        let saved =
            own.map(|(class, _)| self.prices(class)).map(|(once, each)| each - once.min(each));
        saved.fold(0, u64::saturating_add) > self.united.prices.launch
    }

    fn trunk(&self, earlier: &[Trunk]) -> Option<Trunk> {
        let serving: Vec<&Trunk> =
            earlier.iter().filter(|trunk| trunk.serves(self.views)).collect();
        let mut network = Network::new();
        let mut candidates: Vec<Candidate> = Vec::new();
        for (class, info) in self.united.classes.all.iter().enumerate() {
            let settled = |trunk: &&Trunk| trunk.placed.get(&class) == Some(&Placed::Inside);
            if info.is_in_all(self.views) && !serving.iter().any(settled) {
                let wanted = (0..self.outputs(class)).map(|_| network.vertex()).collect();
                let (outside, repeated) = (network.vertex(), network.vertex());
                candidates.push(Candidate { class, outside, repeated, wanted });
            }
        }
        let by_class: HashMap<usize, &Candidate> =
            candidates.iter().map(|candidate| (candidate.class, candidate)).collect();
        let mut all_in_heads = 0u64;
        for candidate in &candidates {
            let (once, each) = self.prices(candidate.class);
            all_in_heads = all_in_heads.saturating_add(each);
            network.edge(Network::SOURCE, candidate.outside, once);
            network.edge(candidate.repeated, Network::SINK, each);
            network.edge(candidate.outside, candidate.repeated, FORBIDDEN);
            for (needed, output) in &self.united.classes.all[candidate.class].operands {
                if let Some(needed) = by_class.get(needed) {
                    network.edge(needed.outside, candidate.outside, FORBIDDEN);
                    network.edge(candidate.repeated, needed.wanted[*output], FORBIDDEN);
                }
            }
            for (output, wanted) in candidate.wanted.iter().enumerate() {
                let value = (candidate.class, output);
                if self.wanted_elsewhere(value) {
                    network.edge(Network::SOURCE, *wanted, FORBIDDEN);
                }
                network.edge(*wanted, candidate.repeated, self.crossing(value));
            }
        }
        let (price, yes) = network.cheapest_cut();

        let mut outputs = Vec::new();
        for candidate in candidates.iter().filter(|candidate| !yes[candidate.repeated]) {
            let wanted = candidate.wanted.iter().enumerate().filter(|(_, wanted)| yes[**wanted]);
            outputs.extend(wanted.map(|(output, _)| (candidate.class, output)));
        }
        let gives = |value: ClassValue| {
            outputs.binary_search(&value).is_ok() || serving.iter().any(|trunk| trunk.gives(value))
        };
        let launches = if self.ends_a_model(&gives) { 0 } else { self.united.prices.launch };
        if outputs.is_empty() || all_in_heads.saturating_sub(price) <= launches {
            return None;
        }
        let placed = self.placed(&outputs, &by_class, &yes);
        Some(Trunk { views: self.views.to_vec(), outputs, placed })
    }

    /// The classes that the outputs need, and whether heads repeat them.
    fn placed(
        &self,
        outputs: &[ClassValue],
        by_class: &HashMap<usize, &Candidate>,
        yes: &[bool],
    ) -> HashMap<usize, Placed> {
        let mut placed = HashMap::new();
        let mut waiting: Vec<usize> = outputs.iter().map(|(class, _)| *class).collect();
        while let Some(class) = waiting.pop() {
            let Some(candidate) = by_class.get(&class) else { continue };
            let how = if yes[candidate.repeated] { Placed::Repeated } else { Placed::Inside };
            if placed.insert(class, how).is_none() {
                let operands = &self.united.classes.all[class].operands;
                waiting.extend(operands.iter().map(|(class, _)| *class));
            }
        }
        placed
    }

    fn outputs(&self, class: usize) -> usize {
        let (view, node) = self.united.classes.all[class].members[0];
        self.united.nets[self.united.views[view].model].nodes[node].outputs.len()
    }

    /// A value in each view of the circle: the model, its net and the node.
    fn in_views(&self, class: usize) -> impl Iterator<Item = (usize, usize, usize)> + Clone {
        self.views.iter().filter_map(move |&view| {
            let node = self.united.classes.all[class].node_in(view)?;
            Some((view, self.united.views[view].model, node))
        })
    }

    fn is_returned(&self, model: usize, node: usize, output: usize) -> bool {
        let mut outputs = self.united.nets[model].outputs.iter();
        outputs.any(|(_, origin)| *origin == Origin::Node(node, output))
    }

    /// Whether a model returns the value, or a node needs it that not all views have.
    fn wanted_elsewhere(&self, (class, output): ClassValue) -> bool {
        let all = &self.united.classes.all;
        self.in_views(class).any(|(view, model, node)| {
            let is_common = |consumer: &usize| {
                let class = self.united.classes.of_node(view, *consumer);
                class.is_some_and(|class| all[class].is_in_all(self.views))
            };
            let consumers = self.consumers[model].get(&(node, output));
            self.is_returned(model, node, output)
                || consumers.is_some_and(|consumers| !consumers.iter().all(is_common))
        })
    }

    /// What it costs that a value crosses: the trunk writes it, and every view reads it.
    fn crossing(&self, (class, output): ClassValue) -> u64 {
        let mut values = self.in_views(class).map(|(_, model, node)| {
            (&self.united.nets[model].nodes[node].outputs[output], (model, node))
        });
        if values.clone().any(|(value, _)| !value.may_cross) {
            return FORBIDDEN;
        }
        // What every model returns leaves the session in any case.
        if values.clone().all(|(_, (model, node))| self.is_returned(model, node, output)) {
            return 0;
        }
        let byte_len = values.next().map_or(0, |(value, _)| value.byte_len);
        let times = (self.runs + self.views.len() as u64) * self.united.prices.moved_byte;
        byte_len.saturating_mul(times).min(FORBIDDEN >> 20)
    }

    /// Whether a model needs nothing more, so that the trunk is not one more launch for it.
    fn ends_a_model(&self, gives: &dyn Fn(ClassValue) -> bool) -> bool {
        let models: HashSet<usize> =
            self.views.iter().map(|view| self.united.views[*view].model).collect();
        models.into_iter().any(|model| {
            let mut outputs = self.united.nets[model].outputs.iter();
            outputs.all(|(_, origin)| match *origin {
                Origin::Node(node, output) => self.views.iter().any(|view| {
                    self.united.views[*view].model == model
                        && self
                            .united
                            .classes
                            .of_node(*view, node)
                            .is_some_and(|class| gives((class, output)))
                }),
                _ => false,
            })
        })
    }
}
