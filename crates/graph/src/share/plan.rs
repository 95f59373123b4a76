//! What a plan says.

use std::collections::BTreeMap;

use super::Difference;
use crate::digest::{Digest, Record};
use crate::dtype::DataType;
use crate::model::Model;

/// How to run several models so that what they have in common is held and computed once.
#[derive(Clone, Debug)]
pub struct SharePlan {
    /// The models to load, each after those whose outputs it takes.
    pub segments: Vec<Segment>,
    /// How each model runs, in the order in which they were given.
    pub models: Vec<Route>,
    /// Where models part ways, and why.
    pub differences: Vec<Difference>,
}

/// A piece of a model, or a whole one.
#[derive(Clone, Debug)]
pub struct Segment {
    /// What it is to the models that use it.
    pub kind: SegmentKind,
    /// The piece, as a model of its own.
    pub model: Model,
    /// The models that use it, by position, each once.
    pub users: Vec<usize>,
    /// What it takes to run it once, at the sizes that were given.
    pub cost: SegmentCost,
    /// Bytes of each output, at these sizes.
    pub output_bytes: BTreeMap<String, u64>,
    /// Identifies it, weights included.
    pub id: Digest,
}

/// What a segment is to the models that use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// Several models use it, or one does several times.
    Trunk,
    /// What is left of one model.
    Head,
    /// A model that has nothing in common with the others, as it was given.
    Whole,
}

/// What running a segment once takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCost {
    /// Operations.
    pub flops: u64,
    /// Bytes of its weights.
    pub weight_bytes: u64,
    /// Bytes that it takes from other segments.
    pub bytes_in: u64,
    /// Bytes that others take from it.
    pub bytes_out: u64,
}

/// How one model runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The model's name, as given.
    pub name: String,
    /// What to run, in order.
    pub steps: Vec<Step>,
    /// Where each output of the model is found.
    pub outputs: BTreeMap<String, StepOutput>,
}

/// One run of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The segment, by position.
    pub segment: usize,
    /// What feeds each of its inputs.
    pub inputs: BTreeMap<String, Source>,
}

/// Where an input of a segment comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// An input of the model.
    Input {
        /// Its name in the model.
        name: String,
        /// Integer casts to apply first: the segment was cut from a model with another id type.
        casts: Vec<DataType>,
    },
    /// An output of an earlier step.
    Step(StepOutput),
}

/// An output of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepOutput {
    /// The step, by position in its route.
    pub step: usize,
    /// The output's name in the segment.
    pub output: String,
}

impl SharePlan {
    /// Identifies the plan: its segments and how they are wired, in whichever order and under
    /// whichever names the models were given.
    pub fn id(&self) -> Digest {
        let mut routes: Vec<Digest> =
            self.models.iter().map(|route| self.route_id(route)).collect();
        routes.sort_unstable();
        let mut record = Record::new("share plan");
        for route in &routes {
            record.digest(route);
        }
        record.finish()
    }

    /// Whether any segment serves several models, or one several times.
    pub fn shares(&self) -> bool {
        self.trunks().next().is_some()
    }

    /// The segments that are shared.
    pub fn trunks(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.kind == SegmentKind::Trunk)
    }

    /// What running all models once takes in operations: shared, and each on its own.
    pub fn flops(&self) -> (u64, u64) {
        self.totals(|segment| segment.cost.flops, true)
    }

    /// Bytes of weights in all sessions: shared, and each model on its own.
    pub fn weight_bytes(&self) -> (u64, u64) {
        self.totals(|segment| segment.cost.weight_bytes, false)
    }

    /// Puts the models in the order in which they were given: the first is number `order[0]`.
    pub(super) fn reorder(&mut self, order: &[usize]) {
        let models = std::mem::take(&mut self.models);
        let mut models: Vec<_> = order.iter().copied().zip(models).collect();
        models.sort_by_key(|(number, _)| *number);
        self.models = models.into_iter().map(|(_, route)| route).collect();
        for segment in &mut self.segments {
            segment.users.iter_mut().for_each(|user| *user = order[*user]);
            segment.users.sort_unstable();
        }
        for difference in &mut self.differences {
            difference.model = order[difference.model];
            difference.other = order[difference.other];
        }
        self.differences.sort_by_key(|difference| difference.model);
    }

    /// Sums over what is run (or held), once for all and once for every model.
    fn totals(&self, of: impl Fn(&Segment) -> u64, each_run: bool) -> (u64, u64) {
        let (mut shared, mut apart) = (0u64, 0u64);
        for (number, segment) in self.segments.iter().enumerate() {
            let runs = self.models.iter().map(|route| {
                let steps = route.steps.iter().filter(|step| step.segment == number).count() as u64;
                if each_run { steps } else { steps.min(1) }
            });
            let runs: Vec<u64> = runs.collect();
            let most = runs.iter().copied().max().unwrap_or(0);
            shared = shared.saturating_add(of(segment).saturating_mul(most));
            apart = apart.saturating_add(of(segment).saturating_mul(runs.iter().sum()));
        }
        (shared, apart)
    }

    fn route_id(&self, route: &Route) -> Digest {
        let mut record = Record::new("route");
        record.number(route.steps.len() as u64);
        for step in &route.steps {
            record.digest(&self.segments[step.segment].id).number(step.inputs.len() as u64);
            for (input, source) in &step.inputs {
                record.text(input);
                match source {
                    Source::Input { name, casts } => {
                        record.text("input").text(name).number(casts.len() as u64);
                        for cast in casts {
                            record.text(cast.name());
                        }
                    }
                    Source::Step(from) => {
                        record.text("step").number(from.step as u64).text(&from.output);
                    }
                }
            }
        }
        for (output, from) in &route.outputs {
            record.text(output).number(from.step as u64).text(&from.output);
        }
        record.finish()
    }
}
