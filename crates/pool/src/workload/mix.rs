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

struct Builder<'a> {
    of: &'a Situation<'a>,
    /// Values that are there from earlier programs.
    computed: HashSet<Digest>,
}

impl Builder<'_> {
    fn stage(&mut self, stage: &[usize]) -> Result<Vec<Job>, WorkloadError> {
        let programs = self.programs(stage);
        let jobs = programs.iter().map(|program| self.job(program)).collect();
        // What one program keeps is there for those of later stages.
        let values = stage.iter().filter_map(|&at| self.values(at));
        self.computed.extend(values.flat_map(|values| values.trunks.iter().copied()));
        jobs
    }

    fn values(&self, at: usize) -> Option<&Values> {
        self.of.values[at].as_ref()
    }

    /// Which requests of a stage run in one go: those that wait for the same value first, then those
    /// that are rows of one batch.
    fn programs(&self, stage: &[usize]) -> Vec<Vec<usize>> {
        let trunk = |at: usize| -> Option<Digest> {
            let first = self.values(at)?.trunks.first()?;
            (!self.computed.contains(first)).then_some(*first)
        };
        let mut programs: Vec<Vec<usize>> = Vec::new();
        for &at in stage {
            let goes_along = |program: &&mut Vec<usize>| {
                let same = trunk(at).is_some() && trunk(at) == trunk(program[0]);
                same || self.rows_with(program, at).is_some()
            };
            match programs.iter_mut().find(goes_along) {
                Some(program) => program.push(at),
                None => programs.push(vec![at]),
            }
        }
        programs
    }

    /// How many rows a batch would have with one more request; `None` if that cannot be.
    fn rows_with(&self, program: &[usize], more: usize) -> Option<usize> {
        let route = &self.of.routes[more];
        let rows = route.rows.as_ref()?;
        let shape = |at: usize| rows.shape(&self.of.workload.requests[at].inputs);
        let (mut total, of) = shape(more)?;
        for &at in program {
            let (count, other) = shape(at)?;
            if self.of.routes[at].id != route.id || other != of {
                return None;
            }
            total += count;
        }
        (total <= self.of.pool.max_batch()).then_some(total)
    }

    fn job(&self, program: &[usize]) -> Result<Job, WorkloadError> {
        let model = program.iter().map(|&at| self.of.workload.requests[at].model.as_str());
        let model = model.collect::<Vec<_>>().join(" + ");
        let merged = match program.split_last() {
            Some((last, others)) if !others.is_empty() => self.rows_with(others, *last),
            _ => None,
        };
        let mut pieces = Vec::new();
        if let Some(rows) = merged {
            pieces.extend(self.pieces(program[0], Some(rows))?.into_iter().map(|(_, piece)| piece));
            return Ok(Job { model, pieces });
        }
        let mut seen: HashSet<Digest> = HashSet::new();
        for &at in program {
            let values = self.values(at);
            for (step, piece) in self.pieces(at, None)? {
                let value = values.map(|values| values.steps[step]);
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
