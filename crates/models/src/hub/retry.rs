//! When to ask again after a failure that may pass, and when to give up.

use std::fmt;
use std::time::Duration;

use super::error::HubError;

/// How often and how patiently a request is repeated.
pub struct Retry {
    /// How many failures in a row are borne. A failure that came after new bytes starts the count
    /// anew, so that a large file comes through a bad line.
    pub failure_limit: u32,
    /// Waits. Tests give something faster than sleeping.
    pub wait: Box<dyn Fn(Duration) + Send + Sync>,
}

impl Default for Retry {
    /// Gives up after the sixth failure in a row, about half a minute after the first.
    fn default() -> Retry {
        Retry { failure_limit: 6, wait: Box::new(std::thread::sleep) }
    }
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry").field("failure_limit", &self.failure_limit).finish_non_exhaustive()
    }
}

/// The failures of one request so far.
pub(super) struct Failures<'a> {
    retry: &'a Retry,
    count: u32,
}

impl<'a> Failures<'a> {
    pub(super) fn none(retry: &'a Retry) -> Failures<'a> {
        Failures { retry, count: 0 }
    }

    /// There was progress: what failed before does not count any more.
    pub(super) fn forget(&mut self) {
        self.count = 0;
    }

    /// Waits for the next attempt, or gives the error back when there were enough.
    pub(super) fn bear(&mut self, error: HubError) -> Result<(), HubError> {
        self.count += 1;
        if self.count >= self.retry.failure_limit {
            return Err(error);
        }
        (self.retry.wait)(delay(self.count));
        Ok(())
    }
}

/// 1, 2, 4, 8, then 15 seconds.
fn delay(failure: u32) -> Duration {
    let seconds = 1_u64.checked_shl(failure.saturating_sub(1)).unwrap_or(u64::MAX);
    Duration::from_secs(seconds.min(15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_fifteen_seconds() {
        let seconds: Vec<u64> = (1..=7).map(|failure| delay(failure).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 15, 15, 15]);
        assert_eq!(delay(u32::MAX).as_secs(), 15);
    }

    #[test]
    fn gives_up_at_the_limit_but_not_when_there_was_progress() {
        let retry = Retry { failure_limit: 2, wait: Box::new(|_| ()) };
        let error = || HubError::NotFound { what: String::new(), host: String::new() };
        let mut failures = Failures::none(&retry);
        assert!(failures.bear(error()).is_ok());
        failures.forget();
        assert!(failures.bear(error()).is_ok());
        assert!(failures.bear(error()).is_err());
    }
}
