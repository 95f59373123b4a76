//! What became of one thing to start: how often it failed in a row, and until when it is left alone.

use std::time::Duration;

use holdfast_browsers::Installed;
use holdfast_wire::Backend;
use tokio::time::Instant;

use super::options::Source;
use super::started::Ended;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// How long something that was not there is taken not to be: a probe may have been slow, or a driver
/// busy.
const LACKS_FOR: Duration = Duration::from_secs(60);

/// How long what is no accelerator is taken not to be one. Requests that are left to Holdfast have
/// somewhere else to go, so nothing is started for them just to look again.
const PLAIN_FOR: Duration = Duration::from_secs(3600);

/// What is known of one thing to start.
pub(super) struct Record {
    pub(super) source: Source,
    /// What was found, so that it is looked for once.
    pub(super) installed: Option<Installed>,
    /// Backends that the last browser of it did not have, and why; and when it joined.
    lacks: Option<(Instant, Vec<(Backend, String)>)>,
    /// Backends that are no accelerators, why, and when that was measured.
    plain: Vec<(Backend, String, Instant)>,
    failures: u32,
    failing: Option<(Instant, String)>,
}

impl Record {
    pub(super) fn new(source: Source) -> Record {
        let (lacks, plain, failing) = Default::default();
        Record { source, installed: None, lacks, plain, failures: 0, failing }
    }

    /// A browser of it has joined, without these backends.
    pub(super) fn joined(&mut self, lacks: Vec<(Backend, String)>, now: Instant) {
        self.lacks = Some((now, lacks));
    }

    /// Backends that it does not have, and why.
    pub(super) fn lacks(&self, now: Instant) -> &[(Backend, String)] {
        self.lacked(LACKS_FOR, now)
    }

    fn lacked(&self, within: Duration, now: Instant) -> &[(Backend, String)] {
        self.lacks.as_ref().filter(|(at, _)| now - *at < within).map_or(&[], |(_, lacks)| lacks)
    }

    /// A lane of it was measured; if it is no accelerator, with the reason.
    pub(super) fn measured(&mut self, backend: Backend, plain: Option<String>, now: Instant) {
        self.plain.retain(|(known, _, _)| *known != backend);
        self.plain.extend(plain.map(|reason| (backend, reason, now)));
    }

    /// Backends that are no accelerators there, and why: what is not there is none either.
    pub(super) fn plain(&self, now: Instant) -> Vec<(Backend, String)> {
        let measured = self.plain.iter().filter(|(_, _, at)| now - *at < PLAIN_FOR);
        let measured = measured.map(|(backend, reason, _)| (*backend, reason.clone()));
        measured.chain(self.lacked(PLAIN_FOR, now).iter().cloned()).collect()
    }

    /// A lane of it answered a request.
    pub(super) fn worked(&mut self) {
        self.failures = 0;
        self.failing = None;
    }

    /// Takes note of how a browser of it ended.
    pub(super) fn ended(&mut self, ended: Ended, now: Instant) {
        match ended {
            Ended::AsTold(_) => {}
            Ended::NeverJoined(reason) => self.failed(reason, false, now),
            Ended::Failed { reason, worked } => {
                if worked {
                    self.worked();
                }
                self.failed(reason, true, now);
            }
            // It has done its part.
            Ended::Full { worked: true, .. } => self.worked(),
            // The next one would be full as soon, for instance because of a limit below what it
            // takes with nothing to do.
            Ended::Full { reason, worked: false } => self.failed(reason, true, now),
        }
    }

    /// It failed. One that had joined may be started again at once, the first time.
    fn failed(&mut self, reason: String, had_joined: bool, now: Instant) {
        self.failures += 1;
        let pause = pause(self.failures, had_joined);
        self.failing = (!pause.is_zero()).then(|| (now + pause, reason));
        if !had_joined {
            // It may have been replaced by another version, or removed.
            self.installed = None;
        }
    }

    /// Why it is left alone now, if it is.
    pub(super) fn failing(&self, now: Instant) -> Option<&str> {
        self.failing.as_ref().filter(|(until, _)| now < *until).map(|(_, reason)| reason.as_str())
    }
}

/// 2ⁿ, at most 15 s.
fn pause(failures: u32, had_joined: bool) -> Duration {
    let doublings = failures.saturating_sub(1 + u32::from(had_joined)).min(16);
    if failures <= u32::from(had_joined) {
        return Duration::ZERO;
    }
    FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit() {
        let seconds = |had_joined| (1..=7).map(move |n| pause(n, had_joined).as_secs());
        assert_eq!(seconds(false).collect::<Vec<_>>(), [1, 2, 4, 8, 15, 15, 15]);
        assert_eq!(seconds(true).collect::<Vec<_>>(), [0, 1, 2, 4, 8, 15, 15]);
        assert_eq!(pause(u32::MAX, false), LONGEST_PAUSE);
    }

    #[test]
    fn is_left_alone_for_as_long_as_the_pause_and_no_longer() {
        let now = Instant::now();
        let mut record = Record::new(Source::Best);
        assert_eq!(record.failing(now), None);
        record.failed("broken".to_owned(), false, now);
        assert_eq!(record.failing(now), Some("broken"));
        assert_eq!(record.failing(now + FIRST_PAUSE), None);
        record.failed("still".to_owned(), false, now + FIRST_PAUSE);
        assert_eq!(record.failing(now + 2 * FIRST_PAUSE), Some("still"));
    }

    #[test]
    fn a_passing_lack_passes_and_an_accelerator_is_not_looked_for_again_so_soon() {
        let now = Instant::now();
        let mut record = Record::new(Source::Best);
        let of = |found: &[(Backend, String)]| {
            found.iter().map(|(backend, _)| *backend).collect::<Vec<_>>()
        };
        record.joined(vec![(Backend::Webnn, "none".to_owned())], now);
        record.measured(Backend::Webgpu, Some("a processor".to_owned()), now);
        assert_eq!(of(record.lacks(now)), [Backend::Webnn]);
        let later = now + LACKS_FOR;
        assert_eq!(of(record.lacks(later)), []);
        assert_eq!(of(&record.plain(later)), [Backend::Webgpu, Backend::Webnn]);
        assert_eq!(of(&record.plain(now + PLAIN_FOR)), []);
        // The next browser of it may know better.
        record.joined(Vec::new(), later);
        record.measured(Backend::Webgpu, None, later);
        assert_eq!(of(&record.plain(later)), []);
    }

    #[test]
    fn one_that_is_full_before_it_did_anything_is_not_replaced_again_and_again() {
        let now = Instant::now();
        let mut record = Record::new(Source::Best);
        let full = |worked| Ended::Full { reason: "full".to_owned(), worked };
        for _ in 0..9 {
            record.ended(full(true), now);
            assert_eq!(record.failing(now), None);
        }
        record.ended(full(false), now);
        assert_eq!(record.failing(now), None, "once may be chance");
        record.ended(full(false), now);
        assert_eq!(record.failing(now), Some("full"));
        assert_eq!(record.failing(now + FIRST_PAUSE), None);
    }

    #[test]
    fn a_success_forgets_the_failures_and_a_failure_does_not() {
        let now = Instant::now();
        let mut record = Record::new(Source::Best);
        record.failed("once".to_owned(), true, now);
        assert_eq!(record.failing(now), None, "it is started again at once");
        record.failed("twice".to_owned(), true, now);
        assert_eq!(record.failing(now), Some("twice"));
        record.worked();
        assert_eq!(record.failing(now), None);
        record.failed("once more".to_owned(), true, now);
        assert_eq!(record.failing(now), None);
    }
}
