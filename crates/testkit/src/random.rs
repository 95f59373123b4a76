//! Random small graphs, and what property tests do to them.
//!
//! Every value is a square matrix, so everything composes with everything. [`graph`] makes one,
//! [`family`] several that begin alike, [`relatives()`] several with products in common,
//! [`evaluate()`] runs them without an engine, [`transform`] changes how one is written and
//! [`mutate`] what it computes.

mod evaluate;
pub mod mutate;
mod relatives;
pub mod transform;

use holdfast_graph::proto::AttributeProto;
use holdfast_graph::{DataType, Model};

pub use evaluate::{EvaluateError, evaluate, sample_inputs};
pub use relatives::relatives;

use crate::attribute::{float, int, ints};
use crate::builder::{Builder, fixed};
use crate::numbers::Numbers;
use crate::weights::{Init, Weights};

/// Rows and columns of every value.
pub const SIDE: usize = 3;

/// Values are kept below this, so that nothing overflows however long the chain.
const LARGEST: f32 = 1e3;

/// A valid graph of 1 to 24 operators over 1 to 4 inputs; some inputs may be unused. Weights
/// are initializers and `Constant` nodes mixed, and every node contributes to an output.
///
/// ```
/// use holdfast_testkit::random;
/// let model = random::graph(7);
/// let outputs = random::evaluate(&model, &random::sample_inputs(&model, 1))?;
/// assert_eq!(outputs.len(), model.outputs().len());
/// # Ok::<(), random::EvaluateError>(())
/// ```
pub fn graph(seed: u64) -> Model {
    let mut draft = Draft::new(seed);
    for _ in 0..1 + draft.numbers.below(24) {
        draft.add_operator();
    }
    draft.finish()
}

/// 2 to 5 models that begin alike: all with one part, then in groups with a further one, then
/// each with operators of its own, or none. Some are written in another way, and some differ from
/// their family in a bit, an attribute or an edge.
pub fn family(seed: u64) -> Vec<Model> {
    let mut numbers = Numbers::labelled(seed, "random family");
    let members = 2 + numbers.below(4);
    let groups = 1 + numbers.below(3);
    let (common, grouped) = (1 + numbers.below(12), numbers.below(8));
    let member = |member: usize| {
        let mut draft = Draft::new(seed);
        draft.add_part(seed, "all", common);
        draft.add_part(seed, &format!("group {}", member % groups), grouped);
        let own = numbers.below(8);
        draft.add_part(seed, &format!("member {member}"), own);
        let model = draft.finish();
        let changes = numbers.next_u64();
        let model = match numbers.below(8) {
            0 => mutate::flip_weight_bit(&model, changes).map_or(model, |changed| changed.model),
            1 => mutate::change_attribute(&model, changes).map_or(model, |changed| changed.model),
            2 => mutate::rewire_edge(&model, changes).map_or(model, |changed| changed.model),
            _ => model,
        };
        if numbers.once_in(2) { transform::disguise(&model, changes).0 } else { model }
    };
    (0..members).map(member).collect()
}

struct Draft {
    builder: Builder,
    weights: Weights,
    numbers: Numbers,
    values: Vec<Known>,
    constants: usize,
}

#[derive(Clone)]
struct Known {
    name: String,
    /// No element is further from zero.
    bound: f32,
    /// Whether a node gave it and no node took it.
    loose: bool,
}

impl Draft {
    fn new(seed: u64) -> Draft {
        let mut numbers = Numbers::labelled(seed, "random graph");
        let weights = Weights::new(seed);
        let mut builder = Builder::with_weights("random", weights.clone());
        let values = (0..1 + numbers.below(4))
            .map(|index| {
                let dims = [fixed(SIDE), fixed(SIDE)];
                let name = builder.input(&format!("input_{index}"), DataType::F32, &dims);
                Known { name, bound: 4.0, loose: false }
            })
            .collect();
        Draft { builder, weights, numbers, values, constants: 0 }
    }

    /// Adds operators that only depend on what is there and on the label.
    fn add_part(&mut self, seed: u64, label: &str, operators: usize) {
        self.numbers = Numbers::labelled(seed, label);
        self.weights = Weights::new(seed).variant(label);
        self.builder.draw_from(self.weights.clone());
        (0..operators).for_each(|_| self.add_operator());
    }

    fn add_operator(&mut self) {
        let one = self.operand();
        match self.numbers.below(18) {
            0 => self.unary("Relu", &one, one.bound, vec![]),
            1 => self.unary("Tanh", &one, 1.0, vec![]),
            2 => self.unary("Sigmoid", &one, 1.0, vec![]),
            3 => self.unary("Neg", &one, one.bound, vec![]),
            4 => self.unary("Abs", &one, one.bound, vec![]),
            5 => self.unary("Identity", &one, one.bound, vec![]),
            6 => {
                let with = self.perhaps(float("alpha", 0.01), float("alpha", 0.2));
                self.unary("LeakyRelu", &one, one.bound, with);
            }
            7 => {
                let with = self.perhaps(float("alpha", 1.0), float("alpha", 0.5));
                self.unary("Elu", &one, one.bound.max(1.0), with);
            }
            8 => {
                let mut with = self.perhaps(float("alpha", 0.2), float("alpha", 0.3));
                with.extend(self.perhaps(float("beta", 0.5), float("beta", 0.4)));
                self.unary("HardSigmoid", &one, 1.0, with);
            }
            9 => {
                let with = self.perhaps(int("axis", -1), int("axis", 0));
                self.unary("Softmax", &one, 1.0, with);
            }
            10 => {
                let with = self.perhaps(ints("perm", &[1, 0]), ints("perm", &[1, 0]));
                self.unary("Transpose", &one, one.bound, with);
            }
            11 => self.gemm(&one),
            12 => self.concat_and_split(&one),
            13 => self.binary("MatMul", &one, |one, two| SIDE as f32 * one * two),
            14 => self.binary("Sub", &one, |one, two| one + two),
            15 => self.binary("Mul", &one, |one, two| one * two),
            16 => self.binary("Max", &one, f32::max),
            _ => self.binary("Add", &one, |one, two| one + two),
        }
    }

    fn unary(&mut self, operator: &str, one: &Known, bound: f32, with: Vec<AttributeProto>) {
        let name = self.builder.node(operator, &[&one.name], &with);
        self.add(name, bound);
    }

    fn binary(&mut self, operator: &str, one: &Known, bound: fn(f32, f32) -> f32) {
        let two = self.operand();
        let name = self.builder.node(operator, &[&one.name, &two.name], &[]);
        self.add(name, bound(one.bound, two.bound));
    }

    fn gemm(&mut self, one: &Known) {
        let (two, three) = (self.operand(), self.operand());
        let mut with = self.perhaps(float("alpha", 1.0), float("alpha", 0.5));
        with.extend(self.perhaps(float("beta", 1.0), float("beta", 0.25)));
        with.extend(self.perhaps(int("transA", 0), int("transA", 1)));
        with.extend(self.perhaps(int("transB", 0), int("transB", 1)));
        let name = self.builder.node("Gemm", &[&one.name, &two.name, &three.name], &with);
        self.add(name, SIDE as f32 * one.bound * two.bound + three.bound);
    }

    /// Two values side by side, and apart again along some axis.
    fn concat_and_split(&mut self, one: &Known) {
        let two = self.operand();
        let axis = self.numbers.below(2) as i64;
        let both = self.builder.node("Concat", &[&one.name, &two.name], &[int("axis", axis)]);
        let with =
            if axis == 0 && self.numbers.once_in(2) { vec![] } else { vec![int("axis", axis)] };
        for name in self.builder.node_with_outputs("Split", &[&both], &with, 2) {
            self.add(name, one.bound.max(two.bound));
        }
    }

    /// No attribute, the default spelled out, or another value.
    fn perhaps(&mut self, default: AttributeProto, other: AttributeProto) -> Vec<AttributeProto> {
        match self.numbers.below(3) {
            0 => vec![],
            1 => vec![default],
            _ => vec![other],
        }
    }

    /// A value that is there, or a new weight.
    fn operand(&mut self) -> Known {
        if self.numbers.once_in(4) {
            let name = format!("weight_{}", self.constants);
            self.constants += 1;
            let init = Init { mean: 0.0, deviation: 1.0 };
            let name = if self.numbers.once_in(2) {
                self.builder.weight(&name, &[SIDE, SIDE], init)
            } else {
                let tensor = self.weights.draw(&name, &[SIDE, SIDE], init);
                self.builder.constant(&tensor.expect("a small matrix"))
            };
            // The distribution has no tails beyond four deviations.
            self.values.push(Known { name, bound: 4.0, loose: false });
        } else {
            let place = self.numbers.below(self.values.len());
            let last = self.values.len() - 1;
            self.values.swap(place, last);
        }
        let value = self.values.last_mut().expect("there is an input");
        value.loose = false;
        value.clone()
    }

    fn add(&mut self, name: String, bound: f32) {
        if bound <= LARGEST {
            self.values.push(Known { name, bound, loose: true });
        } else {
            let name = self.builder.node("Tanh", &[&name], &[]);
            self.values.push(Known { name, bound: 1.0, loose: true });
        }
    }

    fn finish(mut self) -> Model {
        let loose = self.values.iter().filter(|value| value.loose);
        for (index, value) in loose.enumerate() {
            let dims = [fixed(SIDE), fixed(SIDE)];
            let name = format!("output_{index}");
            self.builder.output(&name, &value.name, DataType::F32, &dims);
        }
        self.builder.finish().expect("every name that a node takes was given before")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn graphs_are_valid_run_and_stay_finite() {
        for seed in 0..500 {
            let model = graph(seed);
            assert!(!model.outputs().is_empty(), "{seed}");
            let outputs = evaluate(&model, &sample_inputs(&model, seed)).unwrap();
            for (name, tensor) in outputs {
                assert_eq!(tensor.dims(), [SIDE, SIDE], "{seed}: {name}");
                let values = tensor.to_vec::<f32>().unwrap();
                assert!(values.iter().all(|value| value.is_finite()), "{seed}: {name}");
            }
        }
    }

    #[test]
    fn a_seed_gives_one_graph_and_seeds_give_many() {
        assert_eq!(graph(7), graph(7));
        let different: HashSet<String> =
            (0..100).map(|seed| format!("{:?}", graph(seed))).collect();
        assert_eq!(different.len(), 100);
    }

    #[test]
    fn every_operator_and_both_kinds_of_weight_appear() {
        let mut seen = HashSet::new();
        for model in (0..100).map(graph) {
            seen.extend(model.graph().node.iter().map(|node| node.op_type.clone()));
            if !model.graph().initializer.is_empty() {
                seen.insert("initializer".to_owned());
            }
        }
        assert_eq!(seen.len(), 21, "{seen:?}");
    }

    #[test]
    fn families_are_valid_run_and_differ() {
        let mut distinct = 0;
        for seed in 0..200 {
            let models = family(seed);
            assert_eq!(models, family(seed), "seeded");
            for model in &models {
                let order = holdfast_graph::topology::order(model.graph()).unwrap();
                assert!(order.is_sorted(), "{seed}: engines want nodes in order");
                evaluate(model, &sample_inputs(model, seed)).unwrap();
            }
            distinct += usize::from(models[0] != models[1]);
        }
        assert!(distinct > 160, "{distinct}");
    }

    #[test]
    fn relatives_are_valid_run_and_have_weights_in_common() {
        let mut related = 0;
        for seed in 0..100 {
            let models = relatives(seed);
            assert_eq!(models, relatives(seed), "seeded");
            let weights = |model: &Model| -> HashSet<_> {
                let all = holdfast_graph::weights::weights(model);
                all.iter().map(|weight| weight.tensor.bytes().to_vec()).collect()
            };
            related += usize::from(!weights(&models[0]).is_disjoint(&weights(&models[1])));
            for model in &models {
                let order = holdfast_graph::topology::order(model.graph()).unwrap();
                assert!(order.is_sorted(), "{seed}: engines want nodes in order");
                evaluate(model, &sample_inputs(model, seed)).unwrap();
            }
        }
        assert!(related > 80, "{related}");
    }

    #[test]
    fn nothing_is_dead() {
        for model in (0..100).map(graph) {
            let live = mutate::live_values(model.graph());
            for node in &model.graph().node {
                assert!(node.output.iter().any(|output| live.contains(output.as_str())));
            }
            let mut weights = model.graph().initializer.iter();
            assert!(weights.all(|weight| live.contains(weight.name.as_str())));
        }
    }
}
