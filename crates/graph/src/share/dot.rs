//! A plan as a picture, for Graphviz.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::amounts::{bytes, operations};
use super::plan::{SegmentKind, SharePlan, Source};

impl SharePlan {
    /// The plan in the DOT language: segments as boxes (trunks filled), models as ellipses,
    /// and what crosses between them.
    pub fn to_dot(&self) -> String {
        let mut dot = String::from(
            "digraph plan {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n  edge [fontname=\"sans-serif\", fontsize=10];\n",
        );
        for (number, segment) in self.segments.iter().enumerate() {
            let (kind, style) = match segment.kind {
                SegmentKind::Trunk => ("trunk", ", style=filled, fillcolor=\"#cfe8d5\""),
                SegmentKind::Head => ("head", ""),
                SegmentKind::Whole => ("whole model", ", style=dashed"),
            };
            let cost = &segment.cost;
            let label = format!(
                "{kind}\n{} nodes\n{}\n{} of weights",
                segment.model.graph().node.len(),
                operations(cost.flops),
                bytes(cost.weight_bytes)
            );
            line(
                &mut dot,
                format_args!("  segment{number} [label=\"{}\"{style}];", escape(&label)),
            );
        }
        // Models that use two segments alike give the same edge: it is drawn once.
        let mut edges = BTreeSet::new();
        for (number, route) in self.models.iter().enumerate() {
            let name = escape(&route.name);
            line(&mut dot, format_args!("  model{number} [label=\"{name}\", shape=ellipse];"));
            for step in &route.steps {
                for source in step.inputs.values() {
                    let Source::Step(from) = source else { continue };
                    let giver = route.steps[from.step].segment;
                    let size = self.segments[giver].output_bytes.get(&from.output).copied();
                    let label = format!("{}\n{}", from.output, bytes(size.unwrap_or(0)));
                    edges.insert((
                        format!("segment{giver}"),
                        format!("segment{}", step.segment),
                        label,
                    ));
                }
            }
            for (output, from) in &route.outputs {
                let giver = format!("segment{}", route.steps[from.step].segment);
                edges.insert((giver, format!("model{number}"), output.clone()));
            }
        }
        for (from, to, label) in edges {
            line(&mut dot, format_args!("  {from} -> {to} [label=\"{}\"];", escape(&label)));
        }
        dot.push_str("}\n");
        dot
    }
}

fn line(dot: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(dot, "{line}").expect("writing to a string succeeds");
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
