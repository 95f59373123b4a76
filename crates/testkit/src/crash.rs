//! Ends real processes at moments spread over their whole run, as a power cut or a user would.

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

/// How many processes were killed and how many were not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Processes that were killed.
    pub killed: usize,
    /// Processes that were faster.
    pub finished: usize,
}

/// Starts a command again and again and kills it (SIGKILL where there are signals).
///
/// `command` makes the command of each round. Round 0 is left alone, to learn how long one
/// takes; each of the `rounds` after it is killed in its own slice of that time, the slices in
/// a random order that belongs to the seed. `check` looks at what is left after each round,
/// the first included; its first error ends everything.
pub fn kill_during<E: From<io::Error>>(
    rounds: usize,
    seed: u64,
    mut command: impl FnMut(usize) -> Command,
    mut check: impl FnMut(usize, Ended) -> Result<(), E>,
) -> Result<Tally, E> {
    let started = Instant::now();
    let status = quiet(&mut command(0)).status()?;
    let whole = started.elapsed();
    check(0, Ended::ByItself(status))?;

    let mut numbers = Numbers::labelled(seed, "moments to kill at");
    let mut moments: Vec<Duration> = (0..rounds)
        .map(|slice| {
            let within = numbers.below(1000) as f64 / 1000.0;
            whole.mul_f64((slice as f64 + within) / rounds as f64)
        })
        .collect();
    numbers.shuffle(&mut moments);

    let mut tally = Tally::default();
    for (index, moment) in moments.into_iter().enumerate() {
        let round = index + 1;
        let ended = end_after(quiet(&mut command(round)).spawn()?, moment)?;
        match ended {
            Ended::Killed => tally.killed += 1,
            Ended::ByItself(_) => tally.finished += 1,
        }
        check(round, ended)?;
    }
    Ok(tally)
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
    fn kills_what_takes_longer_than_the_first_round() {
        let mut ends = Vec::new();
        let command = |round: usize| sleeping(if round == 0 { "0.02" } else { "60" });
        let tally = kill_during(3, 1, command, |round, ended| {
            ends.push((round, ended == Ended::Killed));
            Ok::<(), io::Error>(())
        });
        assert_eq!(tally.unwrap(), Tally { killed: 3, finished: 0 });
        assert_eq!(ends, [(0, false), (1, true), (2, true), (3, true)]);
    }

    #[test]
    fn leaves_what_is_faster_and_stops_at_the_first_failed_check() {
        let command = |round: usize| sleeping(if round == 0 { "0.5" } else { "0" });
        let fast = kill_during(2, 1, command, |_, _| Ok::<(), io::Error>(()));
        assert!(fast.unwrap().finished >= 1);
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
