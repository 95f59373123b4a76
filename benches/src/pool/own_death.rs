//! L2: when Holdfast itself is killed, its browsers and their profiles go too.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use holdfast_pool::BrowserState;

use super::fleet::{Fleet, descendants, kill, profiles};
use crate::record::{Goal, Record};

/// The argument that makes this program a pool that works until it is killed.
pub(crate) const WORKING: &str = "--working-pool";

const TIMES: usize = 20;
const LIMIT: Duration = Duration::from_secs(10);

pub(super) fn run(record: &mut Record) -> Result<()> {
    let (mut processes_left, mut profiles_left) = (0, 0);
    let (mut processes_seen, mut slowest) = (0, Duration::ZERO);
    for time in 0..TIMES {
        let program = std::env::current_exe()?;
        let mut child = Command::new(program).arg(WORKING).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        let mut profiles: Vec<PathBuf> = Vec::new();
        for line in lines.map_while(Result::ok) {
            match line.strip_prefix("profile ") {
                Some(profile) => profiles.push(profile.into()),
                None if line == "working" => break,
                None => {}
            }
        }
        // At another moment of its work each time.
        std::thread::sleep(Duration::from_millis(37 * time as u64));
        let processes = descendants(child.id())?;
        anyhow::ensure!(
            profiles.len() == 2 && processes.len() > 4,
            "it had not started its browsers"
        );
        kill(child.id())?;
        let killed = Instant::now();
        child.wait()?;
        let left = || {
            let processes = processes.iter().filter(|process| process.is_there()).count();
            (processes, profiles.iter().filter(|profile| profile.exists()).count())
        };
        while left() != (0, 0) && killed.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(20));
        }
        let (more_processes, more_profiles) = left();
        processes_left += more_processes;
        profiles_left += more_profiles;
        processes_seen += processes.len();
        slowest = slowest.max(killed.elapsed());
    }
    let peer = format!(
        "killed {TIMES} times at work, {} browsers of {processes_seen} processes; the slowest were \
         gone after {:.1} s",
        2 * TIMES,
        slowest.as_secs_f64(),
    );
    let what = "processes left 10 s after Holdfast was killed";
    let goal = Goal::AtMost(0.0);
    record.add("L2.processes", what, processes_left as f64, "processes", &peer, goal);
    let what = "profiles left 10 s after Holdfast was killed";
    let goal = Goal::AtMost(0.0);
    record.add("L2.profiles", what, profiles_left as f64, "profiles", &peer, goal);
    Ok(())
}

/// Works in two browsers until it is killed. Says where their profiles are.
pub(crate) fn work() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let fleet = Fleet::start(1).await?;
        let request = fleet.request(&fleet.tiny_bert()?, (16, 250), 1, "wasm")?;
        let serving = || {
            let browsers = fleet.pool.metrics().fleet.browsers;
            browsers.iter().filter(|each| each.state == BrowserState::Serving).count()
        };
        let mut told = false;
        loop {
            let requests = vec![request.clone(); 8];
            for answer in fleet.pool.run_concurrent(&requests).await {
                answer?;
            }
            if !told && serving() == 2 {
                told = true;
                for profile in profiles(&fleet.pool) {
                    println!("profile {}", profile.display());
                }
                println!("working");
            }
        }
    })
}
