//! The scheduler: devices, what waits for them, and who goes next.
//!
//! A [`Scheduler`] is a handle to state behind one short lock, which is never held while anything
//! is awaited. A request waits in its caller's own task, for a [`Turn`]: most run there too, with
//! the [`Lease`] of a slot. Only loads and batches, which serve several callers, have tasks of
//! their own, so that a caller who leaves does not take them along.

mod alongside;
pub(crate) mod crew;
pub(crate) mod fault;
pub(crate) mod kind;
mod load;
pub(crate) mod member;
mod order;
mod overdue;
pub(crate) mod proof;
pub(crate) mod queue;
mod refusals;
pub(crate) mod state;
pub(crate) mod together;
pub(crate) mod turn;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use holdfast_devices::{Event, SegmentId};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::batch::Inputs;
use crate::choice::Choice;
use crate::program::Kept;
use crate::route::Prepared;
use crate::values::Values;
use kind::Kind;
use member::{Host, KindId, MemberId, MemberOptions};
use queue::{GroupKey, Order, Waiter, Wanted};
use state::{Action, State};
use turn::{Granted, Lease, Turn, Used, counted};

/// Cheap to clone: clones are the same scheduler.
#[derive(Clone)]
pub(crate) struct Scheduler {
    shared: Arc<Shared>,
}

struct Shared {
    /// Rows of a batch.
    max_batch: usize,
    progress: Arc<dyn Fn(&str) + Send + Sync>,
    /// The number of the next request.
    arrivals: AtomicU64,
    /// Something waits that may be able to go on without anybody asking.
    look: Notify,
    /// Never held while anything is awaited or anybody is told anything.
    state: Mutex<State>,
}

/// How often what waits is looked at when nothing happens: pauses of devices end, and a device
/// that was to be faster may have hung.
const LOOK: Duration = Duration::from_millis(100);

impl Scheduler {
    /// Without devices yet.
    pub(crate) fn new(max_batch: usize, progress: Arc<dyn Fn(&str) + Send + Sync>) -> Scheduler {
        let (arrivals, look, state) = Default::default();
        let shared = Shared { max_batch, progress, arrivals, look, state };
        Scheduler { shared: Arc::new(shared) }
    }

    /// Takes a device in.
    pub(crate) fn attach(&self, device: Arc<dyn Host>, options: MemberOptions) -> MemberId {
        let events = device.events();
        let id = self.change(|state| (state.attach(device, options), Vec::new()));
        // Outside of a runtime nothing can happen to a device that anybody would wait for.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(watch(Arc::downgrade(&self.shared), events));
        }
        id
    }

    /// Whether there is a device for this.
    pub(crate) fn serves(&self, wanted: Wanted) -> bool {
        self.state().serves(wanted)
    }

    /// Whether there is a device for this that may run a model.
    pub(crate) fn runs(&self, wanted: Wanted, model: &Prepared) -> bool {
        self.state().runs(wanted, model)
    }

    /// The kinds of the devices that are there for a choice.
    pub(crate) fn kinds_of(&self, choice: Choice) -> Vec<(KindId, Kind)> {
        self.state().kinds_of(choice)
    }

    /// Takes note of what has happened to devices.
    pub(crate) fn refresh(&self) {
        self.change(|state| ((), state.refresh()));
    }

    /// These routes are not used any more, and go as soon as nobody does.
    pub(crate) fn retire(&self, routes: impl IntoIterator<Item = SegmentId>) {
        self.change(|state| (state.retire(None, routes), Vec::new()));
    }

    /// These routes are not used any more on devices of one kind.
    pub(crate) fn retire_on(&self, kind: KindId, routes: impl IntoIterator<Item = SegmentId>) {
        self.change(|state| (state.retire(Some(kind), routes), Vec::new()));
    }

    /// The number of a new request.
    pub(crate) fn arrival(&self) -> u64 {
        self.shared.arrivals.fetch_add(1, Ordering::Relaxed)
    }

    /// How many devices there are for this.
    pub(crate) fn count(&self, wanted: Wanted) -> usize {
        self.state().members.values().filter(|member| member.serves(wanted)).count()
    }

    /// Why a model cannot be had, if that was found out lately.
    pub(crate) fn refusal(&self, wanted: Wanted, model: &Prepared) -> Option<String> {
        let state = self.state();
        // What is too large is told in the queue: nobody pays for it who has nothing to hear.
        if state.refusals.is_empty() {
            return None;
        }
        state.refusal(wanted, model, Instant::now())
    }

    /// Puts a request into the queue.
    pub(crate) fn enqueue(
        &self,
        wanted: Wanted,
        order: Order,
        model: &Arc<Prepared>,
        inputs: &Inputs,
        values: Option<Arc<Values>>,
        avoid: Option<MemberId>,
    ) -> Ticket {
        // One that a device failed under goes alone, so that it takes nobody along.
        let rows = model.rows.as_ref().filter(|_| self.shared.max_batch > 1 && avoid.is_none());
        let (rows, shape) = rows.and_then(|rows| rows.shape(inputs)).unzip();
        let with_others = rows.is_some() || values.is_some();
        let inputs = with_others.then(|| Arc::new(inputs.clone()));
        let key = GroupKey { wanted, segment: model.id, shape };
        let (turn, told) = oneshot::channel();
        let since = Instant::now();
        self.change(|state| {
            state.unretire(&model.id);
            let waiter = Waiter { since, inputs, rows, values, avoid, turn };
            state.queue.insert(&key, order, model, waiter);
            let actions = match state.runs(wanted, model) {
                true => Vec::new(),
                // It went while the request was on its way here.
                false => state.abandoned(),
            };
            ((), actions)
        });
        Ticket { scheduler: self.clone(), key, order, since, told }
    }

    /// Lets nothing start until the guard goes, so that what comes at once can run together.
    pub(crate) fn hold(&self) -> Hold {
        self.state().holds += 1;
        Hold { scheduler: self.clone() }
    }

    pub(crate) fn progress(&self, text: &str) {
        (self.shared.progress)(text);
    }

    pub(crate) fn release(&self, granted: &Granted, used: Used, kept: &[Kept]) {
        self.change(|state| ((), state.release(granted, &used, kept, Instant::now())));
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("no code panics while holding this lock")
    }

    /// Changes something, and does what follows from it.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> (T, Vec<Action>)) -> T {
        let (result, actions, look) = {
            let mut state = self.state();
            let (result, mut actions) = change(&mut state);
            actions.extend(state.pump(Instant::now(), self.shared.max_batch));
            (result, actions, state.wants_a_look())
        };
        if look {
            self.shared.look.notify_one();
        }
        for action in actions {
            self.act(action);
        }
        result
    }

    fn act(&self, action: Action) {
        // Whoever has left meanwhile is not told: what was for them goes, and frees its slot.
        match action {
            Action::Tell(waiter, turn) => drop(waiter.turn.send(turn)),
            Action::Alone(waiter, granted) => {
                drop(waiter.turn.send(Turn::Run(Lease::new(self.clone(), granted))));
            }
            Action::Together(gathered, granted) => {
                let lease = Lease::new(self.clone(), granted);
                tokio::spawn(together::run(self.clone(), lease, gathered));
            }
            Action::Alongside(parts) => {
                let lease = |(waiter, granted)| (waiter, Lease::new(self.clone(), granted));
                tokio::spawn(alongside::run(parts.into_iter().map(lease).collect()));
            }
            Action::Load { member, choice, device, model, let_go } => {
                tokio::spawn(load::run(self.clone(), (member, choice), device, model, let_go));
            }
            Action::Drop { device, let_go } => {
                tokio::spawn(async move { load::make_room(device.as_ref(), let_go).await });
            }
        }
    }
}

/// A place in the queue, which is given up when this goes.
pub(crate) struct Ticket {
    scheduler: Scheduler,
    key: GroupKey,
    order: Order,
    since: Instant,
    told: oneshot::Receiver<Turn>,
}

impl Ticket {
    /// Waits for the request's turn. `None` if the deadline has passed before. The time in which its
    /// own model is loaded does not count; waiting for that to begin does.
    pub(crate) async fn turn(&mut self, deadline: Option<Duration>) -> Option<Turn> {
        // The sender is dropped only with the scheduler, and this has it.
        let gone = |_| Turn::Gone;
        let Some(deadline) = deadline else {
            return Some((&mut self.told).await.unwrap_or_else(gone));
        };
        let mut until = self.since + deadline;
        loop {
            tokio::select! {
                biased;
                turn = &mut self.told => return Some(turn.unwrap_or_else(gone)),
                () = tokio::time::sleep_until(until) => {}
            }
            let now = Instant::now();
            let load = self.scheduler.state().load_of(&self.key, now);
            let left = deadline.saturating_sub(counted(self.since, now, load));
            if left.is_zero() {
                return None;
            }
            let is_loading = load.is_some_and(|(_, ended)| ended >= now);
            // While it is loading, it is looked at seldom, however little is left.
            until = now + if is_loading { left.max(LOOK) } else { left };
        }
    }

    /// When the request was put in.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // One that was told something is not there any more.
        self.scheduler.state().forget(&self.key, self.order);
    }
}

/// While this is there, nothing starts.
pub(crate) struct Hold {
    scheduler: Scheduler,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.scheduler.change(|state| {
            state.holds -= 1;
            ((), Vec::new())
        });
    }
}

/// Takes note of what happens to a device, and looks at what waits from time to time.
async fn watch(shared: Weak<Shared>, mut events: tokio::sync::broadcast::Receiver<Event>) {
    loop {
        let Some(scheduler) = shared.upgrade().map(|shared| Scheduler { shared }) else { return };
        let waiting = scheduler.state().wants_a_look();
        drop(scheduler);
        let gone = if waiting {
            tokio::select! {
                event = events.recv() => is_last(&event),
                () = tokio::time::sleep(LOOK) => false,
            }
        } else {
            // Whoever is put into the queue is looked at there; what is left wakes this up.
            let Some(held) = shared.upgrade() else { return };
            let looked = held.look.notified();
            tokio::select! {
                event = events.recv() => is_last(&event),
                () = looked => false,
                () = tokio::time::sleep(IDLE) => false,
            }
        };
        let Some(scheduler) = shared.upgrade().map(|shared| Scheduler { shared }) else { return };
        scheduler.change(|state| ((), state.refresh()));
        if gone {
            return;
        }
    }
}

/// How long the watch of a device holds on to a scheduler that nobody else has.
const IDLE: Duration = Duration::from_secs(1);

fn is_last(event: &Result<Event, tokio::sync::broadcast::error::RecvError>) -> bool {
    use tokio::sync::broadcast::error::RecvError;
    matches!(event, Ok(Event::Gone { .. }) | Err(RecvError::Closed))
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
