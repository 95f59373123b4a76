//! A batch: requests of several callers in one run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_devices::{DeviceError, ErrorKind, Outcome, Program, RequestId, Returned};
use tokio::time::Instant;

use super::Scheduler;
use super::proof::{Gathered, Verdict};
use super::queue::Waiter;
use super::turn::{Granted, Lease, Turn, Used};
use crate::batch::{Inputs, Rows, same_bits, split};
use crate::prepare::Prepared;

/// Runs a batch and answers everyone in it.
pub(super) async fn run(
    scheduler: Scheduler,
    lease: Lease,
    gathered: Gathered,
    model: Arc<Prepared>,
) {
    let Some(rows) = &model.rows else { return };
    match gathered.prove {
        true => prove(&scheduler, lease, gathered, rows).await,
        false => answer(&scheduler, lease, gathered, rows).await,
    }
}

/// Runs a batch of which is known that rows keep their bits.
async fn answer(scheduler: &Scheduler, mut lease: Lease, gathered: Gathered, rows: &Rows) {
    let Gathered { claim, members, .. } = gathered;
    let (waiters, sizes, inputs) = apart(members);
    let total: usize = sizes.iter().sum();
    let merged = rows.merge(&inputs.iter().map(AsRef::as_ref).collect::<Vec<_>>());
    let result = program(&lease.granted, merged).await;
    scheduler.state().account.batch(waiters.len(), total);
    match result {
        Ok((outcome, took)) => match split(&outcome.outputs, &sizes) {
            Some(parts) => {
                lease.used = Used::Well { requests: waiters.len(), busy: busy(&outcome) };
                let granted = free(lease);
                for (waiter, outputs) in waiters.into_iter().zip(parts) {
                    tell(waiter, &granted, total, Ok((with(&outcome, outputs), took)));
                }
            }
            // It gave rows when it was proven; now it does not, so it is not asked again.
            None => {
                scheduler.state().proofs.settle(&claim, Some(Verdict::Differs));
                one_by_one(lease, waiters, &sizes, &inputs).await;
            }
        },
        Err(error) if is_lost(error.kind()) => {
            lease.used = Used::of(&error, &lease.granted);
            let granted = free(lease);
            let reason = crate::pool::explain(&error);
            for waiter in waiters {
                tell(waiter, &granted, total, Err(DeviceError::new(error.kind(), reason.clone())));
            }
        }
        // One of them may be wrong, which is no reason for the others to fail.
        Err(_) => drop(one_by_one(lease, waiters, &sizes, &inputs).await),
    }
}

/// Runs requests one by one, answers them with that, and runs them as a batch to compare.
async fn prove(scheduler: &Scheduler, lease: Lease, gathered: Gathered, rows: &Rows) {
    let Gathered { claim, members, .. } = gathered;
    // However this ends, the claim is not left open.
    let mut open = Open { scheduler, claim: &claim, verdict: None };
    let (waiters, sizes, inputs) = apart(members);
    let Some((mut lease, alone)) = one_by_one(lease, waiters, &sizes, &inputs).await else {
        return;
    };
    let merged = rows.merge(&inputs.iter().map(AsRef::as_ref).collect::<Vec<_>>());
    match program(&lease.granted, merged).await {
        Ok((outcome, _)) => {
            let same = split(&outcome.outputs, &sizes).is_some_and(|parts| {
                parts.iter().zip(&alone).all(|(part, alone)| same_bits(part, alone))
            });
            open.verdict = Some(if same { Verdict::Holds } else { Verdict::Differs });
        }
        Err(error) => {
            lease.used = Used::of(&error, &lease.granted);
            // A device that is there and cannot do it is an answer as well.
            open.verdict = (!is_lost(error.kind())).then_some(Verdict::Differs);
        }
    }
}

/// Runs requests one by one and answers them. What they gave, and the slot, if all succeeded.
async fn one_by_one(
    mut lease: Lease,
    waiters: Vec<Waiter>,
    sizes: &[usize],
    inputs: &[Arc<Inputs>],
) -> Option<(Lease, Vec<Vec<Returned>>)> {
    let mut outputs = Vec::new();
    let mut failed = Vec::new();
    let mut time = Duration::ZERO;
    for ((waiter, inputs), &size) in waiters.into_iter().zip(inputs).zip(sizes) {
        if waiter.turn.is_closed() {
            continue;
        }
        let result = program(&lease.granted, inputs.as_ref().clone()).await;
        match &result {
            Ok((outcome, _)) => {
                time += busy(outcome);
                outputs.push(outcome.outputs.clone());
                tell(waiter, &lease.granted, size, result);
            }
            Err(error) => {
                lease.used = Used::of(error, &lease.granted);
                failed.push((waiter, size, result));
            }
        }
    }
    if failed.is_empty() {
        lease.used = Used::Well { requests: outputs.len(), busy: time };
        // Those who left were not computed, so there is nothing to compare with.
        return (outputs.len() == sizes.len()).then_some((lease, outputs));
    }
    let granted = free(lease);
    for (waiter, size, result) in failed {
        tell(waiter, &granted, size, result);
    }
    None
}

/// Gives the slot back before anybody is told: those who come back must not find it taken.
fn free(lease: Lease) -> Granted {
    lease.granted.clone()
}

/// Whether the device was lost under it, and not the request was refused.
fn is_lost(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::StateLost | ErrorKind::Protocol | ErrorKind::Timeout | ErrorKind::Busy => true,
        ErrorKind::Caller | ErrorKind::Device | ErrorKind::Memory | ErrorKind::Cancelled => false,
    }
}

/// A claim that is being tried.
struct Open<'a> {
    scheduler: &'a Scheduler,
    claim: &'a super::proof::Claim,
    verdict: Option<Verdict>,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.scheduler.state().proofs.settle(self.claim, self.verdict);
    }
}

type Apart = (Vec<Waiter>, Vec<usize>, Vec<Arc<Inputs>>);

fn apart(members: Vec<(Waiter, usize, Arc<Inputs>)>) -> Apart {
    let mut apart = Apart::default();
    for (waiter, rows, inputs) in members {
        apart.0.push(waiter);
        apart.1.push(rows);
        apart.2.push(inputs);
    }
    apart
}

fn tell(
    waiter: Waiter,
    granted: &Granted,
    rows: usize,
    result: Result<(Outcome, Duration), DeviceError>,
) {
    // Whoever has left does not want to know.
    let _ = waiter.turn.send(Turn::Ran { granted: granted.clone(), rows, result });
}

fn with(outcome: &Outcome, outputs: Vec<Returned>) -> Outcome {
    Outcome {
        outputs,
        steps: outcome.steps.clone(),
        queued: outcome.queued,
        device: outcome.device.clone(),
    }
}

/// How long the engine was at it.
pub(crate) fn busy(outcome: &Outcome) -> Duration {
    outcome.steps.iter().map(|step| step.run + step.readback).sum()
}

/// Runs a model once with what was granted.
pub(crate) async fn program(
    granted: &Granted,
    inputs: Inputs,
) -> Result<(Outcome, Duration), DeviceError> {
    run_within(granted, inputs, None).await
}

/// The same, within a time.
pub(crate) async fn run_within(
    granted: &Granted,
    inputs: Inputs,
    deadline: Option<Duration>,
) -> Result<(Outcome, Duration), DeviceError> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let outputs = granted.loaded.outputs.iter().map(|output| output.name.clone());
    let program = Program::single("", granted.segment, inputs, outputs);
    let request = RequestId(format!("pool-{number}"));
    let started = Instant::now();
    let outcome = granted.device.run(Program { request, deadline, ..program }).await?;
    Ok((outcome, started.elapsed()))
}
