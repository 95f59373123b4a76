//! What is known about a lane on this side of the socket.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

use bytes::Bytes;
use holdfast_graph::{Digest, Value};
use holdfast_wire::{FromLane, OutputTensor, ToLane};
use tokio::sync::{oneshot, watch};

use super::diagnostics::Diagnostics;
use super::outbox::Outbox;
use super::timeouts::Slowest;
use crate::error::{DeviceError, ErrorKind};
use crate::program::TensorId;
use crate::segment::{ModelKind, SegmentId};

pub(crate) struct State {
    pub(crate) next_request: u64,
    /// Requests without an answer. They outlive connections.
    pub(crate) pending: BTreeMap<u64, Pending>,
    /// What goes out on the present connection.
    pub(crate) outbox: Outbox,
    pub(crate) connection: Connection,
    pub(crate) segments: HashMap<SegmentId, LoadedSegment>,
    /// What was there before the engine was replaced, so that whoever asks for it learns why it
    /// is gone. Cleared by loading it again.
    pub(crate) lost_segments: HashSet<SegmentId>,
    /// Tensors that the lane keeps.
    pub(crate) tensors: HashSet<TensorId>,
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

/// A request without an answer.
pub(crate) struct Pending {
    pub(crate) message: ToLane,
    pub(crate) body: Vec<Bytes>,
    /// By when the answer has to be there, for runs.
    pub(crate) deadline: Option<Instant>,
    pub(crate) parts: Vec<(Vec<OutputTensor>, Bytes)>,
    pub(crate) progress: watch::Sender<Instant>,
    pub(crate) answer: oneshot::Sender<Result<Answer, DeviceError>>,
}

/// What a lane answered.
pub(crate) struct Answer {
    pub(crate) message: FromLane,
    pub(crate) body: Bytes,
    pub(crate) parts: Vec<(Vec<OutputTensor>, Bytes)>,
}

impl Pending {
    /// The message as it has to be sent now: with the time that is left.
    pub(crate) fn message_now(&self) -> ToLane {
        let mut message = self.message.clone();
        if let (ToLane::Run { deadline_ms, .. }, Some(deadline)) = (&mut message, self.deadline) {
            let left = deadline.saturating_duration_since(Instant::now());
            *deadline_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
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
                    ToLane::Unload { .. } | ToLane::Put { .. } | ToLane::Drop { .. },
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
            outbox: Outbox::default(),
            connection: Connection::Down { since: Instant::now() },
            segments: HashMap::new(),
            lost_segments: HashSet::new(),
            tensors: HashSet::new(),
            lost_tensors: HashSet::new(),
            blobs: HashMap::new(),
            diagnostics: Diagnostics::default(),
            succeeded: 0,
            failed: 0,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.connection, Connection::Up { .. })
    }

    /// Forgets what the lane had, and remembers that it had it.
    pub(crate) fn lose(&mut self, reason: &str) {
        for (id, segment) in self.segments.drain() {
            for (digest, _) in segment.blobs {
                forbid(&mut self.blobs, digest);
            }
            self.lost_segments.insert(id);
        }
        // Only of the last loss: names of tensors may be new with every request.
        self.lost_tensors = self.tensors.drain().collect();
        self.diagnostics.engine_restarts += 1;
        self.diagnostics.last_loss = Some(reason.to_owned());
    }

    pub(crate) fn allow(&mut self, digests: impl IntoIterator<Item = Digest>) {
        for digest in digests {
            *self.blobs.entry(digest).or_default() += 1;
        }
    }

    pub(crate) fn forbid(&mut self, digests: impl IntoIterator<Item = Digest>) {
        for digest in digests {
            forbid(&mut self.blobs, digest);
        }
    }
}

fn forbid(blobs: &mut HashMap<Digest, usize>, digest: Digest) {
    if let Some(count) = blobs.get_mut(&digest) {
        *count -= 1;
        if *count == 0 {
            blobs.remove(&digest);
        }
    }
}
