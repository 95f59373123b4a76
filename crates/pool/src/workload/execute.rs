//! Runs a workload the way a strategy says, and measures what that took.

use holdfast_predict::{Estimate, Measured, Strategy};
use tokio::time::Instant;

use super::arrange::{Stages, arrange};
use super::gauge::Gauge;
use super::{Workload, WorkloadError};
use crate::choice::Choice;
use crate::pool::Pool;
use crate::request::Answer;

/// A workload that ran.
#[derive(Debug)]
pub struct Execution {
    /// How.
    pub strategy: Strategy,
    /// The answers, in the order of the requests.
    pub answers: Vec<Answer>,
    /// What it took.
    pub measured: Measured,
    /// What was predicted just before, where that could be done.
    pub estimate: Option<Estimate>,
    /// Whether something had to be loaded first, which is in the time.
    pub loaded: bool,
}

impl Pool {
    /// Runs a workload, by the strategy that is given or by the one that is recommended; by the one
    /// that the settings say where what it takes cannot be predicted. What models have in common is
    /// found out first, which is not in the time. What it takes is predicted before and learned from
    /// afterwards.
    pub async fn execute(
        &self,
        workload: &Workload,
        strategy: Option<Strategy>,
    ) -> Result<Execution, WorkloadError> {
        let (choice, workload) = self.settle(workload).await?;
        self.bring_together(&workload.requests).await;
        self.execute_on(choice, &workload, strategy).await
    }

    /// The same on a device that is there, with models whose plan is known.
    pub(super) async fn execute_on(
        &self,
        choice: Choice,
        workload: &Workload,
        strategy: Option<Strategy>,
    ) -> Result<Execution, WorkloadError> {
        let resident = self.resident(choice);
        let forecast = match self.forecast_on(choice, workload, &resident, false).await {
            Ok(forecast) => Some(forecast),
            // What cannot be predicted can be run.
            Err(WorkloadError::Unknown { model, why }) => {
                tracing::warn!("{model}: no prediction: {why}");
                None
            }
            Err(error) => return Err(error),
        };
        let recommended = forecast.as_ref().map(|forecast| forecast.recommendation.strategy);
        let by_settings = || self.settings(choice).strategy(workload.requests.len());
        let strategy = strategy.or(recommended).unwrap_or_else(by_settings);
        let predicted = forecast.as_ref().and_then(|forecast| forecast.of(strategy));
        let routes = self.routes(choice, workload).await?;
        let stages = arrange(strategy, &routes, self.settings(choice).batching_size);
        let (answers, measured) = self.measure(choice, workload, &stages).await?;
        if let Some((mix, estimate)) = predicted {
            self.ledger().executed(mix, workload, estimate, &measured, false);
        }
        let loaded = answers.iter().any(|answer| !answer.loaded.took.is_zero());
        let estimate = predicted.map(|(_, estimate)| estimate.clone());
        Ok(Execution { strategy, answers, measured, estimate, loaded })
    }

    /// Runs stages one after the other, and looks at the memory that they take.
    async fn measure(
        &self,
        choice: Choice,
        workload: &Workload,
        stages: &Stages,
    ) -> Result<(Vec<Answer>, Measured), WorkloadError> {
        let gauge = if choice == Choice::Cpu { Gauge::start() } else { None };
        let (answers, measured) = self.time(workload, stages).await?;
        let memory = match gauge {
            Some(gauge) => Some(gauge.most()),
            None => self.memory(choice).await,
        };
        Ok((answers, Measured { memory_bytes: memory.map(|bytes| bytes as f64), ..measured }))
    }

    /// Runs stages one after the other.
    pub(super) async fn time(
        &self,
        workload: &Workload,
        stages: &Stages,
    ) -> Result<(Vec<Answer>, Measured), WorkloadError> {
        let mut answers: Vec<Option<Answer>> = workload.requests.iter().map(|_| None).collect();
        let started = Instant::now();
        for stage in stages {
            let requests = stage.iter().map(|&at| &workload.requests[at]);
            let ran = self.run_at_once(requests).await;
            for (&at, answer) in stage.iter().zip(ran) {
                let model = workload.requests[at].model.clone();
                answers[at] =
                    Some(answer.map_err(|source| WorkloadError::Request { model, source })?);
            }
        }
        let latency_seconds = started.elapsed().as_secs_f64();
        let measured = Measured {
            latency_seconds,
            throughput_per_second: workload.requests.len() as f64 / latency_seconds.max(1e-9),
            memory_bytes: None,
        };
        Ok((answers.into_iter().flatten().collect(), measured))
    }
}
