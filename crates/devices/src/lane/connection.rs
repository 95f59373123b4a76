//! One connection of a lane: frames out, frames in, heartbeats, and how it ends.

use std::time::Instant;

use bytes::Bytes;
use holdfast_wire::{Assembler, Backend, Frame, FromLane, Resume, ToLane, Welcome};
use tokio::sync::{mpsc, watch};

use super::Lane;
use super::outbox::Outbox;
use super::state::{Answer, Connection, State};
use crate::device::Event;
use crate::error::{DeviceError, ErrorKind};

/// What carries the messages of a WebSocket, of which frames are made. The far end closes it by
/// dropping it.
pub struct Link {
    /// Bytes of a body that one frame carries at most. What is urgent waits for one frame, so this
    /// depends on how fast the line is.
    pub frame_bytes: usize,
    /// To the browser.
    pub outgoing: mpsc::Sender<Bytes>,
    /// From the browser. An error says how it broke the rules of what carries the frames, and
    /// ends the lane.
    pub incoming: mpsc::Receiver<Result<Bytes, String>>,
}

/// How long what was said last may take to leave.
const FAREWELL_LIMIT: std::time::Duration = std::time::Duration::from_secs(1);

/// A connection that counts as the lane's own from now on.
pub(super) struct Opened {
    number: u32,
    /// Tells when it has to end, and why.
    ended: watch::Receiver<Option<String>>,
}

/// Why a connection ended.
pub(super) enum End {
    /// The line: the lane may come back.
    Cut(String),
    /// The lane: it will not.
    Over { reason: String, kind: ErrorKind },
}

impl Lane {
    /// Serves a connection that was opened until it ends.
    pub(super) async fn serve(
        &self,
        mut link: Link,
        mut assembler: Assembler<FromLane>,
        Opened { number, mut ended }: Opened,
    ) {
        let (heard, listen) = watch::channel(Instant::now());
        let end = tokio::select! {
            end = self.read(number, &mut link.incoming, &mut assembler, &heard) => end,
            end = self.write(number, &link.outgoing) => end,
            end = self.beat(listen) => end,
            Ok(reason) = ended.wait_for(Option::is_some) => {
                End::Cut(reason.clone().unwrap_or_default())
            }
        };
        if let End::Over { reason, kind: ErrorKind::Protocol } = &end {
            self.dismiss(reason);
        }
        // What was put into the outbox last, such as a farewell, still goes out.
        let farewell = async {
            while let Some(frame) = self.next_frame(number) {
                if send(&link.outgoing, frame).await.is_err() {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(FAREWELL_LIMIT, farewell).await;
        drop(link);
        match end {
            End::Cut(reason) => self.cut(number, reason).await,
            End::Over { reason, kind } => {
                // What an old connection says does not end one that took over.
                self.end_if(&reason, kind, |state| state.is_current(number));
            }
        }
    }

    /// Tells a lane that broke the protocol not to come back.
    pub(super) fn dismiss(&self, reason: &str) {
        let leave = ToLane::Leave { reason: reason.to_owned(), come_back: false };
        // A sentence always fits.
        let _ = self.state().outbox.push_control(&leave);
        self.shared.outgoing.notify_one();
    }

    /// Counts the lane as gone and answers everyone who waits.
    pub(super) fn end(&self, reason: &str, kind: ErrorKind) {
        self.end_if(reason, kind, |_| true);
    }

    fn end_if(&self, reason: &str, kind: ErrorKind, still: impl FnOnce(&State) -> bool) {
        let pending = {
            let mut state = self.state();
            if matches!(state.connection, Connection::Gone { .. }) || !still(&state) {
                return;
            }
            let gone = Connection::Gone { reason: reason.to_owned(), kind };
            let before = std::mem::replace(&mut state.connection, gone);
            if let Connection::Up { end, .. } = before {
                end.send_replace(Some(reason.to_owned()));
            }
            state.lose(reason);
            state.blobs.clear();
            std::mem::take(&mut state.pending)
        };
        for (_, waiting) in pending {
            let message = format!("the lane is gone: {reason}");
            let _ = waiting.answer.send(Err(DeviceError::new(kind, message)));
        }
        self.emit(Event::Gone { reason: reason.to_owned() });
    }

    /// Takes a connection up: greets, and asks again what the lane does not know of.
    pub(super) fn open(&self, resume: Option<&Resume>, frame_bytes: usize) -> Opened {
        let shared = &self.shared;
        let mut state = self.state();
        state.diagnostics.connections += 1;
        let number = state.diagnostics.connections;
        let (end, ended) = watch::channel(None);
        let before = std::mem::replace(&mut state.connection, Connection::Up { number, end });
        match before {
            // The browser noticed the cut before this side did.
            Connection::Up { end, .. } => {
                drop(end.send_replace(Some("it was replaced".to_owned())))
            }
            Connection::Down { since } => state.diagnostics.away += since.elapsed(),
            gone @ Connection::Gone { .. } => {
                state.connection = gone;
                let ended = watch::channel(Some("the lane is gone".to_owned())).1;
                return Opened { number, ended };
            }
        }
        state.outbox = Outbox::new(frame_bytes);
        let welcome = ToLane::Welcome(Welcome {
            session: shared.session.clone(),
            resumed: resume.is_some(),
            name: super::lock(&shared.info).name.clone(),
            blob_key: shared.blob_key.clone(),
            cache_limit_bytes: shared.options.cache_bytes,
            tensor_limit_bytes: shared.options.tensor_bytes,
            frame_bytes: frame_bytes as u64,
            heartbeat_ms: shared.options.heartbeat.as_millis() as u64,
        });
        // All of this was within the limits when it was asked first.
        let _ = state.outbox.push_control(&welcome);
        let known = resume.map_or(&[][..], |resume| &resume.requests);
        for request in known
            .iter()
            .filter(|request| !state.pending.contains_key(request))
            .copied()
            .collect::<Vec<_>>()
        {
            let _ = state.outbox.push_control(&ToLane::Cancel { request });
        }
        // The lane sends the parts of what is not done again, from the first.
        state.pending.values_mut().for_each(|pending| pending.parts.clear());
        let again: Vec<_> = state
            .pending
            .iter()
            .filter(|(request, _)| !known.contains(request))
            .map(|(request, pending)| (*request, pending.message_now(), pending.body.clone()))
            .collect();
        for (request, message, body) in again {
            let _ = state.outbox.push_request(request, &message, &body);
        }
        // What the lane does not know of it will not do.
        state.abandoned.retain(|request, _| known.contains(request));
        drop(state);
        shared.outgoing.notify_one();
        if resume.is_some() {
            self.emit(Event::Reconnected);
        }
        Opened { number, ended }
    }

    /// After a cut: waits for the lane to come back, and lets it go if it does not.
    async fn cut(&self, number: u32, reason: String) {
        {
            let mut state = self.state();
            // Another connection may have taken over.
            if !matches!(&state.connection, Connection::Up { number: current, .. } if *current == number)
            {
                return;
            }
            state.connection = Connection::Down { since: Instant::now() };
            state.diagnostics.last_cut = Some(reason.clone());
        }
        self.emit(Event::Disconnected { reason: reason.clone() });
        tokio::time::sleep(self.shared.options.grace).await;
        let grace = self.shared.options.grace.as_secs_f64();
        let reason =
            format!("its connection was cut ({reason}) and did not come back within {grace} s");
        self.end_if(&reason, ErrorKind::StateLost, |state| {
            matches!(state.connection, Connection::Down { .. }) && state.is_current(number)
        });
    }

    /// The next frame for a connection; none if another one took over, whose frames they are.
    fn next_frame(&self, connection: u32) -> Option<Frame> {
        let mut state = self.state();
        if state.is_current(connection) { state.outbox.next_frame() } else { None }
    }

    async fn write(&self, number: u32, outgoing: &mpsc::Sender<Bytes>) -> End {
        loop {
            let woken = self.shared.outgoing.notified();
            if !self.state().is_current(number) {
                // It was the other connection that was to be woken.
                self.shared.outgoing.notify_one();
                return End::Cut("it was replaced".to_owned());
            }
            let frame = self.next_frame(number);
            match frame {
                Some(frame) => {
                    let bytes = frame.byte_len() as u64;
                    if send(outgoing, frame).await.is_err() {
                        return End::Cut("the socket closed".to_owned());
                    }
                    self.state().diagnostics.sent_bytes += bytes;
                    // So that it leaves while the next one is put together.
                    tokio::task::yield_now().await;
                }
                None => woken.await,
            }
        }
    }

    /// Pings, and ends the connection when nothing was heard for long.
    async fn beat(&self, heard: watch::Receiver<Instant>) -> End {
        let interval = self.shared.options.heartbeat;
        let mut beats = tokio::time::interval(interval);
        beats.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            beats.tick().await;
            let silent = heard.borrow().elapsed();
            if silent > interval * 3 {
                return End::Cut(format!("nothing was heard for {:.0} s", silent.as_secs_f64()));
            }
            let nonce = self.nanoseconds();
            // A number always fits.
            let _ = self.state().outbox.push_control(&ToLane::Ping { nonce });
            self.shared.outgoing.notify_one();
        }
    }

    async fn read(
        &self,
        number: u32,
        incoming: &mut mpsc::Receiver<Result<Bytes, String>>,
        assembler: &mut Assembler<FromLane>,
        heard: &watch::Sender<Instant>,
    ) -> End {
        while let Some(frame) = incoming.recv().await {
            let frame = match frame {
                Ok(frame) => frame,
                Err(how) => return broken(how),
            };
            heard.send_replace(Instant::now());
            self.state().diagnostics.received_bytes += frame.len() as u64;
            let message = match assembler.push(frame) {
                Ok(None) => continue,
                Ok(Some((message, body))) => self.hear(number, message, body),
                Err(error) => Err(broken(error.to_string())),
            };
            if let Err(end) = message {
                return end;
            }
        }
        End::Cut("the socket closed".to_owned())
    }

    fn hear(&self, number: u32, message: FromLane, body: Bytes) -> Result<(), End> {
        if !self.state().is_current(number) {
            return Err(End::Cut("it was replaced".to_owned()));
        }
        let request = match &message {
            FromLane::Hello(_) => return Err(broken("a second hello".to_owned())),
            FromLane::Pong { nonce } => {
                let took = self.nanoseconds().saturating_sub(*nonce);
                self.state().diagnostics.round_trip = Some(std::time::Duration::from_nanos(took));
                return Ok(());
            }
            FromLane::Power { power } => {
                self.note_power(*power);
                return Ok(());
            }
            FromLane::Lost { reason } => {
                let mut state = self.state();
                state.lose(reason);
                state.diagnostics.engine_restarts += 1;
                drop(state);
                self.emit(Event::Lost { reason: reason.clone() });
                return Ok(());
            }
            FromLane::Bye { reason } => {
                return Err(End::Over { reason: reason.clone(), kind: ErrorKind::StateLost });
            }
            FromLane::Error { request: None, message, .. } => {
                self.state().diagnostics.last_complaint = Some(message.clone());
                return Ok(());
            }
            FromLane::Progress { request, phase, done_bytes, .. } => {
                if let Some(pending) = self.state().pending.get(request)
                    && matches!(pending.message, ToLane::Load { .. })
                {
                    // The same again is no progress.
                    let far = Some((*phase, *done_bytes));
                    pending.progress.send_if_modified(|last| {
                        let moved = last.1 != far;
                        if moved {
                            *last = (Instant::now(), far);
                        }
                        moved
                    });
                }
                return Ok(());
            }
            FromLane::Error { request: Some(request), .. }
            | FromLane::Loaded { request, .. }
            | FromLane::Done { request }
            | FromLane::Tensor { request, .. }
            | FromLane::Part { request, .. }
            | FromLane::Outcome { request, .. }
            | FromLane::Stats { request, .. } => *request,
        };
        self.answered(request, message, body)
    }

    /// Gives an answer to whoever waits for it.
    pub(super) fn answered(&self, request: u64, message: FromLane, body: Bytes) -> Result<(), End> {
        let mut state = self.state();
        if request >= state.next_request || request == 0 {
            return Err(broken(format!("an answer to request {request}, which nobody made")));
        }
        let Some(pending) = state.pending.get_mut(&request) else {
            // It was given up in the meantime.
            if !matches!(message, FromLane::Part { .. }) {
                state.diagnostics.late_answers += 1;
                state.outbox.acknowledge(request);
                let abandoned = state.abandoned.remove(&request);
                if let Some(effect) = abandoned
                    && !matches!(message, FromLane::Error { .. })
                {
                    state.undo(effect);
                }
                drop(state);
                self.shared.outgoing.notify_one();
            }
            return Ok(());
        };
        if let FromLane::Part { outputs, .. } = message {
            let ToLane::Run { steps, .. } = &pending.message else {
                return Err(broken(format!("a part of request {request}, which is no run")));
            };
            let early = steps.iter().filter(|step| step.early).count();
            if pending.parts.len() >= early {
                return Err(broken(format!("more than {early} parts of request {request}")));
            }
            pending.parts.push((outputs, body));
            return Ok(());
        }
        if !pending.is_answered_by(&message) {
            return Err(broken(format!("request {request} got the answer to another question")));
        }
        let kept = match pending.effect.kept(&message) {
            Ok(kept) => kept,
            Err(lie) => return Err(broken(lie)),
        };
        let Some(pending) = state.pending.remove(&request) else { return Ok(()) };
        state.outbox.acknowledge(request);
        let answer = match message {
            FromLane::Error { kind, message, .. } => {
                let kind = error_kind(kind);
                match kind {
                    ErrorKind::StateLost => state.forget(&pending.effect),
                    // A session that failed on a GPU is given up by the lane's engine.
                    ErrorKind::Device | ErrorKind::Memory if self.backend() != Backend::Wasm => {
                        state.forget_segments(&pending.effect);
                        state.diagnostics.last_loss = Some(message.clone());
                    }
                    _ => {}
                }
                Err(DeviceError::new(kind, message))
            }
            message => {
                let ids = kept.iter().map(|tensor| &tensor.id);
                let new = ids.filter(|id| !state.tensors.contains_key(id)).cloned().collect();
                let new_weight_bytes = state.apply(pending.effect, &message, &kept);
                Ok(Answer { message, body, parts: pending.parts, new_weight_bytes, kept, new })
            }
        };
        drop(state);
        self.shared.outgoing.notify_one();
        let _ = pending.answer.send(answer);
        Ok(())
    }

    /// A clock for pings.
    fn nanoseconds(&self) -> u64 {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

async fn send(
    outgoing: &mpsc::Sender<Bytes>,
    frame: Frame,
) -> Result<(), mpsc::error::SendError<Bytes>> {
    for bytes in frame {
        outgoing.send(bytes).await?;
    }
    Ok(())
}

fn broken(how: String) -> End {
    let reason = format!("it broke the protocol: {how}");
    End::Over { reason, kind: ErrorKind::Protocol }
}

fn error_kind(kind: holdfast_wire::ErrorKind) -> ErrorKind {
    use holdfast_wire::ErrorKind as Wire;
    match kind {
        Wire::Caller => ErrorKind::Caller,
        Wire::Device => ErrorKind::Device,
        Wire::Timeout => ErrorKind::Timeout,
        Wire::Memory => ErrorKind::Memory,
        Wire::Cancelled => ErrorKind::Cancelled,
        Wire::Busy => ErrorKind::Busy,
        Wire::StateLost => ErrorKind::StateLost,
        Wire::Protocol => ErrorKind::Protocol,
    }
}
