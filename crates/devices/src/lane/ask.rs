//! Asking a lane and waiting for its answer: timeouts, cancelling, giving up.

use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_wire::{ToLane, split};
use tokio::sync::{oneshot, watch};

use super::Lane;
use super::effect::Effect;
use super::outbox::lets_go;
use super::state::{Answer, Connection, Pending, Progress};
use super::timeouts::LONGEST;
use super::underway::Underway;
use crate::error::{DeviceError, ErrorKind};

impl Lane {
    /// Asks, and waits as long as there is progress within `patience`, besides the time of those
    /// that wait already.
    pub(super) async fn ask(
        &self,
        operation: &'static str,
        message: impl FnOnce(u64) -> ToLane,
        body: Vec<Bytes>,
        patience: Duration,
        effect: Effect,
    ) -> Result<Answer, DeviceError> {
        let mut asked = self.post(operation, message, body, patience, None, effect)?;
        self.finish(&mut asked).await
    }

    /// Asks for a run, for which nobody waits longer than until its deadline, and which can be
    /// cancelled by its name.
    pub(super) async fn ask_run(
        &self,
        underway: &Underway<'_>,
        message: impl FnOnce(u64) -> ToLane,
        body: Vec<Bytes>,
        patience: Duration,
        deadline: Option<Duration>,
        effect: Effect,
    ) -> Result<Answer, DeviceError> {
        if deadline.is_some_and(|deadline| deadline.is_zero()) {
            return Err(given_up(ErrorKind::Timeout));
        }
        let mut asked =
            underway.ask(|| self.post("run", message, body, patience, deadline, effect))?;
        self.finish(&mut asked).await
    }

    /// Gives a request up: whoever waits for it hears of it at once, and so does the lane.
    pub(super) fn give_up(&self, request: u64, kind: ErrorKind) -> bool {
        let mut state = self.state();
        let Some(pending) = state.pending.remove(&request) else { return false };
        // What lets something go is done in any case: nobody else would.
        if !lets_go(&pending.message) && !state.outbox.take_back(request) {
            state.abandoned.insert(request, pending.effect);
        }
        drop(state);
        self.shared.outgoing.notify_one();
        let _ = pending.answer.send(Err(given_up(kind)));
        true
    }

    /// Puts a request on its way.
    fn post(
        &self,
        operation: &'static str,
        message: impl FnOnce(u64) -> ToLane,
        body: Vec<Bytes>,
        patience: Duration,
        deadline: Option<Duration>,
        effect: Effect,
    ) -> Result<Asked<'_>, DeviceError> {
        let mut state = self.state();
        if let Connection::Gone { reason, kind } = &state.connection {
            return Err(DeviceError::new(*kind, format!("the lane is gone: {reason}")));
        }
        if state.pending.len() >= self.shared.options.queue {
            let message = format!("{} requests are waiting on this lane", state.pending.len());
            return Err(DeviceError::new(ErrorKind::Busy, message));
        }
        let request = state.next_request;
        let (answer, answered) = oneshot::channel();
        let now = Instant::now();
        let (progress, progressed) = watch::channel((now, None));
        // However long the caller would wait: a lane that hangs is found out by its own measure, while
        // there is time left to go elsewhere.
        let timeout = patience.saturating_add(state.wait()).min(LONGEST);
        let timeout = deadline.map_or(timeout, |deadline| deadline.min(timeout));
        let pending = Pending {
            message: message(request),
            body,
            deadline: now + timeout,
            patience,
            effect,
            parts: Vec::new(),
            progress,
            answer,
        };
        let too_long = |e| DeviceError::caused(ErrorKind::Caller, "the request is too large", e);
        let (message, body) = (pending.message_now(), &pending.body);
        if state.is_up() {
            state.outbox.push_request(request, &message, body).map_err(too_long)?;
        } else {
            // It is sent when the lane is back, and who is at fault should hear of it now.
            split(0, &message, body).map_err(too_long)?;
        }
        state.next_request += 1;
        state.pending.insert(request, pending);
        drop(state);
        self.shared.outgoing.notify_one();
        Ok(Asked { lane: self, operation, request, answered, progressed, timeout, asked: now })
    }

    async fn finish(&self, asked: &mut Asked<'_>) -> Result<Answer, DeviceError> {
        let answer = loop {
            let (last, _) = *asked.progressed.borrow_and_update();
            tokio::select! {
                answer = &mut asked.answered => break answer.unwrap_or_else(|_| Err(given_up(ErrorKind::Cancelled))),
                Ok(()) = asked.progressed.changed() => {}
                () = tokio::time::sleep_until((last + asked.timeout).into()) => {
                    self.give_up(asked.request, ErrorKind::Timeout);
                    break Err(given_up(ErrorKind::Timeout));
                }
            }
        };
        let took = asked.asked.elapsed();
        let mut state = self.state();
        let account = state.diagnostics.operations.entry(asked.operation).or_default();
        match &answer {
            Ok(_) => account.succeeded(took),
            Err(error) => account.failed(error.kind()),
        }
        answer
    }
}

/// A request on its way. However its future ends, the lane is told.
pub(super) struct Asked<'a> {
    lane: &'a Lane,
    operation: &'static str,
    request: u64,
    answered: oneshot::Receiver<Result<Answer, DeviceError>>,
    progressed: watch::Receiver<Progress>,
    timeout: Duration,
    asked: Instant,
}

impl Asked<'_> {
    pub(super) fn request(&self) -> u64 {
        self.request
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let was_waiting = self.lane.give_up(self.request, ErrorKind::Cancelled);
        // It was answered in the same moment, and nobody will ever hear the names of what it left.
        if !was_waiting && let Ok(Ok(answer)) = self.answered.try_recv() {
            self.lane.state().disown(answer.new);
            self.lane.shared.outgoing.notify_one();
        }
    }
}

/// What whoever waited for a request that was given up is told.
pub(super) fn given_up(kind: ErrorKind) -> DeviceError {
    let message = match kind {
        ErrorKind::Timeout => "the lane did not answer in time",
        _ => "the request was given up before it was done",
    };
    DeviceError::new(kind, message)
}
