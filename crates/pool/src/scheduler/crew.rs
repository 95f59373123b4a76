//! The devices of one page, and what waits, as whoever starts browsers sees them.

use std::time::Duration;

use holdfast_wire::Backend;
use tokio::time::Instant;

use super::Scheduler;
use super::member::{Health, Member};
use super::state::State;
use crate::choice::Choice;

/// What the devices of a page do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Crew {
    /// Devices that take work, or took it until they were withdrawn.
    pub(crate) devices: usize,
    /// Programs that they have, and models that they are loading.
    pub(crate) busy: usize,
    /// Requests that they answered.
    pub(crate) answered: u64,
    /// When they were used last.
    pub(crate) used: Option<Instant>,
}

/// What waits for lanes on a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    pub(crate) backend: Backend,
    /// Requests.
    pub(crate) waiting: usize,
    /// How long the first of them have waited.
    pub(crate) oldest: Duration,
    /// Programs that those which are there are given at the same time.
    pub(crate) slots: usize,
}

impl Scheduler {
    /// What the devices of a page do.
    pub(crate) fn crew(&self, page: &str) -> Crew {
        let state = self.state();
        let mut crew = Crew::default();
        for member in state.members.values().filter(|member| member.is_of(page)) {
            crew.devices += 1;
            crew.busy += member.in_flight() + usize::from(member.loading.is_some());
            crew.answered += member.answered;
            crew.used = crew.used.max(Some(member.used_at));
        }
        crew
    }

    /// What waits, by backend.
    pub(crate) fn demand(&self) -> Vec<Demand> {
        self.state().demand(Instant::now())
    }

    /// Gives the devices of a page nothing more. What they have they finish.
    pub(crate) fn withdraw(&self, page: &str) {
        self.change(|state| ((), state.withdraw(page)));
    }

    /// Whether the devices of a page are given nothing more.
    pub(crate) fn is_withdrawn(&self, page: &str) -> bool {
        self.state().withdrawn.contains(page)
    }

    /// The page is gone, and its name will not come again.
    pub(crate) fn forget_page(&self, page: &str) {
        self.state().withdrawn.remove(page);
    }
}

impl State {
    fn withdraw(&mut self, page: &str) -> Vec<super::state::Action> {
        self.withdrawn.insert(page.to_owned());
        for member in self.members.values_mut().filter(|member| member.is_of(page)) {
            member.withdrawn = true;
        }
        self.abandoned()
    }

    fn demand(&self, now: Instant) -> Vec<Demand> {
        let mut demands: Vec<Demand> = Vec::new();
        for key in self.queue.in_order() {
            let (Choice::Lane(backend), Some(group)) = (key.wanted.choice, self.queue.group(key))
            else {
                continue;
            };
            let waiting = group.waiting.len();
            let first = group.waiting.values().next().map_or(now, |waiter| waiter.since);
            let oldest = now.saturating_duration_since(first);
            match demands.iter_mut().find(|demand| demand.backend == backend) {
                Some(demand) => {
                    demand.waiting += waiting;
                    demand.oldest = demand.oldest.max(oldest);
                }
                None => {
                    let serving = |member: &&Member| {
                        member.health == Health::Ready && member.serves(key.wanted)
                    };
                    let slots = self.members.values().filter(serving).map(Member::slots).sum();
                    demands.push(Demand { backend, waiting, oldest, slots });
                }
            }
        }
        demands
    }
}
