//! How much memory a workload takes on its device, at the worst moment.
//!
//! The in-process engine is looked at all the time while it works: reading two numbers of the
//! kernel takes microseconds. For a browser the kernel goes through all its pages, which would
//! disturb what is measured, so it is looked at before and after; an engine in a browser gives no
//! memory back while it lives, so afterwards is the worst moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::choice::Choice;
use crate::pool::Pool;

const EVERY: Duration = Duration::from_millis(2);

impl Pool {
    /// Bytes of memory that the devices of a choice take now; `None` where they cannot be looked
    /// into: browsers that were not started from here, and systems that do not tell.
    pub(super) async fn memory(&self, choice: Choice) -> Option<u64> {
        match choice {
            Choice::Cpu => private_bytes(),
            Choice::Lane(_) => self.browser_memory().await,
        }
    }
}

/// Watches the memory of this process until it is asked for the most that was seen.
pub(super) struct Gauge {
    shared: Arc<Shared>,
    watching: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    most: AtomicU64,
    stop: AtomicBool,
}

impl Gauge {
    /// Of this process, where the system tells.
    pub(super) fn start() -> Option<Gauge> {
        let shared = Arc::new(Shared::default());
        shared.most.store(private_bytes()?, Ordering::Relaxed);
        let watched = shared.clone();
        let watch = move || {
            while !watched.stop.load(Ordering::Relaxed) {
                if let Some(bytes) = private_bytes() {
                    watched.most.fetch_max(bytes, Ordering::Relaxed);
                }
                std::thread::sleep(EVERY);
            }
        };
        let watching = std::thread::Builder::new().name("memory gauge".into()).spawn(watch).ok()?;
        Some(Gauge { shared, watching: Some(watching) })
    }

    /// The most bytes since the start.
    pub(super) fn most(self) -> u64 {
        let last = private_bytes().unwrap_or(0);
        self.shared.most.load(Ordering::Relaxed).max(last)
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(watching) = self.watching.take() {
            let _ = watching.join();
        }
    }
}

/// Bytes that only this process has: weights that are mapped from the store are not among them, the
/// copies that an engine packs of them are.
pub(crate) fn private_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split_whitespace().skip(1).map(|field| field.parse::<u64>().ok());
    let (resident, shared) = (pages.next()??, pages.next()??);
    Some(resident.saturating_sub(shared) * page_bytes())
}

fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    /// One test, because all tests of a process share its memory.
    #[test]
    fn memory_that_was_taken_for_a_while_is_seen_and_nothing_else() {
        let before = private_bytes().unwrap();
        let gauge = Gauge::start().unwrap();
        assert!(gauge.most() < before + (32 << 20));

        let gauge = Gauge::start().unwrap();
        let before = private_bytes().unwrap();
        let taken: Vec<u8> = std::hint::black_box(vec![1; 64 << 20]);
        let started = std::time::Instant::now();
        while gauge.shared.most.load(Ordering::Relaxed) < before + (60 << 20) {
            assert!(started.elapsed() < Duration::from_secs(60), "it was never looked at");
            std::thread::yield_now();
        }
        drop(taken);
        assert!(gauge.most() >= before + (60 << 20));
    }
}
