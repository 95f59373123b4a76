//! What is known about a lane on this side of the socket.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_graph::{Digest, Value};
use holdfast_wire::{FRAME_BODY_LIMIT, FromLane, LoadPhase, OutputTensor, ToLane};
use tokio::sync::{oneshot, watch};

use super::diagnostics::Diagnostics;
use super::effect::Effect;
use super::outbox::Outbox;
use super::timeouts::Slowest;
use crate::error::{DeviceError, ErrorKind};
use crate::program::{KeptTensor, TensorId};
use crate::segment::{ModelKind, SegmentId};

pub(crate) struct State {
    pub(crate) next_request: u64,
    /// Requests without an answer. They outlive connections.
    pub(crate) pending: BTreeMap<u64, Pending>,
    /// What requests that were given up would have changed, until they are answered late.
    pub(crate) abandoned: HashMap<u64, Effect>,
    /// What goes out on the present connection.
    pub(crate) outbox: Outbox,
    pub(crate) connection: Connection,
    pub(crate) segments: HashMap<SegmentId, LoadedSegment>,
    /// What was there before the engine was replaced, so that whoever asks for it learns why it
    /// is gone. Cleared by loading it again.
    pub(crate) lost_segments: HashSet<SegmentId>,
    /// Tensors that the lane keeps, and their bytes.
    pub(crate) tensors: HashMap<TensorId, u64>,
    pub(crate) lost_tensors: HashSet<TensorId>,
    /// The blobs that the lane may fetch, by how many loads and segments need them.
    pub(crate) blobs: HashMap<Digest, usize>,
    pub(crate) diagnostics: Diagnostics,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
}

/// Whether the lane can be heard.
pub(crate) enum Connection {
    /// It can. The number tells connections apart; the switch ends this one.
    Up { number: u32, end: watch::Sender<Option<String>> },
    /// It was cut; it may come back.
    Down { since: Instant },
    /// It will not come back.
    Gone { reason: String, kind: ErrorKind },
}

/// A segment that the lane has.
pub(crate) struct LoadedSegment {
    pub(crate) inputs: Vec<Value>,
    pub(crate) outputs: Vec<Value>,
    pub(crate) blobs: Vec<(Digest, u64)>,
    pub(crate) kind: ModelKind,
    pub(crate) placement: Option<String>,
    pub(crate) slowest: Option<Slowest>,
}

/// When there was progress last, and how far it was.
pub(crate) type Progress = (Instant, Option<(LoadPhase, u64)>);

/// A request without an answer.
pub(crate) struct Pending {
    pub(crate) message: ToLane,
    pub(crate) body: Vec<Bytes>,
    /// By when the answer has to be there, unless there is progress.
    pub(crate) deadline: Instant,
    /// How long it may take by itself, which those behind it have to wait.
    pub(crate) patience: Duration,
    pub(crate) effect: Effect,
    pub(crate) parts: Vec<(Vec<OutputTensor>, Bytes)>,
    pub(crate) progress: watch::Sender<Progress>,
    pub(crate) answer: oneshot::Sender<Result<Answer, DeviceError>>,
}

/// What a lane answered.
pub(crate) struct Answer {
    pub(crate) message: FromLane,
    pub(crate) body: Bytes,
    pub(crate) parts: Vec<(Vec<OutputTensor>, Bytes)>,
    /// Bytes of weights that no segment loaded before had brought along.
    pub(crate) new_weight_bytes: u64,
    /// What the lane keeps of a run.
    pub(crate) kept: Vec<KeptTensor>,
    /// What of that it had not kept before.
    pub(crate) new: Vec<TensorId>,
}

impl Pending {
    /// The message as it has to be sent now: with the time that is left.
    pub(crate) fn message_now(&self) -> ToLane {
        let mut message = self.message.clone();
        if let ToLane::Run { deadline_ms, .. } = &mut message {
            let left = self.deadline.saturating_duration_since(Instant::now());
            // Rounded up: a lane that ended it before its time would count as one that hung.
            *deadline_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        }
        message
    }

    /// Whether this is a right answer to the request.
    pub(crate) fn is_answered_by(&self, message: &FromLane) -> bool {
        matches!(
            (&self.message, message),
            (_, FromLane::Error { .. })
                | (ToLane::Load { .. }, FromLane::Loaded { .. })
                | (
                    ToLane::Unload { .. }
                        | ToLane::Put { .. }
                        | ToLane::Copy { .. }
                        | ToLane::Drop { .. },
                    FromLane::Done { .. }
                )
                | (ToLane::Get { .. }, FromLane::Tensor { .. })
                | (ToLane::Run { .. }, FromLane::Outcome { .. })
                | (ToLane::Stats { .. }, FromLane::Stats { .. })
        )
    }
}

impl State {
    pub(crate) fn new() -> State {
        State {
            next_request: 1,
            pending: BTreeMap::new(),
            abandoned: HashMap::new(),
            outbox: Outbox::new(FRAME_BODY_LIMIT),
            connection: Connection::Down { since: Instant::now() },
            segments: HashMap::new(),
            lost_segments: HashSet::new(),
            tensors: HashMap::new(),
            lost_tensors: HashSet::new(),
            blobs: HashMap::new(),
            diagnostics: Diagnostics::default(),
            succeeded: 0,
            failed: 0,
        }
    }

    /// Whether no other connection has taken over.
    pub(crate) fn is_current(&self, connection: u32) -> bool {
        self.diagnostics.connections == connection
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.connection, Connection::Up { .. })
    }

    /// Forgets what the lane had, and remembers that it had it.
    pub(crate) fn lose(&mut self, reason: &str) {
        // Only of the last loss: names may be new with every request.
        if !self.segments.is_empty() {
            let lost: Vec<_> = self.segments.drain().collect();
            self.lost_segments = lost.iter().map(|(id, _)| *id).collect();
            let blobs = lost.iter().flat_map(|(_, segment)| &segment.blobs);
            self.forbid(blobs.map(|(digest, _)| *digest).collect());
        }
        if !self.tensors.is_empty() {
            self.lost_tensors = self.tensors.drain().map(|(id, _)| id).collect();
        }
        self.abandoned.clear();
        self.diagnostics.last_loss = Some(reason.to_owned());
    }

    /// Forgets a segment. Whether it was there.
    pub(crate) fn let_go(&mut self, id: SegmentId) -> bool {
        let Some(segment) = self.segments.remove(&id) else { return false };
        self.forbid(segment.blobs.iter().map(|(digest, _)| *digest).collect());
        true
    }

    /// How long those before a new request may take.
    pub(crate) fn wait(&self) -> Duration {
        let patience = self.pending.values().map(|pending| pending.patience);
        patience.fold(Duration::ZERO, Duration::saturating_add)
    }

    pub(crate) fn allow(&mut self, digests: Vec<Digest>) {
        for digest in digests {
            *self.blobs.entry(digest).or_default() += 1;
        }
    }

    pub(crate) fn forbid(&mut self, digests: Vec<Digest>) {
        for digest in digests {
            if let Some(count) = self.blobs.get_mut(&digest) {
                *count -= 1;
                if *count == 0 {
                    self.blobs.remove(&digest);
                }
            }
        }
    }
}
