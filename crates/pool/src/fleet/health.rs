//! Whether a browser goes on, is drained, or is replaced: a pure function of what was seen of it.

use std::time::Duration;

/// What was seen of a browser that has joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Lanes that can be heard.
    pub(super) heard: usize,
    /// Lanes that are cut off and may come back.
    pub(super) away: usize,
    /// How long no lane was heard.
    pub(super) silent: Duration,
    /// Lanes that it had, and that will not come back.
    pub(super) lost: usize,
    /// For how long it has been without one of its lanes.
    pub(super) incomplete: Duration,
    /// For how long the process that the page ran in is gone, as far as can be told; `None` if it
    /// is there.
    pub(super) tab_crashed: Option<Duration>,
    /// Memory of its processes, where it can be told.
    pub(super) memory: Option<u64>,
    pub(super) memory_limit: u64,
}

/// What is to be done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    Fine,
    /// The tab's process was another one: it has to be looked for anew.
    WrongTab,
    /// It finishes what it has, and is replaced.
    Drain(String),
    /// It is ended at once.
    Replace(String),
}

/// How long a browser may be silent. A page whose line was cut is back within seconds.
pub(super) const SILENCE: Duration = Duration::from_secs(10);

/// How long a browser may be without one of its lanes. Its page starts a lane again whose worker
/// failed, but not one that ended, or whose worker hangs.
pub(super) const INCOMPLETE: Duration = Duration::from_secs(10);

/// How long the lanes of a tab that crashed may still seem to be there: their lines are cut with it,
/// but a busy machine hears of that later than of the process.
pub(super) const LATE: Duration = Duration::from_secs(3);

pub(super) fn judge(seen: &Seen) -> Verdict {
    if seen.tab_crashed.is_some() && (seen.away > 0 || seen.heard == 0) {
        return Verdict::Replace("its tab crashed".to_owned());
    }
    if seen.heard == 0 && seen.silent >= SILENCE {
        let seconds = seen.silent.as_secs();
        return Verdict::Replace(format!("none of its lanes was heard for {seconds} s"));
    }
    if let Some(memory) = seen.memory.filter(|memory| *memory > seen.memory_limit) {
        let (memory, limit) = (memory >> 20, seen.memory_limit >> 20);
        return Verdict::Drain(format!("it takes {memory} MiB of memory; {limit} MiB are allowed"));
    }
    if seen.lost > 0 && seen.incomplete >= INCOMPLETE {
        let (lost, all) = (seen.lost, seen.lost + seen.heard + seen.away);
        return Verdict::Drain(format!("it lost {lost} of its {all} lanes"));
    }
    match seen.tab_crashed {
        Some(since) if since >= LATE => Verdict::WrongTab,
        Some(_) | None => Verdict::Fine,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Seen = Seen {
        heard: 2,
        away: 0,
        silent: Duration::ZERO,
        lost: 0,
        incomplete: Duration::ZERO,
        tab_crashed: None,
        memory: Some(100),
        memory_limit: 100,
    };

    #[test]
    fn judges_by_what_was_seen() {
        let silent =
            |seconds| Seen { heard: 0, away: 2, silent: Duration::from_secs(seconds), ..FINE };
        let lost = |seconds| {
            let incomplete = Duration::from_secs(seconds);
            Seen { heard: 1, lost: 1, incomplete, ..FINE }
        };
        let since = |seconds| Some(Duration::from_secs(seconds));
        let crashed = |heard, away| Seen { heard, away, tab_crashed: since(3), ..FINE };
        let cases = [
            ("all is well", FINE, "fine"),
            ("memory cannot be told", Seen { memory: None, ..FINE }, "fine"),
            ("a line was cut", silent(9), "fine"),
            ("and stays cut", silent(10), "replace"),
            ("its lanes are gone", Seen { away: 0, ..silent(10) }, "replace"),
            ("one lane is away", Seen { heard: 1, away: 1, ..FINE }, "fine"),
            ("one lane is gone, and may be started again", lost(9), "fine"),
            ("and is not", lost(10), "drain"),
            ("nor is any other heard", Seen { lost: 1, ..silent(10) }, "replace"),
            ("and the tab crashed", Seen { away: 1, tab_crashed: since(0), ..lost(10) }, "replace"),
            ("and another process ended", Seen { tab_crashed: since(3), ..lost(10) }, "drain"),
            ("another process ended", crashed(2, 0), "wrong tab"),
            ("or no lane knows yet", Seen { tab_crashed: since(2), ..crashed(2, 0) }, "fine"),
            ("the tab's process ended", crashed(0, 2), "replace"),
            ("and not all lanes know yet", crashed(1, 1), "replace"),
            ("and its lanes are gone", crashed(0, 0), "replace"),
            ("too much memory", Seen { memory: Some(101), ..FINE }, "drain"),
            ("and a crash", Seen { memory: Some(101), ..crashed(0, 2) }, "replace"),
        ];
        for (what, seen, expected) in cases {
            let verdict = match judge(&seen) {
                Verdict::Fine => "fine",
                Verdict::WrongTab => "wrong tab",
                Verdict::Drain(_) => "drain",
                Verdict::Replace(_) => "replace",
            };
            assert_eq!(verdict, expected, "{what}");
        }
    }
}
