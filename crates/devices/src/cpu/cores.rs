//! Which cores the programs that run at once compute on.
//!
//! A session has a caller and helpers, together as many threads as there are cores. One program at a
//! time has them all. Where several run at once, they would get into each other's way: a helper that
//! looks for work holds up the caller of another program. So each of them gets cores of its own for as
//! long as the others run. A helper that shares its caller's core finds nothing left to do, because
//! the caller takes whatever nobody has begun. How an operator is divided depends on the number of
//! threads, and not on where they run, so this changes no bits.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::thread::{self, ThreadId};

/// A program that takes less is over before it pays to move anybody.
const WORTH_IT: Duration = Duration::from_millis(2);

/// The cores of the machine, and who computes on them.
pub(crate) struct Cores {
    all: Vec<usize>,
    /// In the order of their cores.
    running: Mutex<Vec<Running>>,
}

/// The helpers of a session, and how long it took the last time.
#[derive(Default)]
pub(crate) struct Crew {
    helpers: Mutex<Vec<ThreadId>>,
    took_microseconds: AtomicU64,
}

struct Running {
    caller: ThreadId,
    crew: Arc<Crew>,
    /// Which of all cores are its own.
    cores: Range<usize>,
}

/// A place on the cores, until it is dropped.
pub(crate) struct Seat<'a> {
    cores: &'a Cores,
    crew: &'a Arc<Crew>,
    since: Instant,
}

impl Cores {
    pub(crate) fn new() -> Cores {
        Cores { all: thread::cores(), running: Mutex::default() }
    }

    /// The thread that asks is about to run the session of this crew, which nobody else runs.
    pub(crate) fn take<'a>(&'a self, crew: &'a Arc<Crew>) -> Seat<'a> {
        let is_worth_it = self.all.len() > 1 && crew.is_worth_it();
        if let Some(caller) = is_worth_it.then(thread::current).flatten() {
            let mut running = self.running();
            let all = 0..self.all.len();
            let place = place(thread::core(), &self.all, running.len() + 1);
            running.insert(place, Running { caller, crew: crew.clone(), cores: all });
            self.divide(&mut running);
        }
        Seat { cores: self, crew, since: Instant::now() }
    }

    /// Gives everybody who runs an equal part of the cores.
    fn divide(&self, running: &mut [Running]) {
        let count = running.len();
        for (place, running) in running.iter_mut().enumerate() {
            let cores = part(place, count, self.all.len());
            if running.cores != cores {
                running.move_to(&self.all[cores.clone()]);
                running.cores = cores;
            }
        }
    }

    fn running(&self) -> MutexGuard<'_, Vec<Running>> {
        self.running.lock().expect("no code panics while holding this lock")
    }
}

impl Crew {
    /// A helper says who it is.
    pub(crate) fn join(&self) {
        self.helpers().extend(thread::current());
    }

    fn is_worth_it(&self) -> bool {
        Duration::from_micros(self.took_microseconds.load(Ordering::Relaxed)) >= WORTH_IT
    }

    fn helpers(&self) -> MutexGuard<'_, Vec<ThreadId>> {
        self.helpers.lock().expect("no code panics while holding this lock")
    }
}

impl Running {
    fn move_to(&self, cores: &[usize]) {
        thread::keep_to(self.caller, cores);
        self.crew.helpers().iter().for_each(|helper| thread::keep_to(*helper, cores));
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let took = self.since.elapsed().as_micros().try_into().unwrap_or(u64::MAX);
        self.crew.took_microseconds.store(took, Ordering::Relaxed);
        let mut running = self.cores.running();
        let place = running.iter().position(|running| Arc::ptr_eq(&running.crew, self.crew));
        // Or it was not worth it.
        let Some(place) = place else { return };
        let gone = running.remove(place);
        // The thread does other things from here on, and the helpers wait for the next caller.
        if gone.cores.len() < self.cores.all.len() {
            gone.move_to(&self.cores.all);
        }
        self.cores.divide(&mut running);
    }
}

/// The part of so many cores for one of so many who run. Of more who run than there are cores, some
/// have the same one.
fn part(place: usize, count: usize, cores: usize) -> Range<usize> {
    let start = place * cores / count;
    start..((place + 1) * cores / count).max(start + 1)
}

/// The place for one more, so that its thread can stay on the core where it is.
fn place(core: Option<usize>, all: &[usize], count: usize) -> usize {
    let at = core.and_then(|core| all.iter().position(|one| *one == core));
    let has = |at: usize| (0..count).find(|place| part(*place, count, all.len()).contains(&at));
    at.and_then(has).unwrap_or(count - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The crew of a session that takes long enough.
    fn long() -> Arc<Crew> {
        let crew = Crew::default();
        crew.took_microseconds.store(10_000, Ordering::Relaxed);
        Arc::new(crew)
    }

    #[test]
    fn cores_are_divided_evenly_and_nobody_is_left_without() {
        let parts =
            |count, cores| -> Vec<_> { (0..count).map(|at| part(at, count, cores)).collect() };
        assert_eq!(part(0, 1, 4), 0..4);
        assert_eq!(parts(2, 4), [0..2, 2..4]);
        assert_eq!(parts(3, 4), [0..1, 1..2, 2..4]);
        assert_eq!(parts(3, 2), [0..1, 0..1, 1..2]);
        assert_eq!(parts(2, 1), [0..1, 0..1]);
    }

    #[test]
    fn who_comes_stays_on_its_core() {
        let all = [2, 3, 6, 7];
        assert_eq!(place(Some(3), &all, 2), 0);
        assert_eq!(place(Some(6), &all, 2), 1);
        assert_eq!(place(Some(7), &all, 1), 0);
        // A core that is not ours, or not known.
        assert_eq!(place(Some(0), &all, 2), 1);
        assert_eq!(place(None, &all, 3), 2);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn programs_that_run_at_once_have_cores_of_their_own_and_one_alone_has_all() {
        let cores = Cores::new();
        let (one, two) = (long(), long());
        let mine = || thread::cores();
        let all = mine();
        let seat = cores.take(&one);
        assert_eq!(mine(), all, "there is nobody else");
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let _seat = cores.take(&two);
                thread::cores()
            });
            let theirs = other.join().unwrap();
            assert_eq!(theirs.len(), (all.len() / 2).max(1));
        });
        assert_eq!(mine(), all, "it is alone again");
        drop(seat);
        assert!(cores.running().is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_program_that_is_over_in_no_time_moves_nobody() {
        let cores = Cores::new();
        let (one, two) = (Arc::new(Crew::default()), Arc::new(Crew::default()));
        let seats = (cores.take(&one), cores.take(&two));
        assert!(cores.running().is_empty());
        drop(seats);
        assert!(!one.is_worth_it());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn helpers_go_where_their_caller_goes() {
        let cores = Cores::new();
        let (crew, other) = (long(), long());
        let (asked, ask) = std::sync::mpsc::channel::<()>();
        let (answer, answers) = std::sync::mpsc::channel();
        let helper = {
            let crew = crew.clone();
            std::thread::spawn(move || {
                crew.join();
                while answer.send(thread::cores()).is_ok() && ask.recv().is_ok() {}
            })
        };
        let all = answers.recv().unwrap();
        let now = || {
            asked.send(()).unwrap();
            answers.recv().unwrap()
        };
        let seat = cores.take(&crew);
        assert_eq!(now(), all);
        let second = cores.take(&other);
        assert!(now().len() <= all.len().div_ceil(2));
        drop(second);
        assert_eq!(now(), all);
        drop(seat);
        drop(asked);
        helper.join().unwrap();
    }
}
