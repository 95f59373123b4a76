//! Programs under way, by the names that their callers gave them, so that one can be cancelled at
//! any time: while the lane has it, and in the pause before a lane that was busy is asked again.

use std::collections::hash_map;

use tokio::sync::watch;

use super::ask::{Asked, given_up};
use super::{Lane, lock};
use crate::error::{DeviceError, ErrorKind};
use crate::program::RequestId;

/// What is known of a program by its name.
pub(crate) struct Entry {
    /// The request that the lane was asked last; none before the first.
    asked: Option<u64>,
    cancelled: watch::Sender<bool>,
}

/// A program under way. However it ends, its name is free again.
pub(super) struct Underway<'a> {
    lane: &'a Lane,
    name: &'a RequestId,
    cancelled: watch::Receiver<bool>,
}

impl<'a> Underway<'a> {
    /// Takes a name, unless it is taken.
    pub(super) fn enter(lane: &'a Lane, name: &'a RequestId) -> Result<Underway<'a>, DeviceError> {
        let (sender, cancelled) = watch::channel(false);
        match lock(&lane.shared.running).entry(name.clone()) {
            hash_map::Entry::Vacant(place) => {
                place.insert(Entry { asked: None, cancelled: sender });
                Ok(Underway { lane, name, cancelled })
            }
            hash_map::Entry::Occupied(_) => {
                Err(DeviceError::caller(format!("request `{name}` is running already")))
            }
        }
    }

    /// Asks the lane, unless the program was cancelled.
    pub(super) fn ask<'b>(
        &self,
        post: impl FnOnce() -> Result<Asked<'b>, DeviceError>,
    ) -> Result<Asked<'b>, DeviceError> {
        // Held all the while: whoever cancels either comes first or finds the request.
        let mut running = lock(&self.lane.shared.running);
        if *self.cancelled.borrow() {
            return Err(given_up(ErrorKind::Cancelled));
        }
        let asked = post()?;
        if let Some(entry) = running.get_mut(self.name) {
            entry.asked = Some(asked.request());
        }
        Ok(asked)
    }

    /// Waits until it is cancelled.
    pub(super) async fn cancelled(&self) {
        // The sender is there for as long as the name is taken.
        let _ = self.cancelled.clone().wait_for(|cancelled| *cancelled).await;
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        lock(&self.lane.shared.running).remove(self.name);
    }
}

impl Lane {
    /// Ends the program of this name; `false` if there is none.
    pub(super) fn cancel_program(&self, name: &RequestId) -> bool {
        let asked = {
            let running = lock(&self.shared.running);
            let Some(entry) = running.get(name) else { return false };
            entry.cancelled.send_replace(true);
            entry.asked
        };
        if let Some(request) = asked {
            self.give_up(request, ErrorKind::Cancelled);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{LaneOptions, tests};
    use super::*;
    use crate::device::Device;
    use crate::program::Program;

    /// A lane that was not heard of yet, with room for so many requests.
    fn lane(folder: &std::path::Path, queue: usize) -> Lane {
        tests::lane(folder, LaneOptions { queue, ..LaneOptions::default() })
    }

    fn program() -> Program {
        tests::program(Some(Duration::from_secs(60)))
    }

    async fn kind(run: impl Future<Output = Result<crate::Outcome, DeviceError>>) -> ErrorKind {
        run.await.unwrap_err().kind()
    }

    /// Within the first pause, or while the lane has it.
    const SOON: Duration = Duration::from_millis(50);

    #[tokio::test(start_paused = true)]
    async fn a_program_is_cancelled_while_the_lane_has_it_and_while_it_waits_to_be_asked_again() {
        let folder = tempfile::tempdir().unwrap();
        for queue in [1, 0] {
            let lane = lane(folder.path(), queue);
            let name = program().request;
            let started = tokio::time::Instant::now();
            let cancel = async {
                tokio::time::sleep(SOON).await;
                assert_eq!(lane.in_flight(), queue);
                assert!(lane.cancel(&name));
            };
            let (kind, ()) = tokio::join!(kind(lane.run(program())), cancel);
            assert_eq!(kind, ErrorKind::Cancelled, "room for {queue}");
            assert!(started.elapsed() < 2 * SOON, "at once, not after a pause");
            assert_eq!(lane.in_flight(), 0);
            assert!(!lane.cancel(&name), "it has ended");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_cancelled_is_asked_again_and_keeps_its_name_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let lane = lane(folder.path(), 0);
        let started = tokio::time::Instant::now();
        let other = async {
            tokio::time::sleep(SOON).await;
            assert!(!lane.cancel(&RequestId("another".to_owned())));
            kind(lane.run(program())).await
        };
        let (first, second) = tokio::join!(kind(lane.run(program())), other);
        assert_eq!((first, second), (ErrorKind::Busy, ErrorKind::Caller));
        assert!(started.elapsed() >= Duration::from_millis(100 + 200), "two pauses");
        // Now the name is free.
        assert_eq!(kind(lane.run(program())).await, ErrorKind::Busy);
    }
}
