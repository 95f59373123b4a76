//! Timing: the fastest of alternating runs, or the middle of many.

use std::time::{Duration, Instant};

use anyhow::Result;

/// Runs the contenders in turn, `rounds` times, and returns the fastest time of each. In turn,
/// because a noisy moment then hits all of them; the fastest, because noise only ever adds.
pub(crate) fn alternate<const N: usize>(
    rounds: usize,
    mut contenders: [&mut dyn FnMut() -> Result<()>; N],
) -> Result<[Duration; N]> {
    // Once for each, to warm up.
    for contender in &mut contenders {
        contender()?;
    }
    let mut fastest = [Duration::MAX; N];
    for _ in 0..rounds {
        for (contender, fastest) in contenders.iter_mut().zip(&mut fastest) {
            let started = Instant::now();
            contender()?;
            *fastest = started.elapsed().min(*fastest);
        }
    }
    Ok(fastest)
}

/// The middle of some times.
pub(crate) fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
