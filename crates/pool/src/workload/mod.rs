//! Models with inputs that run together: how they are arranged, what that will cost, what it did
//! cost, and which way is best.
//!
//! A [`Workload`] is arranged into stages by a [`Strategy`]; stages run one after the other, and
//! what is in one runs at once. The same arrangement is what is predicted and what is run.

mod arrange;
mod compare;
mod execute;
mod gauge;
mod mix;
mod significance;

use std::collections::HashSet;

use holdfast_predict::{BackendSettings, Estimate, Goal, Mix, Recommendation, Strategy};

use crate::choice::{Choice, Choices};
use crate::pool::Pool;
use crate::request::{PassedOver, Request, RunError};
use crate::scheduler::queue::Wanted;
use mix::Situation;

pub(crate) use gauge::private_bytes;
pub(crate) use mix::Resident;

pub use compare::{Compared, Comparison};
pub use execute::Execution;

/// Models with inputs to run together, towards a goal.
#[derive(Clone, Debug)]
pub struct Workload {
    /// What is asked. All of it runs on the first choice of the first request that can be had.
    pub requests: Vec<Request>,
    /// What for.
    pub goal: Goal,
}

/// What a workload will cost, in every way that it can be run.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// Where it would run.
    pub choice: Choice,
    /// One for each strategy.
    pub mixes: Vec<Mix>,
    /// What each will take, and which one to choose.
    pub recommendation: Recommendation,
}

impl Forecast {
    /// The mix and the estimate of a strategy.
    pub fn of(&self, strategy: Strategy) -> Option<(&Mix, &Estimate)> {
        let mix = self.mixes.iter().find(|mix| mix.strategy == strategy)?;
        let estimates = self.recommendation.estimates.iter();
        let (_, estimate) = estimates.into_iter().find(|(of, _)| *of == strategy)?;
        Some((mix, estimate))
    }
}

/// Why a workload cannot be predicted or run.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// There is nothing in it.
    #[error("the workload has no models; name at least one")]
    Empty,
    /// Its goal is one that ways cannot be compared by.
    #[error(
        "ways to run a workload cannot be compared by memory: they take turns in one engine, which \
         keeps what each of them took; predict it instead, or run one way in a process of its own"
    )]
    ComparedByMemory,
    /// One of its requests failed.
    #[error("{model}: {source}")]
    Request {
        /// The model.
        model: String,
        /// What happened.
        source: RunError,
    },
    /// What a model takes cannot be told before it runs.
    #[error("{model}: what it takes cannot be told before it runs: {why}")]
    Unknown {
        /// The model.
        model: String,
        /// Why.
        why: String,
    },
}

impl Pool {
    /// Predicts what a workload takes, in every way that it can be run. Nothing is run for it but a
    /// short calibration of the device, if there was none.
    pub async fn forecast(&self, workload: &Workload) -> Result<Forecast, WorkloadError> {
        let (choice, workload) = self.settle(workload).await?;
        let resident = self.resident(choice);
        self.forecast_on(choice, &workload, &resident, false).await
    }

    /// What a workload takes once it has run, whatever has to be loaded for that.
    async fn forecast_warm(
        &self,
        choice: Choice,
        workload: &Workload,
    ) -> Result<Forecast, WorkloadError> {
        self.forecast_on(choice, workload, &self.resident(choice), true).await
    }

    async fn forecast_on(
        &self,
        choice: Choice,
        workload: &Workload,
        resident: &Resident,
        warmed_up: bool,
    ) -> Result<Forecast, WorkloadError> {
        let profile =
            self.profile(choice).await.map_err(|why| unavailable(workload, choice, why))?;
        let routes = self.routes(choice, workload).await?;
        let values = Pool::values(workload, &routes);
        // What is warmed up computes everything anew: each of its runs has a namespace of its own.
        let kept = match warmed_up {
            true => HashSet::new(),
            false => self.kept(choice, &routes, &values),
        };
        let situation = Situation {
            pool: self,
            choice,
            workload,
            routes: &routes,
            values: &values,
            kept,
            device: profile,
            resident,
            memory_now: self.memory(choice).await.map(|bytes| bytes as f64),
            warmed_up,
        };
        let batching = self.settings(choice).batching_size;
        let mix =
            |strategy| situation.mix(strategy, &arrange::arrange(strategy, &routes, batching));
        let mixes: Vec<Mix> = Strategy::ALL.into_iter().map(mix).collect::<Result<_, _>>()?;
        let recommendation = self.ledger().recommend(&mixes, workload.goal);
        // There is a mix for each strategy.
        let recommendation = recommendation.ok_or(WorkloadError::Empty)?;
        Ok(Forecast { choice, mixes, recommendation })
    }

    /// The settings of what runs a choice.
    fn settings(&self, choice: Choice) -> BackendSettings {
        let backend = match choice {
            Choice::Cpu => "cpu",
            Choice::Lane(backend) => backend.name(),
        };
        self.ledger().settings(backend)
    }

    /// Finds out where a workload runs, and binds all of it to that place.
    async fn settle(&self, workload: &Workload) -> Result<(Choice, Workload), WorkloadError> {
        let first = workload.requests.first().ok_or(WorkloadError::Empty)?;
        let mut passed_over = Vec::new();
        for (choice, accelerated) in first.choices.in_order() {
            match self.make_sure(Wanted::new(choice, accelerated)).await {
                Ok(()) => {
                    let mut workload = workload.clone();
                    for request in &mut workload.requests {
                        request.choices = Choices::Ordered(vec![choice]);
                    }
                    return Ok((choice, workload));
                }
                Err(reason) => passed_over.push(PassedOver { choice, reason }),
            }
        }
        let source = RunError::NoDevice(passed_over);
        Err(WorkloadError::Request { model: first.model.clone(), source })
    }
}

fn unavailable(workload: &Workload, choice: Choice, reason: String) -> WorkloadError {
    let model = workload.requests.first().map(|request| request.model.clone()).unwrap_or_default();
    let source = RunError::NoDevice(vec![PassedOver { choice, reason }]);
    WorkloadError::Request { model, source }
}
