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

/// The middle of some figures, and how far they are apart.
pub(crate) struct Spread {
    pub(crate) middle: f64,
    /// A tenth of them is smaller.
    low: f64,
    /// A tenth of them is larger.
    high: f64,
}

impl Spread {
    pub(crate) fn of(figures: &mut [f64]) -> Spread {
        figures.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| {
            let last = figures.len().saturating_sub(1);
            figures.get((last as f64 * part).round() as usize).copied().unwrap_or_default()
        };
        Spread { middle: at(0.5), low: at(0.1), high: at(0.9) }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "eight of ten between {:.3} and {:.3}", self.low, self.high)
    }
}

/// Waits until nobody looks for work any more. The threads of a bare session keep a core busy for
/// tens of milliseconds after a run, which whoever is measured next would pay for.
pub(crate) fn settle() {
    std::thread::sleep(Duration::from_millis(150));
}
