//! What waits to be written: a bounded queue between those who record and the one who writes.
//!
//! Not a channel: whoever flushes has to know what became of records that were given before, and
//! hears of a failure at once instead of waiting behind it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdfast_predict::Record;

/// Records that wait, in the order in which they came.
pub(crate) struct Queue {
    /// Held for a few instructions only.
    state: Mutex<State>,
    /// Something changed for the writer.
    work: Condvar,
    /// Something changed for those who flush.
    progress: Condvar,
    limits: Limits,
}

/// How much waits, and how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Records that may wait.
    pub(crate) room: usize,
    /// Records that are written together.
    pub(crate) batch: usize,
    /// How long the first one of them waits for others.
    pub(crate) linger: Duration,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Record>,
    /// What the predictor knows. It may be large, and only the last one counts.
    predictor: Option<Record>,
    /// Since when the first one waits.
    since: Option<Instant>,
    /// Records that were taken in.
    accepted: u64,
    /// Those of them that are dealt with: written, or given up.
    settled: u64,
    /// How often writing failed, and why the last time.
    failures: u64,
    failure: String,
    /// How many wait for everything to be written.
    flushing: usize,
    /// Flushes so far, and how many of them there were at the last failure.
    flushes: u64,
    flushes_at_failure: u64,
    /// Nothing is taken in any more.
    ended: bool,
    /// Nobody writes any more.
    gone: bool,
}

impl State {
    /// Records that wait.
    fn count(&self) -> usize {
        self.waiting.len() + usize::from(self.predictor.is_some())
    }
}

impl Queue {
    pub(crate) fn new(limits: Limits) -> Queue {
        let (work, progress) = (Condvar::new(), Condvar::new());
        Queue { state: Mutex::default(), work, progress, limits }
    }

    /// Takes a record in, unless there is no room.
    pub(crate) fn push(&self, record: Record) -> bool {
        let mut state = self.lock();
        let is_full = state.waiting.len() >= self.limits.room;
        if state.ended || is_full && !matches!(record, Record::Predictor(_)) {
            return false;
        }
        match record {
            // It takes the place of the one that waits.
            Record::Predictor(_) => {
                state.accepted += u64::from(state.predictor.replace(record).is_none());
            }
            _ => {
                state.waiting.push_back(record);
                state.accepted += 1;
            }
        }
        if state.since.is_none() {
            state.since = Some(Instant::now());
        }
        let waiting = state.count();
        drop(state);
        // Waking someone takes longer than all of the above, so it is done only when it changes
        // something for the writer.
        if waiting == 1 || waiting == self.limits.batch {
            self.work.notify_one();
        }
        true
    }

    /// What is to be written next, as soon as that is worth a write; `None` when all is over.
    pub(crate) fn next(&self) -> Option<Vec<Record>> {
        let mut state = self.lock();
        loop {
            let waiting = state.count();
            let hurry = state.ended || state.flushing > 0;
            let waited = state.since.map_or(Duration::ZERO, |since| since.elapsed());
            if waiting == 0 && state.ended {
                return None;
            }
            if waiting >= self.limits.batch
                || waiting > 0 && (hurry || waited >= self.limits.linger)
            {
                let predictor = state.predictor.take();
                let count = state.waiting.len().min(self.limits.batch);
                let batch = state.waiting.drain(..count).chain(predictor).collect();
                state.since = (!state.waiting.is_empty()).then(Instant::now);
                return Some(batch);
            }
            state = match waiting {
                0 => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
                _ => {
                    let rest = self.limits.linger.saturating_sub(waited);
                    let woken = self.work.wait_timeout(state, rest);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// So many records are dealt with.
    pub(crate) fn settle(&self, count: u64) {
        self.lock().settled += count;
        self.progress.notify_all();
    }

    /// Writing failed, and so many records are given up for that.
    pub(crate) fn fail(&self, why: &str, given_up: u64) {
        let mut state = self.lock();
        state.failures += 1;
        why.clone_into(&mut state.failure);
        state.flushes_at_failure = state.flushes;
        state.settled += given_up;
        drop(state);
        self.progress.notify_all();
    }

    /// Waits before the next try. Whoever flushes from now on, or ends it all, wants to know at
    /// once.
    pub(crate) fn back_off(&self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut state = self.lock();
        while !state.ended && state.flushes == state.flushes_at_failure {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                break;
            }
            let woken = self.work.wait_timeout(state, rest);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until all that was taken in before is dealt with; or tells why it could not be written.
    pub(crate) fn flush(&self) -> Result<(), String> {
        let mut state = self.lock();
        let (target, failures) = (state.accepted, state.failures);
        state.flushing += 1;
        state.flushes += 1;
        self.work.notify_one();
        while state.settled < target && state.failures == failures && !state.gone {
            state = self.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.flushing -= 1;
        if state.failures != failures {
            return Err(state.failure.clone());
        }
        match state.settled < target {
            true => Err("nobody writes it any more".to_owned()),
            false => Ok(()),
        }
    }

    /// Takes nothing in any more. What waits is still written.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.work.notify_one();
    }

    /// Whether nothing is taken in any more.
    pub(crate) fn is_ended(&self) -> bool {
        self.lock().ended
    }

    /// Nobody writes any more. Tells how many records still waited.
    pub(crate) fn leave(&self) -> u64 {
        let mut state = self.lock();
        (state.ended, state.gone) = (true, true);
        let left = state.count() as u64;
        state.waiting.clear();
        state.predictor = None;
        drop(state);
        self.progress.notify_all();
        left
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn queue(room: usize, batch: usize, linger: Duration) -> Queue {
        Queue::new(Limits { room, batch, linger })
    }

    fn record() -> Record {
        Record::Setting(Box::new(holdfast_predict::SettingChange {
            timestamp: std::time::SystemTime::UNIX_EPOCH,
            hardware_platform: String::new(),
            setting: String::new(),
            before: 0.0,
            after: 1.0,
            reason: String::new(),
        }))
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn what_finds_no_room_is_not_taken() {
        let queue = queue(2, 2, LONG);
        assert!(queue.push(record()) && queue.push(record()));
        assert!(!queue.push(record()));
        assert_eq!(queue.next().unwrap().len(), 2);
        assert!(queue.push(record()), "there is room again");
    }

    #[test]
    fn a_full_batch_does_not_wait_for_more() {
        let queue = queue(10, 2, LONG);
        (0..3).for_each(|_| assert!(queue.push(record())));
        assert_eq!(queue.next().unwrap().len(), 2);
        queue.end();
        assert_eq!(queue.next().unwrap().len(), 1, "what is left is written at the end");
        assert!(queue.next().is_none());
        assert!(!queue.push(record()), "then nothing is taken in");
    }

    #[test]
    fn only_the_last_predictor_waits_and_all_else_does() {
        let queue = queue(10, 5, Duration::ZERO);
        for content in ["first", "second", "third"] {
            assert!(queue.push(record()) && queue.push(Record::Predictor(content.to_owned())));
        }
        let batch = queue.next().unwrap();
        assert_eq!(batch.len(), 4);
        assert!(matches!(batch.last(), Some(Record::Predictor(content)) if content == "third"));
        queue.settle(4);
        assert_eq!(queue.flush(), Ok(()));
    }

    #[test]
    fn a_batch_that_is_not_full_waits_only_so_long() {
        let queue = queue(10, 5, Duration::from_millis(5));
        assert!(queue.push(record()));
        assert_eq!(queue.next().unwrap().len(), 1);
    }

    #[test]
    fn a_flush_returns_when_what_came_before_is_dealt_with() {
        let queue = Arc::new(queue(10, 5, LONG));
        assert!(queue.push(record()));
        let flushing = std::thread::spawn({
            let queue = queue.clone();
            move || queue.flush()
        });
        let batch = queue.next().unwrap();
        queue.settle(batch.len() as u64);
        assert_eq!(flushing.join().unwrap(), Ok(()));
        assert_eq!(queue.flush(), Ok(()), "there is nothing to wait for");
    }

    #[test]
    fn a_flush_hears_of_a_failure_at_once() {
        let queue = Arc::new(queue(10, 5, LONG));
        assert!(queue.push(record()));
        let flushing = std::thread::spawn({
            let queue = queue.clone();
            move || queue.flush()
        });
        queue.next().unwrap();
        queue.fail("the disk is full", 0);
        assert_eq!(flushing.join().unwrap(), Err("the disk is full".to_owned()));
    }

    #[test]
    fn a_flush_cuts_a_pause_short_and_one_that_heard_of_the_failure_does_not() {
        let queue = Arc::new(queue(10, 5, LONG));
        assert!(queue.push(record()));
        let flush = |queue: &Arc<Queue>| {
            let queue = queue.clone();
            std::thread::spawn(move || queue.flush())
        };
        let first = flush(&queue);
        let batch = queue.next().unwrap();
        queue.fail("held", 0);
        assert!(first.join().unwrap().is_err());
        let since = Instant::now();
        queue.back_off(Duration::from_millis(20));
        assert!(since.elapsed() >= Duration::from_millis(20));
        let second = flush(&queue);
        queue.back_off(LONG);
        queue.settle(batch.len() as u64);
        assert_eq!(second.join().unwrap(), Ok(()));
    }

    #[test]
    fn nobody_waits_for_a_writer_that_is_gone() {
        let queue = queue(10, 5, LONG);
        assert!(queue.push(record()));
        assert_eq!(queue.leave(), 1);
        assert!(queue.flush().is_err() && !queue.push(record()));
    }
}
