//! A share plan as text.

use std::collections::BTreeMap;

use holdfast_graph::share::{Route, Segment, SegmentKind, SharePlan};

use super::in_common::{Group, InCommon};
use super::planning::Mirrored;
use crate::args::ShareTarget;
use crate::output::{bytes, count, plural};

pub(super) fn lines(
    plan: &SharePlan,
    in_common: &InCommon,
    target: ShareTarget,
    dims: &BTreeMap<String, usize>,
) -> Vec<String> {
    let sizes: Vec<String> = dims.iter().map(|(name, size)| format!("{name}={size}")).collect();
    let at = if sizes.is_empty() { String::new() } else { format!(" at {}", sizes.join(", ")) };
    let mut lines =
        vec![format!("{} for {}{at}", plural(plan.models.len(), "graph"), target.name())];
    for (number, trunk) in trunks(plan) {
        lines.push(String::new());
        lines.push(format!("trunk {number}: {}", describe(trunk)));
        let users: Vec<&str> =
            trunk.users.iter().map(|user| plan.models[*user].name.as_str()).collect();
        lines.push(format!("  used by {}", users.join(", ")));
        for (output, size) in &trunk.output_bytes {
            lines.push(format!("  passes on {output}, {}", bytes(*size)));
        }
    }
    lines.push(String::new());
    lines.extend(plan.models.iter().map(|route| way(plan, route)));
    lines.push(String::new());
    lines.extend(savings(plan));
    lines.extend(without_trunk(plan, in_common, target));
    if !plan.differences.is_empty() {
        lines.push(String::new());
        lines.push("why the rest is not shared".to_owned());
    }
    for difference in &plan.differences {
        let (model, other) =
            (&plan.models[difference.model].name, &plan.models[difference.other].name);
        lines.push(format!(
            "  {model} and {other} part at {}: {}",
            difference.node, difference.reason
        ));
    }
    lines
}

/// What is the same but for its order, and so not the same to an engine.
pub(super) fn mirrored(mirrored: &[Mirrored]) -> Vec<String> {
    if mirrored.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), "the same numbers transposed, held by each".to_owned()];
    for Mirrored { graph, other, weights, bytes: size } in mirrored {
        let weights = plural(*weights, "weight");
        lines.push(format!(
            "  {graph} has {weights} of {other} the other way round, {}",
            bytes(*size)
        ));
    }
    lines
}

pub(super) fn kind(kind: SegmentKind) -> &'static str {
    match kind {
        SegmentKind::Trunk => "trunk",
        SegmentKind::Head => "head",
        SegmentKind::Whole => "whole",
    }
}

/// The trunks with their numbers, from one on.
fn trunks(plan: &SharePlan) -> impl Iterator<Item = (usize, &Segment)> {
    plan.trunks().enumerate().map(|(index, trunk)| (index + 1, trunk))
}

fn describe(segment: &Segment) -> String {
    format!(
        "{}, {}FLOP, {} of weights",
        plural(segment.model.nodes().len(), "node"),
        count(segment.cost.flops as f64),
        bytes(segment.cost.weight_bytes)
    )
}

/// What a model runs, one after the other.
fn way(plan: &SharePlan, route: &Route) -> String {
    let steps = route.steps.iter().map(|step| {
        let segment = &plan.segments[step.segment];
        let number = trunks(plan).find(|(_, trunk)| trunk.id == segment.id);
        match (segment.kind, number) {
            (SegmentKind::Trunk, Some((number, _))) => format!("trunk {number}"),
            (SegmentKind::Whole, _) => format!("on its own: {}", describe(segment)),
            _ => format!("a head of {}", describe(segment)),
        }
    });
    format!("{}: {}", route.name, steps.collect::<Vec<_>>().join(", then "))
}

fn savings(plan: &SharePlan) -> Vec<String> {
    if !plan.shares() {
        return vec!["they compute nothing alike that is worth sharing".to_owned()];
    }
    let ((flops, flops_apart), (held, held_apart)) = (plan.flops(), plan.weight_bytes());
    vec![
        format!("weights: {} instead of {}", bytes(held), bytes(held_apart)),
        format!(
            "one input through all of them: {}FLOP instead of {}FLOP",
            count(flops as f64),
            count(flops_apart as f64)
        ),
    ]
}

/// What is the same although it is not computed alike.
fn without_trunk(plan: &SharePlan, in_common: &InCommon, target: ShareTarget) -> Vec<String> {
    let InCommon { groups, bytes_once } = in_common;
    if groups.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), "weights in common without a common trunk".to_owned()];
    for (models, Group { weights, bytes: size }) in groups {
        let models: Vec<&str> =
            models.iter().map(|model| plan.models[*model].name.as_str()).collect();
        let weights = plural(*weights, "weight");
        lines.push(format!("  {}: {weights}, {}", models.join(", "), bytes(*size)));
    }
    lines.push(match target {
        ShareTarget::Cpu => {
            let (_, apart) = plan.weight_bytes();
            format!(
                "  the engine holds each once: {} in all instead of {}",
                bytes(*bytes_once),
                bytes(apart)
            )
        }
        ShareTarget::Webgpu => {
            "  a lane holds each once, in a buffer that all are fed from".to_owned()
        }
        ShareTarget::Wasm => {
            "  a lane holds each once where the models fit into one graph, of which one is chosen"
                .to_owned()
        }
        ShareTarget::Webnn => {
            "  WebNN has no way to hold them once: a lane has them for each model".to_owned()
        }
    });
    lines
}
