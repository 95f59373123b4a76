//! What the fleet did, and why. Bounded: the oldest is forgotten.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Something that the fleet did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScalingEvent {
    /// Seconds after the pool was made.
    pub at_seconds: f64,
    /// What it did.
    pub what: ScalingStep,
    /// The browser.
    pub browser: String,
    /// Why.
    pub why: String,
}

/// What the fleet did with a browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScalingStep {
    /// It was started.
    Start,
    /// It joined, and takes work.
    Join,
    /// It takes no more work.
    Drain,
    /// It was closed, as it was meant to be.
    Close,
    /// It failed, and was ended.
    Fail,
}

/// Events that are remembered.
const LIMIT: usize = 256;

#[derive(Default)]
pub(super) struct History(VecDeque<ScalingEvent>);

impl History {
    pub(super) fn add(&mut self, event: ScalingEvent) {
        if self.0.len() == LIMIT {
            self.0.pop_front();
        }
        self.0.push_back(event);
    }

    pub(super) fn all(&self) -> Vec<ScalingEvent> {
        self.0.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_remembered_and_the_oldest_are_not() {
        let mut history = History::default();
        for number in 0..LIMIT + 3 {
            history.add(ScalingEvent {
                at_seconds: number as f64,
                what: ScalingStep::Start,
                browser: String::new(),
                why: String::new(),
            });
        }
        let all = history.all();
        assert_eq!(all.len(), LIMIT);
        assert_eq!(all[0].at_seconds, 3.0);
        assert_eq!(all[LIMIT - 1].at_seconds, (LIMIT + 2) as f64);
    }
}
