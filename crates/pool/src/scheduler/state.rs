//! Everything that the scheduler's lock guards, and what is decided under it.
//!
//! Nothing here waits or calls out: what is to be done once the lock is free comes back as a list.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use holdfast_devices::{DeviceError, ErrorKind, Loaded, SegmentId};
use tokio::time::Instant;

use super::member::{Health, Host, Member, MemberId, MemberOptions};
use super::proof::{Gathered, Proofs};
use super::queue::{GroupKey, Order, Queue, Waiter, Wanted};
use super::turn::{Granted, Turn, Used};
use crate::account::Account;
use crate::choice::Choice;
use crate::placement::{Decision, Load, View, place};
use crate::prepare::Prepared;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) queue: Queue,
    pub(crate) members: BTreeMap<MemberId, Member>,
    next_member: u64,
    pub(crate) proofs: Proofs,
    refusals: HashMap<(SegmentId, Choice), (Instant, String)>,
    /// Loads in a row that failed although the device is still there.
    failed_loads: HashMap<(SegmentId, Choice), Vec<String>>,
    pub(crate) account: Account,
    /// Pages whose devices are given nothing more.
    pub(crate) withdrawn: HashSet<String>,
    /// While this is not zero, nothing is started: somebody is still putting requests in.
    pub(crate) holds: usize,
}

/// What is to be done once the lock is free.
pub(crate) enum Action {
    /// A request runs on its own.
    Alone(Waiter, Granted),
    /// Several run together.
    Together(Gathered, Granted, Arc<Prepared>),
    /// A model is loaded, after others were unloaded.
    Load { member: MemberId, device: Arc<dyn Host>, model: Arc<Prepared>, unload: Vec<SegmentId> },
    /// A request is told something.
    Tell(Waiter, Turn),
}

/// How long it is remembered that a model cannot be had somewhere.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// Refusals that are remembered. Past this all are forgotten, and found out again.
const REFUSALS: usize = 1024;

/// Loads of one model that may fail in a row on devices that are there.
const LOADS: usize = 3;

impl State {
    /// Takes a device in; one that is there already keeps its id.
    pub(crate) fn attach(&mut self, device: Arc<dyn Host>, options: MemberOptions) -> MemberId {
        let name = &device.info().name;
        if let Some((id, _)) = self.members.iter().find(|(_, member)| member.info.name == *name) {
            return *id;
        }
        let id = MemberId(self.next_member);
        self.next_member += 1;
        let mut member = Member::new(device, options);
        member.withdrawn = self.withdrawn.iter().any(|page| member.is_of(page));
        self.members.insert(id, member);
        self.account.most_devices = self.account.most_devices.max(self.members.len());
        id
    }

    /// Whether any device can serve this.
    pub(crate) fn serves(&self, wanted: Wanted) -> bool {
        self.members.values().any(|member| member.serves(wanted))
    }

    /// Why a model cannot be had on a choice, if that was found out lately.
    pub(crate) fn refusal(&self, segment: SegmentId, choice: Choice) -> Option<String> {
        let (since, reason) = self.refusals.get(&(segment, choice))?;
        (since.elapsed() < REFUSED_FOR).then(|| reason.clone())
    }

    /// Takes note of what happened to the devices, and tells those who wait for one in vain.
    pub(crate) fn refresh(&mut self) -> Vec<Action> {
        self.members.values_mut().for_each(Member::refresh);
        let before = self.members.len();
        self.members.retain(|_, member| member.health != Health::Gone);
        self.account.devices_gone += (before - self.members.len()) as u64;
        self.abandoned()
    }

    /// Those who wait for a device of which there is none.
    pub(crate) fn abandoned(&mut self) -> Vec<Action> {
        let members = &self.members;
        let nobody = |key: &GroupKey| !members.values().any(|member| member.serves(key.wanted));
        let abandoned = self.queue.take(nobody).into_iter();
        abandoned.map(|(_, waiter)| Action::Tell(waiter, Turn::Gone)).collect()
    }

    /// Gives work to whoever is free, the best heads first, until nobody can take any more.
    pub(crate) fn pump(&mut self, now: Instant, max_batch: usize) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.holds > 0 {
            return actions;
        }
        while self.members.values().any(|member| member.is_free(now)) {
            let Some((key, decision)) = self.decide(now) else { break };
            if let (_, Some(id)) = decision
                && let Some(member) = self.members.get_mut(&id)
                && member.has_changed()
            {
                continue;
            }
            match decision {
                (Decision::Run(_), Some(member)) => {
                    let Some(action) = self.start(&key, member, now, max_batch) else { break };
                    actions.push(action);
                }
                (Decision::Load(_), Some(member)) => actions.extend(self.load(&key, member, now)),
                (_, _) => {
                    let reason = "it is larger than what a device may hold there; allow more \
                                  memory for models";
                    actions.extend(self.refuse(key.segment, key.wanted.choice, reason, now));
                }
            }
        }
        actions
    }

    /// The first group for which something is to be done, and what.
    fn decide(&self, now: Instant) -> Option<(GroupKey, (Decision, Option<MemberId>))> {
        // Devices that take nothing more, so that an older request gets its model in.
        let mut draining: Vec<MemberId> = Vec::new();
        for key in self.queue.in_order() {
            let group = self.queue.group(key)?;
            let avoid = group.waiting.first_key_value().and_then(|(_, waiter)| waiter.avoid);
            let waits = |segment: &SegmentId| self.queue.waits_for(segment);
            let serving: Vec<(MemberId, &Member)> = self
                .members
                .iter()
                .filter(|(_, member)| member.serves(key.wanted))
                .map(|(id, member)| (*id, member))
                .collect();
            let view = |(id, member): &(MemberId, &Member)| {
                let view = member.view(&group.model, avoid == Some(*id), waits, now);
                View { free: view.free && !draining.contains(id), ..view }
            };
            let views: Vec<View> = serving.iter().map(view).collect();
            match place(group.waiting.len(), &views) {
                Decision::Wait => {
                    let nobody = |view: &View| !matches!(view.load, Load::Ready | Load::Coming(_));
                    if views.iter().all(nobody) {
                        let full = serving.iter().filter(|(_, member)| {
                            member.should_drain_for(&group.model, waits, now)
                        });
                        draining.extend(full.map(|(id, _)| *id));
                    }
                }
                Decision::Refuse => return Some((key.clone(), (Decision::Refuse, None))),
                decision @ (Decision::Run(index) | Decision::Load(index)) => {
                    let member = serving.get(index).map(|(id, _)| *id);
                    return Some((key.clone(), (decision, member)));
                }
            }
        }
        None
    }

    /// Takes what is next of a group, and more if it can go along.
    fn start(
        &mut self,
        key: &GroupKey,
        member: MemberId,
        now: Instant,
        max_batch: usize,
    ) -> Option<Action> {
        let device = self.members.get_mut(&member)?;
        let steady = device.options.steady;
        let (host, kind) = (device.device.clone(), device.kind.clone());
        let held = device.take(&key.segment, now)?;
        let granted = Granted {
            member,
            device: host,
            segment: key.segment,
            loaded: held.loaded.clone(),
            loaded_at: held.at,
            steady,
            at: now,
        };
        let model = held.model.clone();
        Some(match self.proofs.gather(&mut self.queue, key, &kind, max_batch) {
            Some(gathered) => Action::Together(gathered, granted, model),
            None => Action::Alone(self.queue.pop(key)?.1, granted),
        })
    }

    fn load(&mut self, key: &GroupKey, id: MemberId, now: Instant) -> Option<Action> {
        let model = self.queue.group(key)?.model.clone();
        let queue = &self.queue;
        let member = self.members.get_mut(&id)?;
        let unload = member.begin_load(&model, |segment| queue.waits_for(segment), now);
        self.account.unloads += unload.len() as u64;
        Some(Action::Load { member: id, device: member.device.clone(), model, unload })
    }

    /// Notes how a load ended.
    pub(crate) fn loaded(
        &mut self,
        id: MemberId,
        model: &Arc<Prepared>,
        result: Result<Loaded, DeviceError>,
        now: Instant,
    ) -> Vec<Action> {
        let mut actions = self.refresh();
        let Some(member) = self.members.get_mut(&id) else {
            self.account.loads.failed += u64::from(result.is_err());
            return actions;
        };
        let (choice, steady) = (member.options.choice, member.options.steady);
        let of = (model.id, choice);
        match result {
            Ok(loaded) => {
                self.account.loads.succeeded += 1;
                member.end_load(loaded, now);
                self.failed_loads.remove(&of);
                self.refusals.remove(&of);
            }
            Err(error) => {
                self.account.loads.failed += 1;
                member.loading = None;
                let reason = crate::pool::explain(&error);
                match error.kind() {
                    ErrorKind::Caller => {
                        let wrong =
                            |key: &GroupKey| key.segment == model.id && key.wanted.choice == choice;
                        let waiting = self.queue.take(wrong).into_iter();
                        actions.extend(waiting.map(|(_, waiter)| {
                            let error = DeviceError::caller(reason.clone());
                            Action::Tell(waiter, Turn::Wrong(error))
                        }));
                    }
                    // It is there and says that it cannot.
                    ErrorKind::Memory | ErrorKind::Device => {
                        actions.extend(self.refuse(model.id, choice, &reason, now));
                    }
                    kind => {
                        member.failed(kind, now);
                        let name = &member.info.name;
                        let failed = self.failed_loads.entry(of).or_default();
                        failed.push(format!("{name}: {reason}"));
                        if failed.len() >= LOADS || steady {
                            let reason = failed.join("; ");
                            actions.extend(self.refuse(model.id, choice, &reason, now));
                        }
                    }
                }
            }
        }
        actions
    }

    /// Remembers that a model cannot be had on a choice, and tells those who wait for it there.
    fn refuse(
        &mut self,
        segment: SegmentId,
        choice: Choice,
        reason: &str,
        now: Instant,
    ) -> Vec<Action> {
        self.failed_loads.remove(&(segment, choice));
        if self.refusals.len() >= REFUSALS {
            self.refusals.clear();
        }
        self.refusals.insert((segment, choice), (now, reason.to_owned()));
        let refused = |key: &GroupKey| key.segment == segment && key.wanted.choice == choice;
        let waiting = self.queue.take(refused).into_iter();
        waiting.map(|(_, waiter)| Action::Tell(waiter, Turn::Cannot(reason.to_owned()))).collect()
    }

    /// Gives a slot back.
    pub(crate) fn release(&mut self, granted: &Granted, used: &Used, now: Instant) -> Vec<Action> {
        if let Some(member) = self.members.get_mut(&granted.member) {
            member.give_back(&granted.segment, granted.loaded_at, used, now);
        }
        match used {
            Used::Badly(_) => self.refresh(),
            Used::Well { .. } | Used::NotToSay => Vec::new(),
        }
    }

    /// Since when a group can be served, if it can.
    pub(crate) fn ready_since(&self, key: &GroupKey) -> Option<Instant> {
        let serving = self.members.values().filter(|member| member.serves(key.wanted));
        serving.filter_map(|member| Some(member.loaded.get(&key.segment)?.at)).min()
    }

    /// Whether something waits that may be able to go on by itself soon.
    pub(crate) fn wants_a_look(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(crate) fn forget(&mut self, key: &GroupKey, order: Order) -> bool {
        self.queue.remove(key, order).is_some()
    }
}
