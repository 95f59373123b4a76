//! From pieces to segments and steps: who feeds whom.

use std::collections::{BTreeMap, HashMap};

use super::assemble::{Assembly, Given, Head, TrunkFeed, TrunkPiece, Use};
use super::classes::ClassValue;
use super::net::Origin;
use super::piece::{Feed, Piece};
use super::plan::{Route, Segment, SegmentCost, SegmentKind, SharePlan, Source, Step, StepOutput};

/// The plan as far as it is made. Trunks are added in order, then heads.
pub(super) struct Wiring<'a> {
    assembly: &'a Assembly<'a>,
    segments: Vec<Segment>,
    /// The steps of each model so far.
    steps: Vec<Vec<Step>>,
    /// Which step of its model a use of a trunk is.
    step_of: HashMap<Use, usize>,
    /// What the segment of a trunk calls a value that it gives.
    names: HashMap<(usize, ClassValue), String>,
    models: Vec<Route>,
}

impl<'a> Wiring<'a> {
    pub(super) fn new(assembly: &'a Assembly<'a>) -> Wiring<'a> {
        Wiring {
            assembly,
            segments: Vec::new(),
            steps: assembly.united.nets.iter().map(|_| Vec::new()).collect(),
            step_of: HashMap::new(),
            names: HashMap::new(),
            models: Vec::new(),
        }
    }

    pub(super) fn trunk(&mut self, number: usize, trunk: TrunkPiece) {
        let TrunkPiece { mut piece, views, values, feeds } = trunk;
        let inputs: Vec<String> = piece.graph().input.iter().map(|i| i.name.clone()).collect();
        let mut users = Vec::new();
        for &view in &views {
            let sources = feeds.iter().map(|feed| self.source(view, feed));
            let inputs = inputs.iter().cloned().zip(sources).collect();
            let model = self.assembly.united.views[view].model;
            self.step_of.insert((number, view), self.steps[model].len());
            self.steps[model].push(Step { segment: self.segments.len(), inputs });
            users.push(model);
        }
        users.dedup();
        let mut output_bytes = BTreeMap::new();
        for &(class, output) in &values {
            let node = self.assembly.node_in(views[0], class);
            let value = &self.assembly.net_of(views[0]).nodes[node].outputs[output];
            output_bytes.insert(value.name.to_owned(), value.byte_len);
            self.names.insert((number, (class, output)), value.name.to_owned());
        }
        let kind = if views.len() > 1 { SegmentKind::Trunk } else { SegmentKind::Head };
        self.segments.push(segment(kind, piece, users, output_bytes));
    }

    pub(super) fn head(&mut self, model: usize, head: Head, given: &Given) {
        let net = &self.assembly.united.nets[model];
        let mut steps = std::mem::take(&mut self.steps[model]);
        let input = |name: &str| Source::Input { name: name.to_owned(), casts: Vec::new() };
        let mut outputs = BTreeMap::new();
        if let Some(mut piece) = head.piece {
            let step = steps.len();
            let found = |output: &str| StepOutput { step, output: output.to_owned() };
            let mut bytes = BTreeMap::new();
            let mut returned = piece.graph().output.iter().map(|output| output.name.clone());
            // A piece returns values first, in the order in which the model first names them,
            // then what the model returns as it is.
            let mut names: HashMap<Origin, String> = HashMap::new();
            for &(_, origin) in &net.outputs {
                if let Origin::Node(node, output) = origin
                    && !given.contains_key(&(node, output))
                    && !names.contains_key(&origin)
                {
                    names.extend(returned.next().map(|name| (origin, name)));
                }
            }
            for &(name, origin) in &net.outputs {
                match origin {
                    Origin::Node(node, output) if !given.contains_key(&(node, output)) => {
                        let there = if head.whole { name } else { &names[&origin] };
                        bytes.insert(there.to_owned(), net.nodes[node].outputs[output].byte_len);
                        outputs.insert(name.to_owned(), found(there));
                    }
                    Origin::Node(..) => {}
                    _ => {
                        let there = returned.next();
                        let there =
                            if head.whole { name } else { there.as_deref().unwrap_or(name) };
                        outputs.insert(name.to_owned(), found(there));
                    }
                }
            }
            let inputs = if head.whole {
                let inputs = net.model().inputs().into_iter();
                inputs.map(|value| (value.name.clone(), input(&value.name))).collect()
            } else {
                let sources = piece.feeds.clone().into_iter().map(|feed| match feed {
                    Feed::Leaf(leaf) => input(&net.model().inputs()[net.leaves[leaf].input].name),
                    Feed::Value(node, output) => {
                        let (from, value) = given[&(node, output)];
                        Source::Step(self.output(from, value))
                    }
                });
                let sources: Vec<Source> = sources.collect();
                piece.graph().input.iter().map(|i| i.name.clone()).zip(sources).collect()
            };
            steps.push(Step { segment: self.segments.len(), inputs });
            let kind = if head.whole { SegmentKind::Whole } else { SegmentKind::Head };
            let mut segment = segment(kind, piece, vec![model], bytes);
            if head.whole {
                segment.model = net.model().clone();
            }
            self.segments.push(segment);
        }
        for &(name, origin) in &net.outputs {
            if let Origin::Node(node, output) = origin
                && let Some(&(from, value)) = given.get(&(node, output))
            {
                outputs.insert(name.to_owned(), self.output(from, value));
            }
        }
        let name = net.member.name.to_owned();
        self.models.push(Route { name, steps, outputs });
    }

    pub(super) fn finish(self) -> SharePlan {
        let mut plan =
            SharePlan { segments: self.segments, models: self.models, differences: Vec::new() };
        count_crossings(&mut plan);
        plan
    }

    /// What feeds an input of a trunk in one of its uses.
    fn source(&self, view: usize, feed: &TrunkFeed) -> Source {
        match *feed {
            TrunkFeed::Slot { slot, casts_inside } => {
                let leaf = self.assembly.leaf_in(view, slot).expect("every use fills all slots");
                let name = self.assembly.net_of(view).model().inputs()[leaf.input].name.clone();
                let casts = if casts_inside { Vec::new() } else { leaf.casts.clone() };
                Source::Input { name, casts }
            }
            TrunkFeed::Value(from, value) => Source::Step(self.output((from, view), value)),
        }
    }

    fn output(&self, from: Use, value: ClassValue) -> StepOutput {
        let output = self.names[&(from.0, value)].clone();
        StepOutput { step: self.step_of[&from], output }
    }
}

fn segment(
    kind: SegmentKind,
    piece: Piece,
    users: Vec<usize>,
    output_bytes: BTreeMap<String, u64>,
) -> Segment {
    let cost = SegmentCost {
        flops: piece.flops,
        weight_bytes: piece.weight_bytes,
        ..SegmentCost::default()
    };
    let id = piece.id();
    Segment { kind, model: piece.into_model(), users, cost, output_bytes, id }
}

/// Counts what crosses between segments, each tensor once for every segment.
fn count_crossings(plan: &mut SharePlan) {
    let mut into: BTreeMap<(usize, &str), u64> = BTreeMap::new();
    let mut out_of: BTreeMap<(usize, &str), u64> = BTreeMap::new();
    for route in &plan.models {
        for step in &route.steps {
            for (input, source) in &step.inputs {
                let Source::Step(from) = source else { continue };
                let giver = route.steps[from.step].segment;
                let bytes = plan.segments[giver].output_bytes.get(&from.output).copied();
                into.insert((step.segment, input), bytes.unwrap_or(0));
                out_of.insert((giver, &from.output), bytes.unwrap_or(0));
            }
        }
    }
    let sum = |of: &BTreeMap<(usize, &str), u64>, number: usize| -> u64 {
        of.iter().filter(|((segment, _), _)| *segment == number).map(|(_, bytes)| bytes).sum()
    };
    let sums: Vec<(u64, u64)> =
        (0..plan.segments.len()).map(|number| (sum(&into, number), sum(&out_of, number))).collect();
    for (segment, (bytes_in, bytes_out)) in plan.segments.iter_mut().zip(sums) {
        segment.cost.bytes_in = bytes_in;
        segment.cost.bytes_out = bytes_out;
    }
}
