//! The threads that help a session's caller with large operators.
//!
//! Every session has its own, so several models at once have more threads than there are cores. A
//! helper that wakes up must then not push aside the caller of another model, which waits for nobody:
//! it is the callers that decide how soon everything is done, and what a helper does not get to, its
//! caller does itself. So helpers take a core that is free at once, and wait their turn for one that is
//! not. Shards of an operator depend on the number of threads and not on who computes them, so this
//! changes no bits.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use ort::environment::ThreadManager;

use super::cores::Crew;

/// Makes threads that do not push others aside.
pub(super) struct Helpers(pub(super) Arc<Crew>);

impl ThreadManager for Helpers {
    type Thread = JoinHandle<()>;

    fn create(&self, work: impl FnOnce() + Send + 'static) -> ort::Result<JoinHandle<()>> {
        let crew = self.0.clone();
        let helper = move || {
            crew.join();
            wait_for_turns();
            work();
        };
        let spawned = Builder::new().name("holdfast-helper".to_owned()).spawn(helper);
        spawned.map_err(|error| ort::Error::new(format!("cannot start a thread: {error}")))
    }

    fn join(thread: JoinHandle<()>) -> ort::Result<()> {
        thread.join().map_err(|_| ort::Error::new("a thread of a session panicked"))
    }
}

/// Has this thread no longer preempt others when it wakes up. Where the system does not have that or
/// refuses it, helpers are threads like others.
fn wait_for_turns() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let ordinary = libc::sched_param { sched_priority: 0 };
        #[expect(unsafe_code, reason = "a call of the C library")]
        // SAFETY: zero means this thread, and the parameter outlives the call.
        unsafe {
            libc::sched_setscheduler(0, libc::SCHED_BATCH, &ordinary);
        }
    }
}
