//! What came of loads that failed: which devices said no, and which models take their devices down.
//!
//! That one device cannot load a model says little about the others, which may have it running. So
//! a refusal is the device's own; [`State::refusal`] says when there are enough of them.

use std::collections::HashMap;
use std::time::Duration;

use holdfast_devices::SegmentId;
use tokio::time::Instant;

use super::member::{Member, MemberId};
use super::queue::{GroupKey, Wanted};
use super::state::{Action, State};
use super::turn::Turn;
use crate::choice::Choice;
use crate::route::Prepared;

/// How long it is remembered that a model cannot be had somewhere.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// Models of which something is remembered. Past this all is forgotten, and found out again.
const REMEMBERED: usize = 1024;

/// Loads of one model that may be lost in a row, with their devices or not.
const LOADS: usize = 3;

/// Devices that have to say no before no other is asked.
const ENOUGH: usize = 2;

const TOO_LARGE: &str =
    "it is larger than what a device may hold there; allow more memory for models";

#[derive(Default)]
pub(crate) struct Refusals {
    of: HashMap<(SegmentId, Choice), Refusal>,
}

#[derive(Default)]
struct Refusal {
    /// Devices that are there and said no.
    said: HashMap<MemberId, Said>,
    /// Why loads were lost, in a row.
    lost: Vec<String>,
    /// Nobody is asked to load it any more, because too many were lost.
    given_up: Option<Said>,
}

struct Said {
    at: Instant,
    why: String,
}

impl Said {
    fn still(&self, now: Instant) -> Option<&str> {
        (now.saturating_duration_since(self.at) < REFUSED_FOR).then_some(self.why.as_str())
    }
}

impl Refusals {
    /// A device that is there says that it cannot load a model.
    pub(crate) fn say_no(
        &mut self,
        model: SegmentId,
        choice: Choice,
        device: MemberId,
        why: String,
        now: Instant,
    ) {
        self.entry(model, choice).said.insert(device, Said { at: now, why });
    }

    /// A load was lost, which may or may not have been the model's fault.
    pub(crate) fn lose(&mut self, model: SegmentId, choice: Choice, why: String, now: Instant) {
        let refusal = self.entry(model, choice);
        refusal.lost.push(why);
        if refusal.lost.len() >= LOADS {
            let why = std::mem::take(&mut refusal.lost).join("; ");
            refusal.given_up = Some(Said { at: now, why });
        }
    }

    /// A device has loaded it: so it can be done. What others said stays said.
    pub(crate) fn loaded(&mut self, model: SegmentId, choice: Choice, device: MemberId) {
        let Some(refusal) = self.of.get_mut(&(model, choice)) else { return };
        refusal.said.remove(&device);
        (refusal.lost, refusal.given_up) = (Vec::new(), None);
        if refusal.said.is_empty() {
            self.of.remove(&(model, choice));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Why a device says no to a model, if it does.
    pub(crate) fn said(
        &self,
        model: &Prepared,
        device: (MemberId, &Member),
        now: Instant,
    ) -> Option<&str> {
        let (id, member) = device;
        self.of.get(&(model.id, member.options.choice))?.said.get(&id)?.still(now)
    }

    fn entry(&mut self, model: SegmentId, choice: Choice) -> &mut Refusal {
        if self.of.len() >= REMEMBERED && !self.of.contains_key(&(model, choice)) {
            self.of.clear();
        }
        self.of.entry((model, choice)).or_default()
    }
}

impl State {
    /// Why a model cannot be had: two of the devices that could have it say no, or the only one
    /// does, and none has it; or too many loads of it were lost.
    pub(crate) fn refusal(&self, wanted: Wanted, model: &Prepared, now: Instant) -> Option<String> {
        let serving = || {
            let members = self.members.iter().map(|(id, member)| (*id, member));
            members.filter(|(_, member)| member.runs(wanted, model))
        };
        if serving().next().is_none() || serving().any(|(_, member)| member.has_or_loads(model)) {
            return None;
        }
        let refusal = self.refusals.of.get(&(model.id, wanted.choice));
        let given_up = refusal.and_then(|refusal| refusal.given_up.as_ref());
        if let Some(why) = given_up.and_then(|said| said.still(now)) {
            return Some(why.to_owned());
        }
        let able: Vec<_> = serving().filter(|(_, member)| member.may_hold(model)).collect();
        if able.is_empty() {
            return Some(TOO_LARGE.to_owned());
        }
        let mut said = able.iter().filter_map(|device| self.refusals.said(model, *device, now));
        said.nth(able.len().min(ENOUGH) - 1).map(str::to_owned)
    }

    /// Tells those who wait for a model that it cannot be had, where that is so.
    pub(super) fn give_up(&mut self, model: SegmentId, now: Instant) -> Vec<Action> {
        let why = |key: &GroupKey| self.refusal(key.wanted, &self.queue.group(key)?.model, now);
        let keys = self.queue.in_order().filter(|key| key.segment == model);
        let in_vain: Vec<(GroupKey, String)> =
            keys.filter_map(|key| Some((key.clone(), why(key)?))).collect();
        let mut actions = Vec::new();
        for (key, why) in in_vain {
            while let Some((_, waiter)) = self.queue.pop(&key) {
                actions.push(Action::Tell(waiter, Turn::Cannot(why.clone())));
            }
        }
        actions
    }
}
