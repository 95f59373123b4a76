//! What a request that waits is told.

use std::sync::Arc;
use std::time::Duration;

use holdfast_devices::{DeviceError, Loaded, SegmentId};
use tokio::time::Instant;

use super::Scheduler;
use super::fault::{Failed, Fault};
use super::member::{Host, MemberId};
use crate::program::{Answered, Kept, Ran, There};
use crate::route::Prepared;
use crate::values::Values;

/// What a request that waits is told.
pub(crate) enum Turn {
    /// It runs on its own, with this.
    Run(Lease),
    /// It ran with others.
    Ran { granted: Granted, rows: usize, result: Result<Answered, Failed> },
    /// The model cannot be had on this choice.
    Cannot(String),
    /// The model is wrong everywhere.
    Wrong(DeviceError),
    /// No device of this choice is left.
    Gone,
}

/// A slot of a device, with the model loaded.
#[derive(Clone)]
pub(crate) struct Granted {
    pub(crate) member: MemberId,
    pub(crate) device: Arc<dyn Host>,
    pub(crate) model: Arc<Prepared>,
    pub(crate) loaded: Arc<Loaded>,
    /// When the model's load began.
    pub(crate) load_began: Instant,
    /// Since when the model is there.
    pub(crate) loaded_at: Instant,
    /// How often the device had lost all that it had.
    pub(crate) losses: u64,
    /// Whether asking this device again would give the same.
    pub(crate) steady: bool,
    /// When the request's turn came.
    pub(crate) at: Instant,
    /// How many slots were ever given, this one included.
    pub(crate) number: u64,
    /// Whether no other slot was in use then.
    pub(crate) first: bool,
    /// What the request computes on its way, where other models may need that too.
    pub(crate) values: Option<Arc<Values>>,
    /// What of it the device has; it is kept there until the slot is given back.
    pub(crate) there: Arc<There>,
}

impl Granted {
    /// How much counts for a deadline of what has passed since a request was put in.
    pub(crate) fn counted(&self, since: Instant, now: Instant) -> Duration {
        counted(since, now, Some((self.load_began, self.loaded_at)))
    }
}

/// What counts for a deadline of the time between two moments: all but that in which the model was
/// loaded.
pub(crate) fn counted(since: Instant, now: Instant, load: Option<(Instant, Instant)>) -> Duration {
    let loading = load.map_or(Duration::ZERO, |(began, ended)| {
        ended.min(now).saturating_duration_since(began.max(since))
    });
    now.saturating_duration_since(since).saturating_sub(loading)
}

/// How a slot was used.
#[derive(Debug)]
pub(crate) enum Used {
    /// So many requests were answered.
    Well {
        requests: usize,
        /// How long the engine took for each segment.
        steps: Vec<(SegmentId, Duration)>,
        /// How long the way there and back took, where it was the way of these requests alone.
        transfer: Option<Duration>,
    },
    /// The device failed.
    Badly(Fault),
    /// It says nothing about the device.
    NotToSay,
}

impl Used {
    /// Requests for one model were answered by a program.
    pub(crate) fn well(requests: usize, ran: Ran) -> Used {
        Used::Well { requests, steps: ran.steps, transfer: Some(ran.transfer) }
    }

    /// A request was answered by a program that served others too, with these times for it to tell.
    pub(crate) fn among_others(steps: Vec<(SegmentId, Duration)>) -> Used {
        Used::Well { requests: 1, steps, transfer: None }
    }
}

/// A slot that is held. It is free again when this goes.
pub(crate) struct Lease {
    pub(crate) granted: Granted,
    pub(crate) used: Used,
    /// What the device has kept, whatever became of the request.
    pub(crate) kept: Vec<Kept>,
    scheduler: Scheduler,
}

impl Lease {
    pub(crate) fn new(scheduler: Scheduler, granted: Granted) -> Lease {
        Lease { granted, used: Used::NotToSay, kept: Vec::new(), scheduler }
    }

    /// Notes that a run failed. What it was that failed decides what it says about the device: one
    /// that cannot do this may be fine for everything else.
    pub(crate) fn failed(&mut self, error: DeviceError) -> Failed {
        let fault = self.scheduler.state().fault(&self.granted, error.kind());
        self.used = match fault {
            Fault::Caller | Fault::Refused => Used::NotToSay,
            // What fails there fails there again, whenever it is asked.
            _ if self.granted.steady => Used::NotToSay,
            Fault::Busy | Fault::NotBegun | Fault::Lost => Used::Badly(fault),
        };
        Failed { error, fault }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let used = std::mem::replace(&mut self.used, Used::NotToSay);
        self.scheduler.release(&self.granted, used, &self.kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_counts_but_the_load() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let cases = [
            ("it was never loaded", None, 10),
            ("it was there before", Some((0, 4)), 10),
            ("it came in the midst of the load", Some((0, 12)), 8),
            ("it waited for the load to begin", Some((13, 17)), 6),
            ("the load goes on", Some((13, 25)), 3),
            ("it was loaded later", Some((21, 25)), 10),
        ];
        for (what, load, expected) in cases {
            let load = load.map(|(began, ended)| (at(began), at(ended)));
            assert_eq!(counted(at(10), at(20), load).as_secs(), expected, "{what}");
        }
    }
}
