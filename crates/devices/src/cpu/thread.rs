//! Threads and the cores that they may run on, where the system lets us say so.

#[cfg(target_os = "linux")]
pub(crate) use linux::{ThreadId, core, cores, current, keep_to};
#[cfg(not(target_os = "linux"))]
pub(crate) use nowhere::{ThreadId, core, cores, current, keep_to};

#[cfg(target_os = "linux")]
mod linux {
    use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

    pub(crate) type ThreadId = rustix::process::Pid;

    /// The thread that asks; `None` where it cannot be kept to cores.
    pub(crate) fn current() -> Option<ThreadId> {
        Some(gettid())
    }

    /// The core that the thread which asks is on.
    pub(crate) fn core() -> Option<usize> {
        Some(sched_getcpu())
    }

    /// The cores that the thread which asks may run on.
    pub(crate) fn cores() -> Vec<usize> {
        let set = sched_getaffinity(None).unwrap_or_default();
        (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
    }

    /// From now on the thread runs on these cores only.
    pub(crate) fn keep_to(thread: ThreadId, cores: &[usize]) {
        let mut set = CpuSet::new();
        cores.iter().for_each(|core| set.set(*core));
        // A thread that has ended needs no core, and one that may not be moved stays where it is: the
        // cores are shared as the system likes then.
        let _ = sched_setaffinity(Some(thread), &set);
    }
}

#[cfg(not(target_os = "linux"))]
mod nowhere {
    pub(crate) type ThreadId = std::convert::Infallible;

    pub(crate) fn current() -> Option<ThreadId> {
        None
    }

    pub(crate) fn core() -> Option<usize> {
        None
    }

    pub(crate) fn cores() -> Vec<usize> {
        Vec::new()
    }

    pub(crate) fn keep_to(thread: ThreadId, _: &[usize]) {
        match thread {}
    }
}
