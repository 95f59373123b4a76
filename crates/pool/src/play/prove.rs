//! A plan is tried before it is used: one input through each model on its own and by its route, on
//! every kind of device that is there. Only where all bits are equal are routes used.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_devices::{ErrorKind, Returned};
use holdfast_graph::Digest;
use holdfast_models::Verdict;

use super::plan::Planned;
use super::{Failed, Shared, Stage};
use crate::batch::Inputs;
use crate::choice::Choice;
use crate::pool::explain;
use crate::request::Priority;
use crate::route::Prepared;
use crate::scheduler::member::KindId;
use crate::scheduler::queue::Wanted;
use crate::scheduler::together::run_alone;
use crate::scheduler::turn::{Turn, Used};

/// Tries a plan on one kind of devices. An error says that it could not be found out whether it
/// holds there.
pub(super) async fn prove(
    shared: &Shared,
    stage: &Stage,
    (id, kind): (KindId, Arc<str>),
    planned: &Planned,
    samples: &HashMap<Digest, Arc<Inputs>>,
) -> Result<(), Failed> {
    let verdict = match shared.store.verdict(&planned.id, &kind) {
        Some(verdict) => verdict,
        None => {
            (shared.progress)("proving that sharing keeps every bit");
            let verdict = try_out(shared, stage.choice(), id, planned, samples).await?;
            // Without it, the plan is tried again by the next process: no harm done.
            if let Err(error) = shared.store.put_verdict(&planned.id, &kind, &verdict) {
                tracing::warn!("the verdict is not kept: {}", explain(&error));
            }
            verdict
        }
    };
    match verdict {
        Verdict::Holds => planned.proven.add(kind),
        Verdict::Differs { what } => {
            let (plan, cuts) = (planned.id.short(), &planned.cuts);
            let refused = format!(
                "plan {plan} is refused on {kind}: {what} ({cuts}); the models run on their own there"
            );
            tracing::warn!("{refused}");
            shared.scheduler.state().account.refuse_plan(refused);
        }
    }
    Ok(())
}

/// Runs every model both ways and compares.
async fn try_out(
    shared: &Shared,
    choice: Choice,
    kind: KindId,
    planned: &Planned,
    samples: &HashMap<Digest, Arc<Inputs>>,
) -> Result<Verdict, Failed> {
    let mut alone: Vec<(&Arc<Prepared>, &Inputs, Vec<Returned>)> = Vec::new();
    for (digest, route) in &planned.routes {
        let (Some(whole), Some(sample)) = (route.alone(), samples.get(digest)) else { continue };
        let outputs = ask(shared, choice, kind, whole, sample).await?;
        alone.push((route, sample, outputs));
        // One after the other, and all of them before the first route: what is gone gives its
        // memory back, which a WebAssembly engine does only when nothing is left in it.
        if choice != Choice::Cpu {
            shared.scheduler.retire([whole.id]);
        }
    }
    for (route, sample, expected) in alone {
        let found = ask(shared, choice, kind, route, sample).await?;
        if let Some(name) = difference(&expected, &found) {
            let what = format!("output `{name}` of model {} differs", route.original.short());
            return Ok(Verdict::Differs { what });
        }
    }
    Ok(Verdict::Holds)
}

/// The first output that is not the same.
pub(super) fn difference(expected: &[Returned], found: &[Returned]) -> Option<String> {
    expected.iter().find_map(|one| {
        let other = found.iter().find(|other| other.name == one.name);
        let same = other.is_some_and(|other| other.tensor == one.tensor);
        (!same).then(|| one.name.clone())
    })
}

/// Runs a model once on a device of this kind.
async fn ask(
    shared: &Shared,
    choice: Choice,
    kind: KindId,
    model: &Arc<Prepared>,
    inputs: &Inputs,
) -> Result<Vec<Returned>, Failed> {
    let scheduler = &shared.scheduler;
    let wanted = Wanted { kind: Some(kind), ..Wanted::new(choice, false) };
    let order = (Priority::Normal, scheduler.arrival());
    let mut ticket = scheduler.enqueue(wanted, order, model, inputs, None, None);
    let failed = |why: String| Failed::here(format!("a plan could not be tried: {why}"));
    match ticket.turn(None).await {
        Some(Turn::Run(mut lease)) => match run_alone(&mut lease, inputs, None).await {
            Ok((answered, ran)) => {
                lease.used = Used::well(1, ran);
                Ok(answered.outcome.outputs)
            }
            Err(error) => {
                let error = lease.failed(error).error;
                // What it was asked with may have been wrong; others ask with something else.
                Err(match error.kind() {
                    ErrorKind::Caller => Failed::with(model.original, explain(&error)),
                    _ => failed(explain(&error)),
                })
            }
        },
        Some(Turn::Ran { result, .. }) => match result {
            Ok(answered) => Ok(answered.outcome.outputs),
            Err(error) => Err(failed(explain(&error.error))),
        },
        Some(Turn::Cannot(why)) => Err(failed(why)),
        Some(Turn::Wrong(error)) => Err(failed(explain(&error))),
        Some(Turn::Gone) | None => Err(failed("its device went away".to_owned())),
    }
}
