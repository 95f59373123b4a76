//! A plan is tried before it is used: one input through each model on its own and by its route, on
//! every kind of device that is there. A model goes by its route only where all its bits are equal;
//! that another one's are not there is no reason against it.

use std::collections::{BTreeMap, HashMap};
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
use crate::route::{Prepared, Proven};
use crate::scheduler::fault::{self, Fault};
use crate::scheduler::kind::Kind;
use crate::scheduler::member::KindId;
use crate::scheduler::queue::Wanted;
use crate::scheduler::together::run_alone;
use crate::scheduler::turn::{Turn, Used};

/// Tries a plan on one kind of devices. An error says that it could not be found out whether it
/// holds there.
pub(super) async fn prove(
    shared: &Shared,
    stage: &Stage,
    (id, kind): (KindId, &Kind),
    planned: &Planned,
    samples: &HashMap<Digest, Arc<Inputs>>,
) -> Result<(), Failed> {
    let trial = find_out(shared, stage, (id, kind), planned, samples).await?;
    if let Some(refused) = trial.refusal(planned, kind) {
        tracing::warn!("{refused}");
        shared.scheduler.state().account.refuse_plan(refused);
    }
    trial.proven(planned).iter().for_each(|proven| proven.add(kind.name.clone()));
    Ok(())
}

/// What comes of a plan on one kind of devices, if that is not known from before.
async fn find_out(
    shared: &Shared,
    stage: &Stage,
    (id, kind): (KindId, &Kind),
    planned: &Planned,
    samples: &HashMap<Digest, Arc<Inputs>>,
) -> Result<Trial, Failed> {
    if let Some(verdict) = shared.store.verdict(&planned.id, &kind.name) {
        return Ok(Trial::of(verdict, planned));
    }
    (shared.progress)("proving that sharing keeps every bit");
    let trial = try_out(shared, stage.choice(), id, planned, samples).await?;
    if let Some(verdict) = trial.verdict().filter(|_| kind.lasts)
        // Without it, the plan is tried again by the next process: no harm done.
        && let Err(error) = shared.store.put_verdict(&planned.id, &kind.name, &verdict)
    {
        tracing::warn!("the verdict is not kept: {}", explain(&error));
    }
    Ok(trial)
}

/// What came of trying a plan on one kind of devices: the models that do not go by it there.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Trial {
    /// Those that have other bits, and where.
    pub(super) differ: BTreeMap<Digest, String>,
    /// Those that the devices cannot have both ways, and why.
    pub(super) refused: BTreeMap<Digest, String>,
}

impl Trial {
    fn of(verdict: Verdict, planned: &Planned) -> Trial {
        let differ = match verdict {
            Verdict::Holds => BTreeMap::new(),
            Verdict::Differs { what, models } => {
                let which = |model: &&Digest| models.is_empty() || models.contains(model);
                let models = planned.routes.keys().filter(which);
                models.map(|model| (*model, what.clone())).collect()
            }
        };
        Trial { differ, refused: BTreeMap::new() }
    }

    /// What is worth remembering; `None` where another process may find out something else,
    /// because it has more memory, say.
    fn verdict(&self) -> Option<Verdict> {
        match (self.refused.is_empty(), self.differ.is_empty()) {
            (false, _) => None,
            (true, true) => Some(Verdict::Holds),
            (true, false) => {
                let models = self.differ.keys().copied().collect();
                Some(Verdict::Differs { what: self.reasons(), models })
            }
        }
    }

    /// Where to note that models go by the plan. One alone has nobody to share with.
    fn proven<'a>(&self, planned: &'a Planned) -> Vec<&'a Proven> {
        let is_out = |model| self.differ.contains_key(model) || self.refused.contains_key(model);
        let going = planned.routes.iter().filter(|(model, _)| !is_out(model));
        let proven = going.filter_map(|(_, route)| route.shared.as_ref());
        let proven: Vec<_> = proven.map(|shared| shared.proven.as_ref()).collect();
        if proven.len() > 1 { proven } else { Vec::new() }
    }

    /// In words, which models do not go by the plan, and why.
    fn refusal(&self, planned: &Planned, kind: &Kind) -> Option<String> {
        if self.differ.is_empty() && self.refused.is_empty() {
            return None;
        }
        let (plan, cuts, why) = (planned.id.short(), &planned.cuts, self.reasons());
        let (going, all) = (self.proven(planned).len(), planned.routes.len());
        let whom = match going {
            0 => "the models run on their own there".to_owned(),
            _ => format!("{} of {all} models run on their own there", all - going),
        };
        Some(format!("plan {plan} is refused on {}: {why} ({cuts}); {whom}", kind.name))
    }

    fn reasons(&self) -> String {
        let mut reasons: Vec<&str> =
            self.differ.values().chain(self.refused.values()).map(String::as_str).collect();
        reasons.sort_unstable();
        reasons.dedup();
        reasons.join("; ")
    }
}

/// Runs every model both ways and compares.
async fn try_out(
    shared: &Shared,
    choice: Choice,
    kind: KindId,
    planned: &Planned,
    samples: &HashMap<Digest, Arc<Inputs>>,
) -> Result<Trial, Failed> {
    let mut trial = Trial::default();
    let mut routes: Vec<(&Digest, &Arc<Prepared>)> = planned.routes.iter().collect();
    routes.sort_unstable_by_key(|(model, _)| **model);
    let mut alone = Vec::new();
    for (model, route) in routes {
        let (Some(whole), Some(sample)) = (route.alone(), samples.get(model)) else {
            // What was not tried is not proven.
            trial.refused.insert(*model, format!("model {} was not tried", model.short()));
            continue;
        };
        match ask(shared, choice, kind, whole, sample).await? {
            Said::Gave(outputs) => alone.push((model, route, sample, outputs)),
            Said::Cannot(why) => drop(trial.refused.insert(*model, why)),
        }
        // One after the other, and all of them before the first route: what is gone gives its
        // memory back, which a WebAssembly engine does only when nothing is left in it.
        if choice != Choice::Cpu {
            shared.scheduler.retire_on(kind, [whole.id]);
        }
    }
    for (model, route, sample, mut expected) in alone {
        // What depends on chance is another one each time, however it is computed.
        expected.retain(|output| !planned.is_by_chance(model, &output.name));
        match ask(shared, choice, kind, route, sample).await? {
            Said::Gave(found) => {
                if let Some(name) = difference(&expected, &found) {
                    let what = format!("output `{name}` of model {} differs", model.short());
                    trial.differ.insert(*model, what);
                }
            }
            Said::Cannot(why) => drop(trial.refused.insert(*model, why)),
        }
    }
    Ok(trial)
}

/// The first output that is not the same.
pub(super) fn difference(expected: &[Returned], found: &[Returned]) -> Option<String> {
    expected.iter().find_map(|one| {
        let other = found.iter().find(|other| other.name == one.name);
        let same = other.is_some_and(|other| other.tensor == one.tensor);
        (!same).then(|| one.name.clone())
    })
}

/// What a device that is there says when it is asked for a run.
enum Said {
    Gave(Vec<Returned>),
    /// It would say so again.
    Cannot(String),
}

/// Runs a model once on a device of this kind.
async fn ask(
    shared: &Shared,
    choice: Choice,
    kind: KindId,
    model: &Arc<Prepared>,
    inputs: &Inputs,
) -> Result<Said, Failed> {
    let scheduler = &shared.scheduler;
    let wanted = Wanted { kind: Some(kind), ..Wanted::new(choice, false) };
    let order = (Priority::Normal, scheduler.arrival());
    let mut ticket = scheduler.enqueue(wanted, order, model, inputs, None, None);
    match ticket.turn(None).await {
        Some(Turn::Run(mut lease)) => match run_alone(&mut lease, inputs, None).await {
            Ok((answered, ran)) => {
                lease.used = Used::well(1, ran);
                Ok(Said::Gave(answered.outcome.outputs))
            }
            Err(error) => judge(model, &lease.failed(error)),
        },
        Some(Turn::Ran { result: Ok(answered), .. }) => Ok(Said::Gave(answered.outcome.outputs)),
        Some(Turn::Ran { result: Err(failed), .. }) => judge(model, &failed),
        Some(Turn::Cannot(why)) => Ok(Said::Cannot(cannot(model, &why))),
        Some(Turn::Wrong(error)) => Ok(Said::Cannot(cannot(model, &explain(&error)))),
        Some(Turn::Gone) | None => Err(untried("its device went away")),
    }
}

/// Whether a run that failed says something about the model, or only about this moment.
fn judge(model: &Prepared, failed: &fault::Failed) -> Result<Said, Failed> {
    let why = explain(&failed.error);
    match (failed.fault, failed.error.kind()) {
        // What it was asked with may have been wrong; others ask with something else. (By its route
        // it is asked with what it took on its own.)
        (_, ErrorKind::Caller) if model.shared.is_none() => Err(Failed::with(model.original, why)),
        (Fault::Refused, _) | (_, ErrorKind::Caller) => Ok(Said::Cannot(cannot(model, &why))),
        _ => Err(untried(&why)),
    }
}

fn cannot(model: &Prepared, why: &str) -> String {
    let how = if model.shared.is_some() { "by way of the plan" } else { "on its own" };
    format!("model {} cannot be had {how}: {why}", model.original.short())
}

fn untried(why: &str) -> Failed {
    Failed::here(format!("a plan could not be tried: {why}"))
}
