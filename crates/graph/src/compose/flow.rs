//! What stages leave for those after them, in *slots*: values of one model that it needs again or
//! returns, and the operands of common products, which are the value of whichever model is chosen.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::build::common_name;
use super::levels::Levels;
use super::named::Named;
use crate::dtype::DataType;
use crate::topology::needs;

/// A value of the outer graph that a stage gives.
pub(super) struct Slot {
    /// Its name in the outer graph.
    pub(super) name: String,
    pub(super) dtype: DataType,
    /// What it holds, by the number of the part that is chosen: of one part, or of each.
    pub(super) values: BTreeMap<usize, String>,
}

impl Slot {
    /// Whether it holds a value of each part. Each then gives its own, of which one is taken.
    pub(super) fn is_merged(&self) -> bool {
        self.values.len() > 1
    }

    /// What the value of a part is called in the outer graph.
    pub(super) fn name_of(&self, part: &Named<'_>) -> String {
        if self.is_merged() { format!("{}:{}", part.number, self.name) } else { self.name.clone() }
    }
}

/// What passes between the stages and common products of a composite.
pub(super) struct Flow {
    /// What each stage gives.
    pub(super) slots: Vec<Vec<Slot>>,
    /// For each level, the operands of its common products in the outer graph.
    pub(super) operands: Vec<Vec<String>>,
}

impl Flow {
    pub(super) fn new(parts: &[Named<'_>], levels: &Levels) -> Flow {
        let mut slots: Vec<Vec<Slot>> = (0..levels.count()).map(|_| Vec::new()).collect();
        for part in parts {
            for output in &part.outputs {
                let values = BTreeMap::from([(part.number, output.value.clone())]);
                let (name, dtype) = (output.given_as.clone(), output.dtype);
                slots[levels.stage(part, &output.value)].push(Slot { name, dtype, values });
            }
        }
        let operands = operands(parts, levels, &mut slots);
        for part in parts {
            for (stage, value) in left(part, levels, &slots) {
                leave(&mut slots[stage], stage, part, value);
            }
        }
        Flow { slots, operands }
    }
}

/// Finds the operands of all common products, and has the stages give those that are not such a
/// product themselves.
fn operands(parts: &[Named<'_>], levels: &Levels, slots: &mut [Vec<Slot>]) -> Vec<Vec<String>> {
    let mut known: HashMap<Vec<&str>, String> = HashMap::new();
    let mut operands = Vec::new();
    for level in 0..levels.count() {
        let mut of_level = Vec::new();
        for anchor in levels.anchors(level) {
            let nodes = || parts.iter().zip(anchor).map(|(part, &node)| &part.graph.node[node]);
            let own: Vec<&str> = nodes().map(|node| node.input[0].as_str()).collect();
            let name = known.entry(own).or_insert_with_key(|own| {
                let at = parts.iter().zip(own).map(|(part, value)| levels.stage(part, value));
                let stage = at.max().unwrap_or(0);
                let name = slot_name(stage, slots[stage].len());
                let values = own.iter().map(|&value| value.to_owned()).enumerate().collect();
                // Products are of one type throughout.
                let dtype = parts[0].types[&parts[0].graph.node[anchor[0]].output[0]];
                slots[stage].push(Slot { name: name.clone(), dtype, values });
                name
            });
            of_level.push(name.clone());
            let results = nodes().map(|node| node.output[0].as_str()).collect();
            known.insert(results, common_name(&parts[0], anchor[0]));
        }
        operands.push(of_level);
    }
    operands
}

/// The values of a part that later stages need, each with the stage that computes it.
fn left(part: &Named<'_>, levels: &Levels, slots: &[Vec<Slot>]) -> BTreeSet<(usize, String)> {
    let mut left = BTreeSet::new();
    let mut need = |value: &str, stage: usize| {
        let from = levels.stage(part, value);
        if from < stage && part.producers.contains_key(value) && !levels.is_anchor(part, value) {
            left.insert((from, value.to_owned()));
        }
    };
    for (stage, slots) in slots.iter().enumerate() {
        let nodes = levels.nodes(part, stage);
        nodes.flat_map(|node| needs(&part.graph.node[node])).for_each(|value| need(value, stage));
        let given = slots.iter().filter_map(|slot| slot.values.get(&part.number));
        given.for_each(|value| need(value, stage));
    }
    left
}

/// Has a stage give a value, unless it does.
fn leave(slots: &mut Vec<Slot>, stage: usize, part: &Named<'_>, value: String) {
    if slots.iter().all(|slot| slot.values.get(&part.number) != Some(&value)) {
        let (name, dtype) = (slot_name(stage, slots.len()), part.types[&value]);
        slots.push(Slot { name, dtype, values: BTreeMap::from([(part.number, value)]) });
    }
}

fn slot_name(stage: usize, place: usize) -> String {
    format!("stage {stage}:{place}")
}
