//! Ends real processes at moments spread over their whole run, as a power cut or a user would.

use std::collections::VecDeque;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::numbers::Numbers;

/// How a process came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was killed, without a chance to clean up.
    Killed,
    /// It was faster than the killer.
    ByItself(ExitStatus),
}

/// How many processes were killed, and how many should have been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Processes that were killed.
    pub killed: usize,
    /// Processes that ended before their turn.
    pub finished: usize,
}

/// Starts a command again and again until it was killed (SIGKILL where there are signals) so
/// many times.
///
/// `command` makes the command of each round. Every eighth round, from the first on, is left
/// alone, to learn how long one takes at the moment. Each kill has its own slice of that time,
/// the slices in a random order that belongs to the seed. `check` looks at what is left after
/// every round; its first error ends everything.
pub fn kill_during<E: From<io::Error>>(
    kills: usize,
    seed: u64,
    mut command: impl FnMut(usize) -> Command,
    mut check: impl FnMut(usize, Ended) -> Result<(), E>,
) -> Result<Tally, E> {
    let mut fractions = fractions(kills, seed);
    let mut tally = Tally::default();
    let mut whole = Duration::ZERO;
    for round in 0.. {
        let Some(&fraction) = fractions.front() else { break };
        let started = Instant::now();
        let mut child = quiet(&mut command(round)).spawn()?;
        if round % MEASURE_EVERY == 0 {
            let status = child.wait()?;
            whole = started.elapsed();
            check(round, Ended::ByItself(status))?;
            continue;
        }
        let ended = end_after(child, whole.mul_f64(fraction))?;
        match ended {
            Ended::Killed => {
                tally.killed += 1;
                fractions.pop_front();
            }
            Ended::ByItself(_) => {
                tally.finished += 1;
                // Its turn comes again, when the time is known better.
                fractions.rotate_left(1);
            }
        }
        check(round, ended)?;
        if tally.finished > 10 + 4 * kills {
            return Err(io::Error::other("the command ends too fast to be killed").into());
        }
    }
    Ok(tally)
}

const MEASURE_EVERY: usize = 8;

/// One moment in each slice of the whole, in random order.
fn fractions(slices: usize, seed: u64) -> VecDeque<f64> {
    let mut numbers = Numbers::labelled(seed, "moments to kill at");
    let mut fractions: Vec<f64> = (0..slices)
        .map(|slice| (slice as f64 + numbers.below(1000) as f64 / 1000.0) / slices as f64)
        .collect();
    numbers.shuffle(&mut fractions);
    fractions.into()
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

fn end_after(mut child: Child, moment: Duration) -> io::Result<Ended> {
    let started = Instant::now();
    while started.elapsed() < moment {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended::ByItself(status));
        }
        thread::sleep(Duration::from_micros(200));
    }
    child.kill()?;
    let status = child.wait()?;
    // It may have ended between the last look and the kill.
    Ok(if status.success() { Ended::ByItself(status) } else { Ended::Killed })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn sleeping(seconds: &str) -> Command {
        let mut command = Command::new("sleep");
        command.arg(seconds);
        command
    }

    #[test]
    fn moments_are_spread_over_the_whole() {
        let mut moments: Vec<f64> = fractions(4, 7).into();
        assert_ne!(moments, Vec::from(fractions(4, 8)));
        moments.sort_by(f64::total_cmp);
        let slices: Vec<usize> = moments.iter().map(|moment| (moment * 4.0) as usize).collect();
        assert_eq!(slices, [0, 1, 2, 3]);
    }

    #[test]
    fn kills_as_often_as_asked_and_measures_in_between() {
        let mut ends = Vec::new();
        let command = |round: usize| sleeping(if round.is_multiple_of(8) { "0.02" } else { "60" });
        let tally = kill_during(9, 1, command, |round, ended| {
            ends.push((round, ended == Ended::Killed));
            Ok::<(), io::Error>(())
        });
        assert_eq!(tally.unwrap(), Tally { killed: 9, finished: 0 });
        let expected: Vec<(usize, bool)> = (0..11).map(|round| (round, round % 8 != 0)).collect();
        assert_eq!(ends, expected);
    }

    #[test]
    fn gives_up_on_what_is_always_faster() {
        let command = |round: usize| sleeping(if round.is_multiple_of(8) { "0.3" } else { "0" });
        let late = (0..).find(|&seed| fractions(1, seed)[0] > 0.9).unwrap();
        let tally = kill_during(1, late, command, |_, _| Ok::<(), io::Error>(()));
        assert!(tally.unwrap_err().to_string().contains("too fast"));
    }

    #[test]
    fn stops_at_the_first_failed_check() {
        let mut rounds = 0;
        let failed = kill_during(
            9,
            1,
            |_| sleeping("0"),
            |round, _| {
                rounds += 1;
                if round == 2 { Err(io::Error::other("broken")) } else { Ok(()) }
            },
        );
        assert_eq!(failed.unwrap_err().to_string(), "broken");
        assert_eq!(rounds, 3);
    }
}
