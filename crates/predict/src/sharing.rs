//! How long jobs take that run at once: they share what the device can do.
//!
//! With `k` jobs running, a device does the work of `C(k)` jobs alone, and each of them gets its
//! part. No capacity is left unused while a job waits. Time is kept apart by how many ran, so
//! that learning what `C` really is only has to weigh these times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::device::DeviceProfile;

/// Crowds that are told apart: 1, 2, 3 to 4, 5 to 8, and more jobs at once.
pub(crate) const CROWDS: usize = 5;

/// Which crowd a number of jobs is.
pub(crate) fn crowd(jobs: usize) -> usize {
    match jobs {
        0 | 1 => 0,
        2 => 1,
        3 | 4 => 2,
        5..=8 => 3,
        _ => 4,
    }
}

/// How much a device does with so many jobs at once, as a multiple of one job alone, before
/// anything was learned.
pub(crate) fn capacity(device: &DeviceProfile, jobs: usize) -> f64 {
    if jobs <= 1 {
        return 1.0;
    }
    let share = 1.0 - 1.0 / jobs as f64;
    if matches!(device.backend.as_str(), "webgpu" | "webnn") {
        return 1.0 + 0.05 * share;
    }
    let room = device.cores.max(1) as f64 / device.threads.max(1) as f64;
    if room <= 1.0 {
        return 1.0 + 0.08 * share;
    }
    // They fight for memory: two jobs on two cores are 8 % slower than each would be alone.
    let at_once = room.min(jobs as f64);
    at_once * (1.0 - 0.16 * (1.0 - 1.0 / at_once))
}

/// Seconds that a stage spends with each crowd. `work` are the jobs' seconds alone, in the order
/// in which they start.
pub(crate) fn share(device: &DeviceProfile, work: &[f64], times: &mut [f64; CROWDS]) {
    let slots = device.slots.max(1);
    if slots == 1 || work.len() <= 1 {
        times[0] += work.iter().sum::<f64>();
        return;
    }
    // All that run progress alike, so a job ends when the common progress has grown by its work.
    // Bits of numbers above zero sort like the numbers.
    let mut ends: BinaryHeap<Reverse<u64>> = BinaryHeap::with_capacity(slots.min(work.len()));
    let mut progress = 0.0_f64;
    let mut waiting = work.iter();
    loop {
        while ends.len() < slots {
            let Some(seconds) = waiting.next() else { break };
            ends.push(Reverse((progress + seconds.max(0.0)).to_bits()));
        }
        let running = ends.len();
        let Some(Reverse(end)) = ends.pop() else { break };
        let end = f64::from_bits(end);
        let passed = (end - progress).max(0.0);
        times[crowd(running)] += passed * running as f64 / capacity(device, running);
        progress = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(slots: usize, threads: usize, cores: usize) -> DeviceProfile {
        DeviceProfile { slots, threads, cores, ..DeviceProfile::made_up("cpu") }
    }

    fn total(device: &DeviceProfile, work: &[f64]) -> f64 {
        let mut times = [0.0; CROWDS];
        share(device, work, &mut times);
        times.iter().sum()
    }

    #[test]
    fn one_slot_runs_one_after_the_other() {
        assert_eq!(total(&device(1, 1, 2), &[1.0, 2.0, 3.0]), 6.0);
    }

    #[test]
    fn two_jobs_of_one_thread_overlap_on_two_cores() {
        let seconds = total(&device(2, 1, 2), &[1.0, 1.0]);
        assert!(seconds > 1.0 && seconds < 1.2, "{seconds}");
    }

    #[test]
    fn jobs_that_use_all_cores_hardly_gain() {
        let seconds = total(&device(2, 2, 2), &[1.0, 1.0]);
        assert!(seconds > 1.8 && seconds < 2.0, "{seconds}");
    }

    #[test]
    fn a_long_job_ends_alone() {
        let mut times = [0.0; CROWDS];
        share(&device(2, 1, 2), &[1.0, 3.0], &mut times);
        assert_eq!(times[0], 2.0);
        assert!(times[1] > 1.0 && times[1] < 1.2);
    }

    #[test]
    fn more_jobs_never_take_less() {
        let device = device(4, 1, 4);
        let mut before = 0.0;
        for jobs in 1..40 {
            let seconds = total(&device, &vec![0.5; jobs]);
            assert!(seconds >= before, "{jobs} jobs");
            before = seconds;
        }
    }

    #[test]
    fn one_job_alone_takes_its_own_time() {
        assert_eq!(capacity(&device(4, 1, 4), 1), 1.0);
        assert_eq!(total(&device(4, 1, 4), &[2.5]), 2.5);
    }
}
