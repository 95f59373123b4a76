//! Everything that the scheduler's lock guards, and what is decided under it.
//!
//! Nothing here waits or calls out: what is to be done once the lock is free comes back as a list.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use holdfast_devices::{DeviceError, ErrorKind, Loaded, SegmentId};
use tokio::time::Instant;

use super::fault::Fault;
use super::kind::Kind;
use super::load::LetGo;
use super::member::{Health, Host, KindId, Member, MemberId, MemberOptions};
use super::order::Trials;
use super::overdue::Overdue;
use super::proof::{Gathered, Proofs};
use super::queue::{Group, GroupKey, Order, Queue, Waiter, Wanted};
use super::refusals::Refusals;
use super::turn::{Granted, Turn, Used};
use crate::account::Account;
use crate::choice::Choice;
use crate::placement::{Decision, Load, View, place};
use crate::program::Kept;
use crate::route::Prepared;
use crate::values::Values;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) queue: Queue,
    pub(crate) members: BTreeMap<MemberId, Member>,
    next_member: u64,
    /// Slots that were ever given.
    granted: u64,
    /// The kinds of devices that were ever there, by number.
    kinds: Vec<Kind>,
    /// Routes that have had their day on a kind of devices: they go as soon as nobody uses them.
    retired: HashSet<(KindId, SegmentId)>,
    pub(crate) proofs: Proofs,
    pub(crate) refusals: Refusals,
    overdue: Overdue,
    /// Which backends are being tried for which graphs.
    pub(crate) trials: Trials,
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
    /// Several of one model run together.
    Together(Gathered, Granted),
    /// Several models run on one input.
    Alongside(Vec<(Waiter, Granted)>),
    /// A model is loaded, after others have gone; or none is, and others just go.
    Load {
        member: MemberId,
        choice: Choice,
        device: Arc<dyn Host>,
        model: Option<Arc<Prepared>>,
        let_go: LetGo,
    },
    /// A device lets go of what it kept.
    Drop { device: Arc<dyn Host>, let_go: LetGo },
    /// A request is told something.
    Tell(Waiter, Turn),
}

/// Requests of a group that are looked at for one that need not wait for another.
const LOOK_AHEAD: usize = 16;

/// Requests that may go along with one that computes what they need.
pub(crate) const COMPANY: usize = 15;

impl State {
    /// Takes a device in; one that is there already keeps its id, and is looked at anew: whoever
    /// brings it knows that it can take work, which may have changed.
    pub(crate) fn attach(&mut self, device: Arc<dyn Host>, options: MemberOptions) -> MemberId {
        let name = &device.info().name;
        let known = self.members.iter_mut().find(|(_, member)| member.info.name == *name);
        if let Some((id, member)) = known {
            member.refresh();
            return *id;
        }
        let id = MemberId(self.next_member);
        self.next_member += 1;
        let kind = device.kind();
        let mut member = Member::new(device, options, self.kind_id(&kind), kind.name);
        member.withdrawn = self.withdrawn.iter().any(|page| member.is_of(page));
        self.members.insert(id, member);
        self.account.most_devices = self.account.most_devices.max(self.members.len());
        id
    }

    /// The number of a kind of devices.
    pub(crate) fn kind_id(&mut self, kind: &Kind) -> KindId {
        let known = self.kinds.iter().position(|known| known == kind);
        KindId(known.unwrap_or_else(|| {
            self.kinds.push(kind.clone());
            self.kinds.len() - 1
        }))
    }

    /// The kinds of the devices that are there for a choice.
    pub(crate) fn kinds_of(&self, choice: Choice) -> Vec<(KindId, Kind)> {
        let mut kinds: Vec<(KindId, Kind)> = Vec::new();
        for member in self.members.values() {
            let serves = member.serves(Wanted::new(choice, false));
            if serves && kinds.iter().all(|(id, _)| *id != member.kind_id) {
                kinds.push((member.kind_id, self.kinds[member.kind_id.0].clone()));
            }
        }
        kinds
    }

    /// Whether any device can serve this with a model.
    pub(crate) fn runs(&self, wanted: Wanted, model: &Prepared) -> bool {
        self.members.values().any(|member| member.runs(wanted, model))
    }

    /// These routes are not used any more, unless somebody asks for one of them: on one kind of
    /// devices, or on all.
    pub(crate) fn retire(
        &mut self,
        kind: Option<KindId>,
        routes: impl IntoIterator<Item = SegmentId>,
    ) {
        let kinds = kind.map_or(0..self.kinds.len(), |KindId(kind)| kind..kind + 1);
        let on_kinds = |route| kinds.clone().map(move |kind| (KindId(kind), route));
        self.retired.extend(routes.into_iter().flat_map(on_kinds));
        let members = &self.members;
        let is_held = |(kind, id): &(KindId, SegmentId)| {
            members.values().filter(|member| member.kind_id == *kind).any(|member| {
                let coming = member.loading.as_ref().and_then(|loading| loading.model.as_ref());
                member.loaded.contains_key(id) || coming.is_some_and(|model| model.id == *id)
            })
        };
        self.retired.retain(is_held);
    }

    /// Somebody asks for it.
    pub(crate) fn unretire(&mut self, route: &SegmentId) {
        self.retired.retain(|(_, retired)| retired != route);
    }

    /// Whether any device can serve this.
    pub(crate) fn serves(&self, wanted: Wanted) -> bool {
        self.members.values().any(|member| member.serves(wanted))
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
        let nobody = |key: &GroupKey, model: &Prepared| {
            !members.values().any(|member| member.runs(key.wanted, model))
        };
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
            let Some((key, order, decision)) = self.decide(now) else { break };
            if let (_, Some(id)) = decision
                && let Some(member) = self.members.get_mut(&id)
                && member.has_changed()
            {
                continue;
            }
            match decision {
                (Decision::Run(_), Some(member)) => {
                    self.note_wait(&key, order, member, now);
                    let started = self.start(&key, order, member, now, max_batch);
                    let Some(action) = started else { break };
                    actions.push(action);
                }
                (Decision::Load(_), Some(member)) => actions.extend(self.load(&key, member, now)),
                (_, _) => {
                    let told = self.give_up(key.segment, now);
                    if told.is_empty() {
                        break;
                    }
                    actions.extend(told);
                }
            }
        }
        actions.extend(self.tidy(now));
        actions
    }

    /// Takes note of how long a request that runs now has waited since its model was there, if others
    /// could have taken it but for a load.
    fn note_wait(&mut self, key: &GroupKey, order: Order, id: MemberId, now: Instant) {
        let Some(group) = self.queue.group(key) else { return };
        let waits = |segment: &SegmentId| self.queue.waits_for(segment);
        let is_idle = |member: &Member| {
            let view = member.view(&group.model, None, false, waits, now);
            view.free && member.in_flight() == 0 && matches!(view.load, Load::Needed(_))
        };
        let mut serving = self.members.values().filter(|m| m.runs(key.wanted, &group.model));
        if !serving.any(is_idle) {
            return;
        }
        let held = self.members.get(&id).and_then(|member| member.loaded.get(&key.segment));
        if let (Some(waiter), Some(held)) = (group.waiting.get(&order), held) {
            let waited = now.saturating_duration_since(waiter.since.max(held.at));
            self.overdue.add(key.segment, waited, now);
        }
    }

    /// Lets go of what has had its day.
    fn tidy(&mut self, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.retired.is_empty() {
            return actions;
        }
        let queue = &self.queue;
        for (id, member) in &mut self.members {
            let waits = |segment: &SegmentId| queue.waits_for(segment);
            if let Some((count, let_go)) = member.begin_tidying(&self.retired, waits, now) {
                self.account.unloads += count as u64;
                let (choice, device) = (member.options.choice, member.device.clone());
                actions.push(Action::Load { member: *id, choice, device, model: None, let_go });
            }
        }
        self.retire(None, []);
        actions
    }

    /// A device has let go of what it was told to.
    pub(crate) fn tidied(&mut self, id: MemberId) -> Vec<Action> {
        if let Some(member) = self.members.get_mut(&id) {
            member.loading = None;
        }
        Vec::new()
    }

    /// The first of a group that is not better off waiting for what another request computes.
    fn next_of<'a>(&self, key: &GroupKey, group: &'a Group) -> Option<(Order, &'a Waiter)> {
        let is_coming = |waiter: &Waiter| {
            let Some(values) = &waiter.values else { return false };
            values.trunks.iter().any(|value| {
                let members = || self.members.values().filter(|m| m.runs(key.wanted, &group.model));
                members().any(|member| member.is_computing(value))
                    && !members().any(|member| member.has_value(&group.model, value, values))
            })
        };
        let mut first = group.waiting.iter().take(LOOK_AHEAD);
        first.find(|(_, waiter)| !is_coming(waiter)).map(|(order, waiter)| (*order, waiter))
    }

    /// The first group for which something is to be done, for which of its requests, and what.
    fn decide(&self, now: Instant) -> Option<(GroupKey, Order, (Decision, Option<MemberId>))> {
        // Devices that take nothing more, so that an older request gets its model in.
        let mut draining: Vec<MemberId> = Vec::new();
        for key in self.queue.in_order() {
            let group = self.queue.group(key)?;
            let Some((order, waiter)) = self.next_of(key, group) else { continue };
            let (avoid, values) = (waiter.avoid, waiter.values.as_deref());
            let waits = |segment: &SegmentId| self.queue.waits_for(segment);
            let serving: Vec<(MemberId, &Member)> = self
                .members
                .iter()
                .filter(|(_, member)| member.runs(key.wanted, &group.model))
                .map(|(id, member)| (*id, member))
                .collect();
            let view = |&(id, member): &(MemberId, &Member)| {
                let view = member.view(&group.model, values, avoid == Some(id), waits, now);
                let says_no = || self.refusals.said(&group.model, (id, member), now).is_some();
                let load = match view.load {
                    Load::Needed(_) | Load::NoRoom if says_no() => Load::Refused,
                    Load::Needed(load) => {
                        Load::Needed(self.overdue.left_of(load, &group.model.id, now))
                    }
                    load => load,
                };
                View { load, free: view.free && !draining.contains(&id), ..view }
            };
            let views: Vec<View> = serving.iter().map(view).collect();
            match place(group.waiting.len(), &views) {
                Decision::Wait => {
                    let nobody = |view: &View| !matches!(view.load, Load::Ready | Load::Coming(_));
                    if views.iter().all(nobody) {
                        let full = serving.iter().zip(&views).filter(|((_, member), view)| {
                            view.load != Load::Refused
                                && member.should_drain_for(&group.model, waits, now)
                        });
                        draining.extend(full.map(|((id, _), _)| *id));
                    }
                }
                Decision::Refuse => return Some((key.clone(), order, (Decision::Refuse, None))),
                decision @ (Decision::Run(index) | Decision::Load(index)) => {
                    let member = serving.get(index).map(|(id, _)| *id);
                    return Some((key.clone(), order, (decision, member)));
                }
            }
        }
        None
    }

    /// Takes a request, and more if they can go along.
    fn start(
        &mut self,
        key: &GroupKey,
        order: Order,
        id: MemberId,
        now: Instant,
        max_batch: usize,
    ) -> Option<Action> {
        if !self.members.get(&id)?.loaded.contains_key(&key.segment) {
            return None;
        }
        let company = self.company(key, order, id);
        if !company.is_empty() {
            let mut parts = Vec::new();
            for (order, key) in std::iter::once((order, key.clone())).chain(company) {
                let waiter = self.queue.remove(&key, order)?;
                let granted = self.grant(&key.segment, id, waiter.values.clone(), now)?;
                parts.push((waiter, granted));
            }
            return Some(Action::Alongside(parts));
        }
        let group = self.queue.group(key)?;
        let is_first = group.waiting.first_key_value().is_some_and(|(first, _)| *first == order);
        let waiter = group.waiting.get(&order)?;
        let (member, model) = (self.members.get(&id)?, &group.model);
        let is_there = waiter.values.as_ref().is_some_and(|values| {
            values.trunks.iter().any(|value| member.has_value(model, value, values))
        });
        let kind = member.kind.clone();
        // What is there already is not computed again for the sake of a batch.
        if is_first
            && !is_there
            && let Some(gathered) = self.proofs.gather(&mut self.queue, key, &kind, max_batch)
        {
            let granted = self.grant(&key.segment, id, None, now)?;
            return Some(Action::Together(gathered, granted));
        }
        let waiter = self.queue.remove(key, order)?;
        let granted = self.grant(&key.segment, id, waiter.values.clone(), now)?;
        Some(Action::Alone(waiter, granted))
    }

    /// Others that wait for the same to be computed, and whose models are there.
    fn company(&self, key: &GroupKey, order: Order, id: MemberId) -> Vec<(Order, GroupKey)> {
        let find = || {
            let waiter = self.queue.group(key)?.waiting.get(&order)?;
            // One that a device failed under goes alone, so that it takes nobody along.
            let value = waiter.trunks().first().filter(|_| waiter.avoid.is_none())?;
            Some((value, self.members.get(&id)?))
        };
        let Some((value, member)) = find() else { return Vec::new() };
        let may_come = |(other, other_key): &(Order, &GroupKey)| {
            let group = self.queue.group(other_key);
            let waiter = group.and_then(|group| group.waiting.get(other));
            *other != order
                && other_key.wanted == key.wanted
                && member.loaded.contains_key(&other_key.segment)
                && waiter.is_some_and(|waiter| waiter.avoid.is_none())
        };
        let others = self.queue.waiting_for(value).filter(may_come).take(COMPANY);
        others.map(|(order, key)| (order, key.clone())).collect()
    }

    /// A slot of a device for a model that is loaded there.
    fn grant(
        &mut self,
        route: &SegmentId,
        id: MemberId,
        values: Option<Arc<Values>>,
        now: Instant,
    ) -> Option<Granted> {
        let first = self.members.values().all(|member| member.in_flight() == 0);
        let member = self.members.get_mut(&id)?;
        let (device, steady) = (member.device.clone(), member.options.steady);
        let losses = member.losses;
        let held = member.take(route, self.granted + 1, now)?;
        self.granted += 1;
        let (model, loaded) = (held.model.clone(), held.loaded.clone());
        let (load_began, loaded_at) = (held.began, held.at);
        let there = values.as_ref().map(|values| member.engage(&model, values, now));
        let there = Arc::new(there.unwrap_or_default());
        Some(Granted {
            member: id,
            device,
            model,
            loaded,
            load_began,
            loaded_at,
            losses,
            steady,
            at: now,
            number: self.granted,
            first,
            values,
            there,
        })
    }

    fn load(&mut self, key: &GroupKey, id: MemberId, now: Instant) -> Option<Action> {
        let model = self.queue.group(key)?.model.clone();
        self.overdue.settle(&model.id);
        let queue = &self.queue;
        let member = self.members.get_mut(&id)?;
        let waits = |segment: &SegmentId| queue.waits_for(segment);
        let (count, let_go) = member.begin_load(&model, &self.retired, waits, now);
        self.account.unloads += count as u64;
        let (choice, device) = (member.options.choice, member.device.clone());
        Some(Action::Load { member: id, choice, device, model: Some(model), let_go })
    }

    /// Notes how a load ended.
    pub(crate) fn loaded(
        &mut self,
        id: MemberId,
        choice: Choice,
        model: &Arc<Prepared>,
        result: Result<Loaded, DeviceError>,
        now: Instant,
    ) -> Vec<Action> {
        let mut actions = self.refresh();
        let member = self.members.get_mut(&id);
        let error = match result {
            Ok(loaded) => {
                if let Some(member) = member {
                    self.account.loads.succeeded += 1;
                    member.end_load(loaded, now);
                    self.refusals.loaded(model.id, choice, id);
                }
                return actions;
            }
            Err(error) => error,
        };
        self.account.loads.failed += 1;
        let reason = crate::pool::explain(&error);
        match (error.kind(), member) {
            (ErrorKind::Caller, member) => {
                if let Some(member) = member {
                    member.loading = None;
                }
                let wrong = |key: &GroupKey, _: &Prepared| {
                    key.segment == model.id && key.wanted.choice == choice
                };
                let waiting = self.queue.take(wrong).into_iter();
                actions.extend(waiting.map(|(_, waiter)| {
                    let error = DeviceError::caller(reason.clone());
                    Action::Tell(waiter, Turn::Wrong(error))
                }));
            }
            // It is there and says that it cannot.
            (ErrorKind::Memory | ErrorKind::Device, Some(member)) => {
                member.loading = None;
                self.refusals.say_no(model.id, choice, id, reason, now);
            }
            (kind, Some(member)) => {
                member.loading = None;
                member.failed(Fault::of_load(kind), now);
                let why = format!("{}: {reason}", member.info.name);
                match member.options.steady {
                    true => self.refusals.say_no(model.id, choice, id, why, now),
                    false => self.refusals.lose(model.id, choice, why, now),
                }
            }
            // The device went with it: a model that takes every device along must come to an end.
            (_, None) => self.refusals.lose(model.id, choice, reason, now),
        }
        actions.extend(self.give_up(model.id, now));
        actions
    }

    /// Gives a slot back.
    pub(crate) fn release(
        &mut self,
        granted: &Granted,
        used: &Used,
        kept: &[Kept],
        now: Instant,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Some(member) = self.members.get_mut(&granted.member) {
            member.give_back(granted, used, kept, now);
            let tensors = member.cache.take_dropped();
            if !tensors.is_empty() {
                let let_go = LetGo { tensors, ..LetGo::default() };
                actions.push(Action::Drop { device: member.device.clone(), let_go });
            }
        }
        if matches!(used, Used::Badly(_)) {
            actions.extend(self.refresh());
        }
        actions
    }

    /// Whether nothing else ran since a slot was given.
    pub(crate) fn ran_alone(&self, granted: &Granted) -> bool {
        granted.first && granted.number == self.granted
    }

    /// When the route of a group began to be loaded, and when it was there first: now at the latest.
    pub(crate) fn load_of(&self, key: &GroupKey, now: Instant) -> Option<(Instant, Instant)> {
        let serving = self.members.values().filter(|member| member.serves(key.wanted));
        let loads = serving.filter_map(|member| member.load_of(&key.segment, now));
        loads.min_by_key(|(began, ended)| (*ended, *began))
    }

    /// Whether something waits that may be able to go on by itself soon.
    pub(crate) fn wants_a_look(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(crate) fn forget(&mut self, key: &GroupKey, order: Order) -> bool {
        self.queue.remove(key, order).is_some()
    }
}
