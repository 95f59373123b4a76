//! Choices: of what a model does in a stage or nothing, and of one model's value among several.
//!
//! What a model does is one `If` deep and no deeper, for the engine's sake: it brings weights into the
//! order that it computes with where a branch captures them, but not where a branch of a branch does,
//! and then computes other bits.

use super::flow::Slot;
use super::named::Named;
use super::piece::{branch, constant, node, value};
use crate::dtype::DataType;
use crate::proto::{GraphProto, NodeProto};

/// A value that a stage of a model gives to the outer graph.
pub(super) struct Given<'a> {
    /// Its name in the model.
    pub(super) value: &'a str,
    /// Its name in the outer graph.
    pub(super) name: String,
    pub(super) dtype: DataType,
}

/// What a model does in a stage if it is chosen; values without elements if not.
pub(super) fn if_chosen(
    part: &Named<'_>,
    stage: usize,
    body: GraphProto,
    given: &[Given<'_>],
) -> NodeProto {
    let names = given.iter().map(|given| given.name.clone()).collect();
    let mut choice = choice(part, format!("{}:stage {stage}", part.number), names);
    choice.attribute =
        vec![branch("then_branch", body), branch("else_branch", nothing(part, stage, given))];
    choice
}

/// What stands for the values of a model that is not chosen.
fn nothing(part: &Named<'_>, stage: usize, given: &[Given<'_>]) -> GraphProto {
    let name = |place| format!("{}:nothing {stage}/{place}", part.number);
    let named = || given.iter().enumerate().map(|(place, given)| (name(place), given.dtype));
    GraphProto {
        name: format!("{}:nothing, stage {stage}", part.number),
        node: named().map(|(name, dtype)| constant(&name, dtype)).collect(),
        output: named().map(|(name, dtype)| value(&name, dtype, None)).collect(),
        ..GraphProto::default()
    }
}

/// Fills slots with the values of whichever model is chosen. As exactly one is, it is the last if it is
/// none of the others. `values` are, for each part, what its values are called in the outer graph.
pub(super) fn merge(
    parts: &[Named<'_>],
    stage: usize,
    slots: &[&Slot],
    values: &[Vec<String>],
) -> Vec<NodeProto> {
    let outputs = |names: &[String]| {
        names.iter().zip(slots).map(|(name, slot)| value(name, slot.dtype, None)).collect()
    };
    let take = |part: &Named<'_>, values: &[String]| {
        let name = |place| format!("{}:taken {stage}/{place}", part.number);
        let names: Vec<String> = (0..slots.len()).map(name).collect();
        let nodes = values.iter().zip(&names);
        GraphProto {
            name: format!("{}:taken, stage {stage}", part.number),
            node: nodes
                .map(|(from, to)| node("Identity", vec![from.clone()], vec![to.clone()]))
                .collect(),
            output: outputs(&names),
            ..GraphProto::default()
        }
    };
    let mut taken: Vec<GraphProto> =
        parts.iter().zip(values).map(|(part, values)| take(part, values)).collect();
    let last = taken.pop().unwrap_or_default();
    let merged = parts.iter().zip(taken).rev().fold(last, |otherwise, (part, taken)| {
        let name = |(place, slot): (usize, &&Slot)| match part.number {
            0 => slot.name.clone(),
            number => format!("{number}:or later {stage}/{place}"),
        };
        let names: Vec<String> = slots.iter().enumerate().map(name).collect();
        let label = format!("{}:or later, stage {stage}", part.number);
        let output = outputs(&names);
        let mut choice = choice(part, label.clone(), names);
        choice.attribute = vec![branch("then_branch", taken), branch("else_branch", otherwise)];
        GraphProto { name: label, output, node: vec![choice], ..GraphProto::default() }
    });
    merged.node
}

fn choice(part: &Named<'_>, name: String, outputs: Vec<String>) -> NodeProto {
    NodeProto { name, ..node("If", vec![part.composed.chosen_by.clone()], outputs) }
}
