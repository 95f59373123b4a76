//! In which order a request tries what it may run on.
//!
//! What the user prefers is tried as it stands. Where that is left to Holdfast, what is usually best
//! comes first until it was measured; of what was measured with a model, that which would be done
//! first. A backend gets measured when it helps: when the one that would be used is busy.

use std::collections::HashMap;
use std::time::Duration;

use holdfast_graph::Digest;
use tokio::time::Instant;

use super::Scheduler;
use super::queue::Wanted;
use super::state::State;
use crate::choice::Choices;
use crate::placement::LEAST_SHARE;

/// What is to be expected of a choice with a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prospect {
    /// It has the model and has run it.
    Measured {
        /// When it would be done with one more request.
        done: Duration,
        /// Whether that would have to wait.
        busy: bool,
    },
    /// It is there and could be tried.
    Untried,
    /// It is being tried, or is not there.
    Unknown,
}

impl Scheduler {
    /// What a request for a graph tries, one after the other.
    pub(crate) fn order(&self, graph: Digest, choices: &Choices) -> Vec<Wanted> {
        let wanted: Vec<Wanted> = choices
            .in_order()
            .into_iter()
            .map(|(choice, accelerated)| Wanted::new(choice, accelerated))
            .collect();
        if matches!(choices, Choices::Ordered(_)) {
            return wanted;
        }
        let now = Instant::now();
        let mut state = self.state();
        let prospects: Vec<Prospect> =
            wanted.iter().map(|wanted| state.prospect(graph, *wanted, now)).collect();
        let order = order(&prospects);
        if let Some(&first) = order.first().filter(|first| prospects[**first] == Prospect::Untried)
        {
            state.trials.note(graph, wanted[first], now);
        }
        order.into_iter().map(|index| wanted[index]).collect()
    }
}

/// What is being tried: one request is enough to find out.
#[derive(Default)]
pub(crate) struct Trials {
    since: HashMap<(Digest, Wanted), Instant>,
}

/// How long one request has before another one tries the same.
const TRIAL: Duration = Duration::from_secs(10);

/// Trials that are remembered. Past this all are forgotten.
const REMEMBERED: usize = 1024;

impl Trials {
    fn note(&mut self, graph: Digest, wanted: Wanted, now: Instant) {
        if self.since.len() >= REMEMBERED {
            self.since.clear();
        }
        self.since.insert((graph, wanted), now);
    }

    fn is_under_way(&self, graph: Digest, wanted: Wanted, now: Instant) -> bool {
        self.since.get(&(graph, wanted)).is_some_and(|since| now - *since < TRIAL)
    }
}

/// What was measured changes places among itself, and what could help goes first while the best of
/// it is busy.
fn order(prospects: &[Prospect]) -> Vec<usize> {
    let done = |index: usize| match prospects[index] {
        Prospect::Measured { done, .. } => Some(done),
        Prospect::Untried | Prospect::Unknown => None,
    };
    let mut measured: Vec<usize> =
        (0..prospects.len()).filter(|index| done(*index).is_some()).collect();
    measured.sort_by_key(|index| done(*index));
    let mut best_first = measured.iter().copied();
    let mut order: Vec<usize> = (0..prospects.len())
        .map(|index| if done(index).is_some() { best_first.next().unwrap_or(index) } else { index })
        .collect();
    let is_busy =
        |index: &usize| matches!(prospects[*index], Prospect::Measured { busy: true, .. });
    if measured.first().is_some_and(is_busy)
        && let Some(helper) = order.iter().position(|index| prospects[*index] == Prospect::Untried)
    {
        order[..=helper].rotate_right(1);
    }
    order
}

impl State {
    fn prospect(&self, graph: Digest, wanted: Wanted, now: Instant) -> Prospect {
        let serving = || self.members.values().filter(|member| member.serves(wanted));
        let parallel: usize = serving().map(|member| member.options.parallel.max(1)).sum();
        let waiting = self.queue.waiting_on(graph, wanted);
        let measured = serving().filter_map(|member| {
            let run = member.measured(graph)?.div_f64(member.share.max(LEAST_SHARE));
            let own = member.in_flight() as f64 / member.options.parallel.max(1) as f64;
            let ahead = own + waiting as f64 / parallel.max(1) as f64;
            Some((run + run.mul_f64(ahead), waiting > 0 || !member.is_free(now)))
        });
        match measured.min() {
            Some((done, busy)) => Prospect::Measured { done, busy },
            None if parallel == 0 || self.trials.is_under_way(graph, wanted, now) => {
                Prospect::Unknown
            }
            None => Prospect::Untried,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Prospect::{Unknown, Untried};
    use super::*;

    fn measured(done_ms: u64, busy: bool) -> Prospect {
        Prospect::Measured { done: Duration::from_millis(done_ms), busy }
    }

    #[test]
    fn what_was_measured_decides_and_the_usual_order_where_nothing_was() {
        let cases: [(&str, &[Prospect], &[usize]); 9] = [
            ("nothing is known", &[Unknown, Untried, Untried], &[0, 1, 2]),
            ("one is", &[measured(5, false), Untried, Untried], &[0, 1, 2]),
            ("only the second is", &[Untried, measured(5, false)], &[0, 1]),
            ("the second is faster", &[measured(5, false), measured(3, false)], &[1, 0]),
            (
                "with an unknown one between",
                &[measured(5, false), Unknown, measured(3, false)],
                &[2, 1, 0],
            ),
            ("the first is busy", &[measured(5, true), Untried], &[1, 0]),
            ("and the other is being tried", &[measured(5, true), Unknown], &[0, 1]),
            ("or was", &[measured(5, true), measured(30, false)], &[0, 1]),
            (
                "a third could help",
                &[Unknown, measured(9, true), measured(5, true), Untried],
                &[3, 0, 2, 1],
            ),
        ];
        for (what, prospects, expected) in cases {
            assert_eq!(order(prospects), expected, "{what}");
        }
    }
}
