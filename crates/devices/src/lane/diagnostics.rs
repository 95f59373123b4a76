//! What there is to know about a lane's connection when something is slow or breaks.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::ErrorKind;

/// An account of a lane, from its first hello on.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    /// Connections, the first included.
    pub connections: u32,
    /// Why the last one ended.
    pub last_cut: Option<String>,
    /// How long the lane was away in all.
    pub away: Duration,
    /// The last round trip of a ping.
    pub round_trip: Option<Duration>,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// How often the engine was replaced.
    pub engine_restarts: u32,
    /// Why it was replaced the last time.
    pub last_loss: Option<String>,
    /// What the lane complained of last, without a request that was the cause.
    pub last_complaint: Option<String>,
    /// Answers to requests that had been given up.
    pub late_answers: u64,
    /// By the name of the message.
    pub operations: BTreeMap<&'static str, Operation>,
}

/// An account of one kind of operation.
#[derive(Clone, Debug, Default)]
pub struct Operation {
    /// How many succeeded.
    pub succeeded: u64,
    /// How many failed, by kind.
    pub failed: Vec<(ErrorKind, u64)>,
    /// The time that those which succeeded took, in all.
    pub total: Duration,
    /// The slowest.
    pub slowest: Duration,
}

impl Operation {
    pub(crate) fn succeeded(&mut self, took: Duration) {
        self.succeeded += 1;
        self.total += took;
        self.slowest = self.slowest.max(took);
    }

    pub(crate) fn failed(&mut self, kind: ErrorKind) {
        match self.failed.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => self.failed.push((kind, 1)),
        }
    }
}
