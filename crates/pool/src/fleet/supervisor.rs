//! The task that alone decides what is started and closed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use holdfast_devices::Secret;
use tokio::sync::watch;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;

use super::Shared;
use super::decide::{Decision, decide};
use super::history::ScalingStep;
use super::metrics::BrowserState;
use super::started::{Ended, Started};
use super::state::{Entry, Order};

/// How often it is looked whether there is something to do.
const LOOK: Duration = Duration::from_millis(250);

/// Keeps as many browsers as there are to be, until it is shut down; then ends them all.
pub(super) async fn run(shared: Arc<Shared>, mut shutdown: watch::Receiver<bool>) {
    let mut tasks = Tasks::default();
    loop {
        while tasks.act(&shared) {}
        tokio::select! {
            // It fails when the pool is gone.
            _ = shutdown.wait_for(|stop| *stop) => break,
            () = tasks.ended(&shared) => {}
            () = shared.poke.notified() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
    for entry in shared.state().browsers.values() {
        entry.order.send_replace(Order::End);
    }
    while !tasks.running.is_empty() {
        tasks.ended(&shared).await;
    }
}

/// The browsers' tasks.
#[derive(Default)]
struct Tasks {
    running: JoinSet<Ended>,
    ids: HashMap<Id, u64>,
}

impl Tasks {
    /// Does what is to be done next; `false` if that is nothing.
    fn act(&mut self, shared: &Arc<Shared>) -> bool {
        let mut state = shared.state();
        let Some(door) = state.door.clone().filter(|_| !state.closed) else { return false };
        match decide(&shared.picture(&state)) {
            Decision::Nothing => false,
            Decision::Close(id, why) => {
                state.set(id, BrowserState::Draining);
                if let Some(entry) = state.browsers.get(&id) {
                    entry.order.send_replace(Order::Leave(why));
                }
                true
            }
            Decision::Start(source, why) => {
                state.started += 1;
                let (id, place) = (state.started, state.free_place());
                let page = Secret::random().reveal().to_owned();
                let (sender, order) = watch::channel(Order::Stay);
                let entry = Entry {
                    source,
                    place,
                    page: page.clone(),
                    state: BrowserState::Starting,
                    since: Instant::now(),
                    facts: None,
                    memory: None,
                    lacks: state.records[source].lacks(Instant::now()).to_vec(),
                    order: sender,
                };
                state.browsers.insert(id, entry);
                state.most = state.most.max(state.browsers.len());
                state.note(ScalingStep::Start, id, &why);
                drop(state);
                let shared = shared.clone();
                let started = Started { shared, id, source, page, door, order };
                let task = self.running.spawn(started.run());
                self.ids.insert(task.id(), id);
                true
            }
        }
    }

    /// Waits for a browser's task to end, for ever if there is none.
    async fn ended(&mut self, shared: &Shared) {
        let (task, ended) = match self.running.join_next_with_id().await {
            Some(Ok((task, ended))) => (task, ended),
            Some(Err(error)) => {
                let reason = format!("its task ended: {error}");
                (error.id(), Ended::Failed { reason, worked: false })
            }
            None => return std::future::pending().await,
        };
        if let Some(id) = self.ids.remove(&task) {
            note(shared, id, ended);
        }
    }
}

/// Takes note of how a browser ended.
fn note(shared: &Shared, id: u64, ended: Ended) {
    {
        let mut state = shared.state();
        let (what, why) = match &ended {
            Ended::AsTold(why) | Ended::Full { reason: why, .. } => (ScalingStep::Close, why),
            Ended::NeverJoined(why) | Ended::Failed { reason: why, .. } => (ScalingStep::Fail, why),
        };
        state.note(what, id, why);
        let Some(entry) = state.browsers.remove(&id) else { return };
        if !matches!(ended, Ended::AsTold(_)) {
            state.count_restart(entry.place);
        }
        state.records[entry.source].ended(ended, Instant::now());
    }
    shared.changed();
}
