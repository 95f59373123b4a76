//! From an arranged workload to what a predictor looks at.
//!
//! This says before what the scheduler does then: requests that wait for the same value run in one
//! program, requests for one model in one batch, and what was computed for a request that models
//! have in common is there for the ones after it.

use std::collections::HashSet;
use std::sync::Arc;

use holdfast_devices::SegmentId;
use holdfast_graph::Digest;
use holdfast_predict::{DeviceProfile, Job, Mix, Piece, Strategy, Weight};

use super::arrange::Stages;
use super::{Workload, WorkloadError};
use crate::batch::Inputs;
use crate::choice::Choice;
use crate::ledger::Shapes;
use crate::pool::Pool;
use crate::prepare::Unprepared;
use crate::request::{PassedOver, Request, RunError};
use crate::route::Prepared;
use crate::scheduler::state::COMPANY;
use crate::values::Values;

impl Pool {
    /// What each request of a workload computes on its way.
    pub(super) fn values(workload: &Workload, routes: &[Arc<Prepared>]) -> Vec<Option<Values>> {
        let requests = workload.requests.iter().zip(routes);
        let values = |(request, route): (&Request, &Arc<Prepared>)| {
            Values::of(route, &request.inputs, &request.namespace)
        };
        requests.map(values).collect()
    }

    /// How each model of a workload would run on a choice: by way of what it has in common with the
    /// others, where it may.
    pub(super) async fn routes(
        &self,
        choice: Choice,
        workload: &Workload,
    ) -> Result<Vec<Arc<Prepared>>, WorkloadError> {
        let mut wholes = Vec::new();
        for request in &workload.requests {
            let failed = |source| WorkloadError::Request { model: request.model.clone(), source };
            let whole = self.prepare_whole(request, choice).await.map_err(|error| match error {
                Unprepared::Choice(reason) => {
                    failed(RunError::NoDevice(vec![PassedOver { choice, reason }]))
                }
                Unprepared::Request(error) => failed(error),
            })?;
            wholes.push(whole);
        }
        let sharing: Vec<(Arc<Prepared>, Arc<Inputs>)> = workload
            .requests
            .iter()
            .zip(&wholes)
            .filter(|(request, _)| request.share)
            .map(|(request, whole)| (whole.clone(), Arc::new(request.inputs.clone())))
            .collect();
        let planned = self.preview(choice, sharing).await;
        let route = |(request, whole): (&Request, &Arc<Prepared>)| {
            let planned = planned.get(&whole.original).filter(|_| request.share);
            planned.unwrap_or(whole).clone()
        };
        Ok(workload.requests.iter().zip(&wholes).map(route).collect())
    }
}

/// A workload, where it is to run, and what is known of that place.
pub(super) struct Situation<'a> {
    pub(super) pool: &'a Pool,
    pub(super) choice: Choice,
    pub(super) workload: &'a Workload,
    /// How each of its models runs.
    pub(super) routes: &'a [Arc<Prepared>],
    /// What each of them computes on its way; `None` where nothing of that is shared.
    pub(super) values: &'a [Option<Values>],
    /// Which of that devices have kept.
    pub(super) kept: HashSet<Digest>,
    pub(super) device: Arc<DeviceProfile>,
    pub(super) resident: &'a Resident,
    pub(super) memory_now: Option<f64>,
    /// Whether it runs once before its time counts.
    pub(super) warmed_up: bool,
}

impl Situation<'_> {
    /// What runs when, and what that takes.
    pub(super) fn mix(&self, strategy: Strategy, stages: &Stages) -> Result<Mix, WorkloadError> {
        let mut builder = Builder { of: self, computed: self.kept.clone() };
        let stages: Result<Vec<Vec<Job>>, WorkloadError> =
            stages.iter().map(|stage| builder.stage(stage)).collect();
        Ok(Mix {
            device: self.device.clone(),
            strategy,
            stages: stages?,
            answers: self.workload.requests.len(),
            memory_now: self.memory_now,
            warmed_up: self.warmed_up,
        })
    }
}

/// What devices have loaded: segments, and weights for whoever needs them.
pub(crate) struct Resident {
    pub(crate) segments: HashSet<SegmentId>,
    pub(crate) weights: HashSet<Digest>,
}

impl Resident {
    fn piece(&self, piece: &crate::ledger::Piece, label: Arc<str>) -> Piece {
        let is_new = |weight: &&Weight| !self.weights.contains(&weight.content);
        let weights = match self.weights.is_empty() {
            true => piece.weights.clone(),
            false => piece.weights.iter().filter(is_new).copied().collect(),
        };
        let resident = self.segments.contains(&piece.segment);
        Piece {
            label,
            segment: piece.segment.0,
            features: piece.features.clone(),
            weights,
            resident,
        }
    }
}

/// What runs in one go.
enum Program {
    /// One request, or several that wait for the same value.
    Steps(Vec<usize>),
    /// Rows of one batch. Where that is still to be proven, they run one by one.
    Rows { requests: Vec<usize>, rows: usize, proven: bool },
}

impl Program {
    fn requests(&self) -> &[usize] {
        match self {
            Program::Steps(requests) | Program::Rows { requests, .. } => requests,
        }
    }
}

struct Builder<'a> {
    of: &'a Situation<'a>,
    /// Values that are there from earlier programs.
    computed: HashSet<Digest>,
}

impl Builder<'_> {
    fn stage(&mut self, stage: &[usize]) -> Result<Vec<Job>, WorkloadError> {
        let of = self.of;
        let programs = self.programs(stage);
        let jobs = programs.iter().map(|program| self.job(program)).collect();
        // What one program keeps is there for those of later stages. Batches keep nothing.
        for program in programs {
            if let Program::Steps(requests) = program {
                let values = requests.iter().filter_map(|&at| of.values[at].as_ref());
                self.computed.extend(values.flat_map(|values| values.trunks.iter().copied()));
            }
        }
        jobs
    }

    fn values(&self, at: usize) -> Option<&Values> {
        self.of.values[at].as_ref()
    }

    /// Which requests of a stage run in one go: those that need the same value first, then those
    /// that are rows of one batch.
    fn programs(&self, stage: &[usize]) -> Vec<Program> {
        let mut left = stage.to_vec();
        let mut programs = Vec::new();
        while let Some(&first) = left.first() {
            let program = self
                .alongside(first, &left)
                .or_else(|| self.batch(first, &left))
                .unwrap_or_else(|| Program::Steps(vec![first]));
            left.retain(|at| !program.requests().contains(at));
            programs.push(program);
        }
        programs
    }

    /// Those that need the same value as one of them.
    fn alongside(&self, first: usize, left: &[usize]) -> Option<Program> {
        let trunk = |at: usize| self.values(at)?.trunks.first();
        let value = trunk(first)?;
        let same = left.iter().copied().filter(|&at| trunk(at) == Some(value));
        let same: Vec<usize> = same.take(1 + COMPANY).collect();
        (same.len() > 1).then_some(Program::Steps(same))
    }

    /// Those that go with one of them in a batch, as the scheduler would have it.
    fn batch(&self, first: usize, left: &[usize]) -> Option<Program> {
        let is_there = |values: &Values| values.trunks.iter().any(|v| self.computed.contains(v));
        if self.values(first).is_some_and(is_there) {
            return None;
        }
        let route = &self.of.routes[first];
        let rows = route.rows.as_ref()?;
        let inputs = |at: usize| &self.of.workload.requests[at].inputs;
        let (_, shape) = rows.shape(inputs(first))?;
        let mut group = Vec::new();
        let mut asked = Vec::new();
        for &at in left.iter().filter(|&&at| self.of.routes[at].id == route.id) {
            if let Some((rows, _)) = rows.shape(inputs(at)).filter(|(_, other)| *other == shape) {
                group.push(at);
                asked.push((rows, inputs(at)));
            }
        }
        let fit = self.of.pool.fit(self.of.choice, route.id, shape, asked)?;
        group.truncate(fit.count);
        // By the time that counts, what can be proven is.
        let proven = !fit.prove || self.of.warmed_up;
        Some(Program::Rows { requests: group, rows: fit.claim.rows, proven })
    }

    fn job(&self, program: &Program) -> Result<Job, WorkloadError> {
        let requests = program.requests();
        let model = requests.iter().map(|&at| self.of.workload.requests[at].model.as_str());
        let model = model.collect::<Vec<_>>().join(" + ");
        let mut pieces = Vec::new();
        if let Program::Rows { rows, proven: true, .. } = program {
            pieces.extend(self.pieces(requests[0], Some(*rows))?.into_iter().map(|(_, of)| of));
            return Ok(Job { model, pieces });
        }
        let mut seen: HashSet<Digest> = HashSet::new();
        for &at in requests {
            let values = self.values(at);
            for (step, piece) in self.pieces(at, None)? {
                let value = values.and_then(|values| values.steps[step]);
                let is_new = value.is_none_or(|v| !self.computed.contains(&v) && seen.insert(v));
                if is_new {
                    pieces.push(piece);
                }
            }
        }
        Ok(Job { model, pieces })
    }

    /// The steps of a request's route, as pieces.
    fn pieces(&self, at: usize, rows: Option<usize>) -> Result<Vec<(usize, Piece)>, WorkloadError> {
        let Request { inputs, model, .. } = &self.of.workload.requests[at];
        let shapes = Shapes::of(inputs);
        let shapes = rows.map_or(shapes.clone(), |rows| shapes.with_rows(rows));
        let known = self.of.pool.ledger().pieces(&self.of.routes[at], &shapes);
        let known = known.map_err(|why| WorkloadError::Unknown { model: model.clone(), why })?;
        let route = &self.of.routes[at];
        let piece = |(step, piece): (usize, &Arc<crate::ledger::Piece>)| {
            let label = match route.steps[step].trunk {
                true => format!("trunk of {model}").into(),
                false => model.as_str().into(),
            };
            (step, self.of.resident.piece(piece, label))
        };
        Ok(known.iter().enumerate().map(piece).collect())
    }
}
