//! What is asked again when it failed, and when.

use std::future::Future;
use std::time::Duration;

use super::ask::given_up;
use crate::error::{DeviceError, ErrorKind};

/// How often each kind of operation is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// A load carries all that it needs, so it can be asked again when the engine was replaced.
    pub load: u32,
    /// A run is asked again only if the lane refused to take it; whoever called decides whether
    /// one that failed goes elsewhere.
    pub run: u32,
    /// A tensor to put carries all that it needs as well.
    pub transfer: u32,
}

impl Default for Retries {
    fn default() -> Retries {
        Retries { load: 3, run: 3, transfer: 3 }
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// The pause after so many failures in a row: 2ⁿ, at most 15 s.
pub(crate) fn pause(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LONGEST_PAUSE)
}

/// Tries up to `attempts` times, as long as the kind of the error says that it can help.
pub(crate) async fn retry<T, F: Future<Output = Result<T, DeviceError>>>(
    attempts: u32,
    can_help: fn(ErrorKind) -> bool,
    operation: impl FnMut() -> F,
) -> Result<T, DeviceError> {
    retry_until(std::future::pending(), attempts, can_help, operation).await
}

/// The same for what can be cancelled: `cancelled` also ends a pause, after which nothing is tried.
pub(crate) async fn retry_until<T, F: Future<Output = Result<T, DeviceError>>>(
    cancelled: impl Future<Output = ()>,
    attempts: u32,
    can_help: fn(ErrorKind) -> bool,
    mut operation: impl FnMut() -> F,
) -> Result<T, DeviceError> {
    tokio::pin!(cancelled);
    let mut failures = 0;
    loop {
        match operation().await {
            Err(error) if failures + 1 < attempts && can_help(error.kind()) => {
                failures += 1;
                tokio::select! {
                    () = tokio::time::sleep(pause(failures)) => {}
                    () = &mut cancelled => return Err(given_up(ErrorKind::Cancelled)),
                }
            }
            result => return result,
        }
    }
}

/// For what carries all that it needs.
pub(crate) fn if_lost_or_busy(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Busy | ErrorKind::StateLost)
}

/// For what needs state on the device.
pub(crate) fn if_busy(kind: ErrorKind) -> bool {
    kind == ErrorKind::Busy
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn pauses_double_up_to_fifteen_seconds() {
        let pauses: Vec<u128> = (1..=10).map(|failures| pause(failures).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 12800, 15000, 15000]);
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
    }

    async fn attempts(kind: ErrorKind, succeed_at: u32) -> (u32, bool) {
        let count = Cell::new(0);
        let result = retry(3, if_lost_or_busy, || {
            count.set(count.get() + 1);
            let done = count.get() >= succeed_at;
            async move { if done { Ok(()) } else { Err(DeviceError::new(kind, "no")) } }
        })
        .await;
        (count.get(), result.is_ok())
    }

    #[tokio::test(start_paused = true)]
    async fn asks_again_only_where_that_can_help() {
        assert_eq!(attempts(ErrorKind::Busy, 3).await, (3, true));
        assert_eq!(attempts(ErrorKind::StateLost, 9).await, (3, false));
        assert_eq!(attempts(ErrorKind::Caller, 9).await, (1, false));
        assert_eq!(attempts(ErrorKind::Device, 9).await, (1, false));
    }
}
