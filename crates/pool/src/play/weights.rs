//! Weights in common without a common beginning, such as adapters on one base or a decoder and its
//! twin with a past: each backend has its own way to hold them once.
//!
//! The in-process engine shares them between sessions by itself. On WebGPU they become inputs, fed
//! from one buffer. WebAssembly can share nothing between sessions, so the pieces become one graph
//! of which one of them is chosen.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use holdfast_devices::cpu::Target;
use holdfast_graph::share::Segment as Piece;
use holdfast_graph::{
    ComposedPart, DataType, HashedWeight, LEAST_LIFTED_BYTES, Lifted, Part, Tensor, WeightId,
    WeightTable, compose, lift,
};

use super::Means;
use super::groups::{Held, groups};
use crate::route::Source;
use crate::scheduler::member::SESSION_BYTES;

/// How the weights of a piece are held.
pub(super) enum Holding {
    /// With the piece.
    Alone,
    /// Those that others have too, once for all of them.
    Lifted(Box<Lifted>),
    /// In one graph with other pieces.
    Composed {
        /// Which of the composites.
        composite: usize,
        /// Which part of it.
        part: usize,
    },
}

/// Several pieces in one graph.
pub(super) struct Composite {
    pub(super) model: holdfast_graph::Model,
    pub(super) parts: Vec<ComposedPart>,
    /// The pieces, by number.
    pub(super) pieces: Vec<usize>,
    /// What each input takes when its part is not chosen.
    idle: BTreeMap<String, Tensor>,
}

/// How the weights of all pieces are held.
pub(super) struct Holdings {
    pub(super) of_piece: Vec<Holding>,
    pub(super) composites: Vec<Composite>,
}

/// Decides how the weights of pieces are held on a target.
pub(super) fn holdings(
    target: Target,
    pieces: &[Piece],
    tables: &[WeightTable],
    means: &Means,
) -> Holdings {
    let alone = || Holdings {
        of_piece: pieces.iter().map(|_| Holding::Alone).collect(),
        composites: Vec::new(),
    };
    let common = common(tables);
    let saved: u64 = common.values().map(|common| common.saved_bytes()).sum();
    let is_worth_it = saved.saturating_mul(means.prices.weight_byte) > means.prices.launch;
    match target {
        Target::WebGpu if is_worth_it => {
            Holdings { of_piece: lifted(pieces, tables, &common), ..alone() }
        }
        Target::Wasm if is_worth_it => {
            composed(alone(), pieces, tables, groups_of(pieces, tables, &common, means))
        }
        Target::Cpu | Target::WebNn | Target::WebGpu | Target::Wasm => alone(),
    }
}

/// A weight that several pieces have.
pub(super) struct Common {
    pub(super) bytes: u64,
    pub(super) pieces: BTreeSet<usize>,
}

impl Common {
    pub(super) fn saved_bytes(&self) -> u64 {
        self.bytes * (self.pieces.len() as u64 - 1)
    }
}

fn common(tables: &[WeightTable]) -> HashMap<WeightId, Common> {
    let mut all: HashMap<WeightId, Common> = HashMap::new();
    for (piece, table) in tables.iter().enumerate() {
        let large = table.entries().iter();
        for weight in large.filter(|weight| weight.tensor.bytes().len() >= LEAST_LIFTED_BYTES) {
            let bytes = weight.tensor.bytes().len() as u64;
            let new = || Common { bytes, pieces: BTreeSet::new() };
            all.entry(weight.id).or_insert_with(new).pieces.insert(piece);
        }
    }
    all.retain(|_, common| common.pieces.len() > 1);
    all
}

fn lifted(
    pieces: &[Piece],
    tables: &[WeightTable],
    common: &HashMap<WeightId, Common>,
) -> Vec<Holding> {
    let of = |(piece, table): (&Piece, &WeightTable)| {
        // What shaders compute with.
        let can_be =
            |weight: &HashedWeight| matches!(weight.tensor.dtype(), DataType::F32 | DataType::F16);
        let chosen = |weight: &HashedWeight| common.contains_key(&weight.id) && can_be(weight);
        let lifted = lift(&piece.model, table, chosen);
        match lifted.weights.is_empty() {
            true => Holding::Alone,
            false => Holding::Lifted(Box::new(lifted)),
        }
    };
    pieces.iter().zip(tables).map(of).collect()
}

/// Puts pieces that have weights in common into one graph, group by group.
fn composed(
    mut holdings: Holdings,
    pieces: &[Piece],
    tables: &[WeightTable],
    groups: Vec<Vec<usize>>,
) -> Holdings {
    for group in groups {
        let names: Vec<String> = group.iter().map(|piece| format!("piece {piece}")).collect();
        let parts: Vec<Part<'_>> = group
            .iter()
            .zip(&names)
            .map(|(&piece, name)| Part {
                name,
                model: &pieces[piece].model,
                weights: &tables[piece],
            })
            .collect();
        let Ok(composite) = compose(&parts) else {
            // Written for different versions of the operators, say: then each has its own.
            continue;
        };
        let Some(idle) = idle(&group, pieces, &composite.parts) else { continue };
        let number = holdings.composites.len();
        for (part, &piece) in group.iter().enumerate() {
            holdings.of_piece[piece] = Holding::Composed { composite: number, part };
        }
        let (model, parts) = (composite.model, composite.parts);
        holdings.composites.push(Composite { model, parts, pieces: group, idle });
    }
    holdings
}

/// The pieces that go into one graph, group by group.
fn groups_of(
    pieces: &[Piece],
    tables: &[WeightTable],
    common: &HashMap<WeightId, Common>,
    means: &Means,
) -> Vec<Vec<usize>> {
    let held = pieces.iter().zip(tables).map(|(piece, table)| Held {
        users: piece.users.iter().copied().collect(),
        weights: table.entries().iter().map(|w| (w.id, w.tensor.bytes().len() as u64)).collect(),
    });
    let held: Vec<Held> = held.collect();
    groups(&held, common, means.lane_bytes.saturating_sub(SESSION_BYTES))
}

/// What inputs take whose part is not chosen.
fn idle(
    group: &[usize],
    pieces: &[Piece],
    parts: &[ComposedPart],
) -> Option<BTreeMap<String, Tensor>> {
    let mut idle = BTreeMap::new();
    for (&piece, part) in group.iter().zip(parts) {
        idle.insert(part.chosen_by.clone(), Tensor::zeros(DataType::Bool, &[]).ok()?);
        for input in pieces[piece].model.inputs() {
            let composed = part.inputs.get(&input.name)?;
            let tensor = Tensor::zeros(input.dtype?, &composed.idle_shape).ok()?;
            idle.insert(composed.name.clone(), tensor);
        }
    }
    Some(idle)
}

impl Composite {
    /// What feeds the graph so that one part of it runs on these.
    pub(super) fn inputs(&self, part: usize, given: &[(String, Source)]) -> Vec<(String, Source)> {
        let chosen = &self.parts[part];
        let mut inputs: BTreeMap<String, Source> = self
            .idle
            .iter()
            .map(|(name, tensor)| (name.clone(), Source::Constant(tensor.clone())))
            .collect();
        if let Ok(yes) = Tensor::from_slice(&[], &[true]) {
            inputs.insert(chosen.chosen_by.clone(), Source::Constant(yes));
        }
        for (name, source) in given {
            if let Some(composed) = chosen.inputs.get(name) {
                inputs.insert(composed.name.clone(), source.clone());
            }
        }
        inputs.into_iter().collect()
    }
}
