//! A batch: requests of several callers in one run.

use std::sync::Arc;
use std::time::Duration;

use holdfast_devices::{DeviceError, ErrorKind, Outcome, Returned, SegmentId};

use super::Scheduler;
use super::fault::Failed;
use super::proof::{Gathered, Verdict};
use super::queue::Waiter;
use super::turn::{Granted, Lease, Turn, Used};
use crate::batch::{Inputs, Rows, same_bits, split};
use crate::program::{self, Answered, Asked, Ran};

/// Runs a batch and answers everyone in it.
pub(super) async fn run(scheduler: Scheduler, lease: Lease, gathered: Gathered) {
    let model = lease.granted.model.clone();
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
    let result = run_alone(&mut lease, &merged, None).await;
    scheduler.state().account.batch(waiters.len(), total);
    match result {
        Ok((answered, ran)) => match split(&answered.outcome.outputs, &sizes) {
            Some(parts) => {
                lease.used = Used::well(waiters.len(), ran);
                let granted = free(lease);
                for ((waiter, outputs), rows) in waiters.into_iter().zip(parts).zip(sizes) {
                    let answered = part_of(&answered, outputs, (rows, total));
                    tell(waiter, &granted, total, Ok(answered));
                }
            }
            // It gave rows when it was proven; now it does not, so it is not asked again.
            None => {
                scheduler.state().proofs.settle(&claim, Some(Verdict::Differs));
                one_by_one(lease, waiters, &sizes, &inputs).await;
            }
        },
        Err(error) => {
            let failed = lease.failed(error);
            // One of them may be wrong, which is no reason for the others to fail.
            if failed.is_about_one() {
                drop(one_by_one(lease, waiters, &sizes, &inputs).await);
                return;
            }
            let granted = free(lease);
            for waiter in waiters {
                tell(waiter, &granted, total, Err(failed.for_another()));
            }
        }
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
    match run_alone(&mut lease, &merged, None).await {
        Ok((answered, _)) => {
            let same = split(&answered.outcome.outputs, &sizes).is_some_and(|parts| {
                parts.iter().zip(&alone).all(|(part, alone)| same_bits(part, alone))
            });
            open.verdict = Some(if same { Verdict::Holds } else { Verdict::Differs });
        }
        Err(error) => {
            // A device that is there and cannot do it is an answer as well.
            open.verdict = lease.failed(error).is_about_one().then_some(Verdict::Differs);
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
    let mut steps: Vec<(SegmentId, Duration)> = Vec::new();
    let mut transfer = Duration::ZERO;
    for ((waiter, inputs), &size) in waiters.into_iter().zip(inputs).zip(sizes) {
        if waiter.turn.is_closed() {
            continue;
        }
        match run_alone(&mut lease, inputs, None).await {
            Ok((answered, ran)) => {
                steps.extend(ran.steps);
                transfer += ran.transfer;
                outputs.push(answered.outcome.outputs.clone());
                tell(waiter, &lease.granted, size, Ok(answered));
            }
            Err(error) => {
                failed.push((waiter, size, Err(lease.failed(error))));
            }
        }
    }
    if failed.is_empty() {
        let requests = outputs.len();
        let transfer = (requests > 0).then_some(transfer);
        lease.used = Used::Well { requests, steps, transfer };
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
pub(super) fn free(lease: Lease) -> Granted {
    lease.granted.clone()
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

pub(super) fn tell(
    waiter: Waiter,
    granted: &Granted,
    rows: usize,
    result: Result<Answered, Failed>,
) {
    // Whoever has left does not want to know.
    let _ = waiter.turn.send(Turn::Ran { granted: granted.clone(), rows, result });
}

/// What of a batch's answer belongs to one with so many of all rows.
fn part_of(answered: &Answered, outputs: Vec<Returned>, (rows, of): (usize, usize)) -> Answered {
    let outcome = Outcome { outputs, ..answered.outcome.clone() };
    // All rows are of one shape.
    let given_bytes = answered.given_bytes / of.max(1) as u64 * rows as u64;
    Answered { outcome, given_bytes, ..answered.clone() }
}

/// Runs a request with what was granted, within a time.
pub(crate) async fn run_alone(
    lease: &mut Lease,
    inputs: &Inputs,
    deadline: Option<Duration>,
) -> Result<(Answered, Ran), DeviceError> {
    let (granted, kept) = (&lease.granted, &mut lease.kept);
    let (model, values, there) = (&granted.model, granted.values.as_deref(), &granted.there);
    let asked = Asked { model, inputs, values, there };
    let mut ran = program::run(granted.device.as_ref(), &[asked], deadline, kept).await?;
    let nothing = || DeviceError::new(ErrorKind::Device, "nothing was answered");
    let answered = ran.answers.pop().ok_or_else(nothing)?;
    Ok((answered, ran))
}
