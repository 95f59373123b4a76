//! L1: whatever breaks, every request gets its right answer, and nothing is left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use holdfast_devtools::DevTools;
use holdfast_graph::Tensor;
use holdfast_pool::{Answer, BrowserState, Request};

use super::fleet::{Fleet, descendants, kill, of_role, profiles};
use crate::compare::difference;
use crate::record::{Goal, Record};

const REQUESTS: usize = 2000;
const AT_ONCE: usize = 8;
const EVERY: Duration = Duration::from_secs(15);
const LANES: usize = 2;
/// Different inputs for each model, so that answers that were mixed up show.
const INPUTS: usize = 16;
const TOLERANCE: f64 = 1e-3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    BrowserKilled,
    TabCrashed,
    EngineHung,
    GpuLost,
    SocketCut,
}

const FAULTS: [Fault; 5] =
    [Fault::BrowserKilled, Fault::TabCrashed, Fault::EngineHung, Fault::GpuLost, Fault::SocketCut];

/// When a request is asked at the earliest: all of them last for a little over two rounds of faults,
/// however fast the machine is.
fn due(number: usize) -> Duration {
    let rounds = EVERY * 2 * FAULTS.len() as u32 + EVERY / 2;
    rounds.mul_f64(number as f64 / REQUESTS as f64)
}

/// How often each kind of fault struck.
type Struck = Arc<std::sync::Mutex<BTreeMap<Fault, usize>>>;

#[derive(Default)]
struct Tally {
    right: AtomicUsize,
    wrong: AtomicUsize,
    lost: AtomicUsize,
}

pub(super) fn run(record: &mut Record) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(record))
}

async fn measure(record: &mut Record) -> Result<()> {
    let fleet = Arc::new(Fleet::start(LANES).await?);
    let cases = Arc::new(cases(&fleet).await?);
    let (tally, next) = (Arc::new(Tally::default()), Arc::new(AtomicUsize::new(0)));
    let started = Instant::now();
    let workers: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (fleet, cases) = (fleet.clone(), cases.clone());
            let (tally, next) = (tally.clone(), next.clone());
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= REQUESTS {
                        return;
                    }
                    tokio::time::sleep_until((started + due(number)).into()).await;
                    let (request, expected) = &cases[number % cases.len()];
                    tally.note(number, fleet.pool.run(request).await, expected);
                }
            })
        })
        .collect();
    let seen = Arc::new(std::sync::Mutex::new(BTreeSet::new()));
    let watching = tokio::spawn(watch(fleet.clone(), seen.clone()));
    let struck = Struck::default();
    let faults = tokio::spawn(break_things(fleet.clone(), next.clone(), struck.clone()));
    for worker in workers {
        worker.await?;
    }
    let took = started.elapsed();
    faults.abort();
    let struck = struck.lock().map(|struck| struck.clone()).unwrap_or_default();
    watching.abort();
    let metrics = fleet.pool.metrics();
    fleet.pool.close().await;
    let left = descendants(std::process::id())?.len();
    let seen: BTreeSet<PathBuf> = seen.lock().map(|seen| seen.clone()).unwrap_or_default();
    let leftover = seen.iter().filter(|profile| profile.exists()).count();

    let count = |count: &AtomicUsize| count.load(Ordering::Relaxed) as f64;
    let peer = format!(
        "{REQUESTS} requests in {:.0} s, a fault every {} s ({struck:?} struck); {} browsers \
         started, {} replaced, {} requests went on elsewhere",
        took.as_secs_f64(),
        EVERY.as_secs(),
        metrics.fleet.started,
        metrics.fleet.restarts,
        metrics.failovers,
    );
    let mut add = |id: &str, what: &str, value: f64, unit: &str, goal| {
        record.add(id, what, value, unit, &peer, goal);
    };
    // What did not happen was not survived.
    let (kinds, what) = (struck.len() as f64, "kinds of faults that struck");
    add("L1.faults", what, kinds, "kinds", Goal::AtLeast(FAULTS.len() as f64));
    let all = REQUESTS as f64;
    add("L1.right", "right answers", count(&tally.right), "requests", Goal::AtLeast(all));
    add("L1.lost", "requests without an answer", count(&tally.lost), "requests", Goal::AtMost(0.0));
    add("L1.wrong", "wrong answers", count(&tally.wrong), "requests", Goal::AtMost(0.0));
    let what = "processes left, zombies included";
    add("L1.processes", what, left as f64, "processes", Goal::AtMost(0.0));
    let what = "profiles left";
    add("L1.profiles", what, leftover as f64, "profiles", Goal::AtMost(0.0));
    Ok(())
}

impl Tally {
    fn note(
        &self,
        number: usize,
        answer: Result<Answer, holdfast_pool::RunError>,
        expected: &Tensor,
    ) {
        let count = match answer {
            Ok(answer) => match answer.outcome.output(OUTPUT).map(|o| difference(o, expected)) {
                Some(Ok(apart)) if apart <= TOLERANCE => &self.right,
                _ => &self.wrong,
            },
            Err(error) => {
                println!("request {number}: {error}");
                &self.lost
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

const OUTPUT: &str = "last_hidden_state";

/// Requests for both models in turn, each with its right answer by the in-process engine.
async fn cases(fleet: &Fleet) -> Result<Vec<(Request, Tensor)>> {
    let (minilm, bert) = (fleet.minilm()?, fleet.tiny_bert()?);
    let mut cases = Vec::new();
    for number in 0..INPUTS {
        for (graph, size, choice) in [(&minilm, (32, 20_000), "wasm"), (&bert, (16, 250), "webgpu")]
        {
            let request = fleet.request(graph, size, number, "cpu")?;
            let answer = fleet.pool.run(&request).await?;
            let expected = answer.outcome.output(OUTPUT).context("no output")?.clone();
            let choices = choice.parse().map_err(anyhow::Error::msg)?;
            cases.push((Request { choices, ..request }, expected));
        }
    }
    Ok(cases)
}

/// Breaks one thing after the other until the last request was asked, and counts them.
async fn break_things(fleet: Arc<Fleet>, next: Arc<AtomicUsize>, struck: Struck) {
    for (turn, fault) in FAULTS.into_iter().cycle().enumerate() {
        tokio::time::sleep(EVERY).await;
        if next.load(Ordering::Relaxed) >= REQUESTS {
            break;
        }
        match strike(&fleet, fault, turn).await {
            Ok(()) => {
                println!("{fault:?}");
                if let Ok(mut struck) = struck.lock() {
                    *struck.entry(fault).or_default() += 1;
                }
            }
            Err(error) => println!("{fault:?} did not happen: {error:#}"),
        }
    }
}

async fn strike(fleet: &Fleet, fault: Fault, turn: usize) -> Result<()> {
    let browsers = fleet.pool.metrics().fleet.browsers;
    let serving: Vec<_> =
        browsers.into_iter().filter(|each| each.state == BrowserState::Serving).collect();
    let victim = serving.get(turn % serving.len().max(1)).context("no browser serves")?;
    let process = victim.process.context("it does not run")?;
    match fault {
        Fault::BrowserKilled => kill(process),
        Fault::TabCrashed => kill_all(of_role(process, "renderer")?),
        Fault::GpuLost => kill_all(of_role(process, "gpu-process")?),
        Fault::EngineHung => {
            let profile = victim.profile.as_ref().context("it has no profile")?;
            let devtools = DevTools::connect(Path::new(profile)).await?;
            let engine = devtools.target("worker", "engine-worker").await?;
            devtools.start(&engine, "setTimeout(() => { for (;;) {} }, 0)");
            // What was said has to be on its way before the line is closed.
            devtools.target("page", "/join").await?;
            Ok(())
        }
        Fault::SocketCut => {
            fleet.proxy.cut_after(turn as u64 * 7919 % 100_000).await;
            Ok(())
        }
    }
}

/// Some of them may end just then by themselves; that there is none is no fault that struck.
fn kill_all(processes: Vec<u32>) -> Result<()> {
    let killed = processes.into_iter().map(kill).filter(Result::is_ok).count();
    anyhow::ensure!(killed > 0, "there is no such process");
    Ok(())
}

/// Takes note of all profiles that there are.
async fn watch(fleet: Arc<Fleet>, seen: Arc<std::sync::Mutex<BTreeSet<PathBuf>>>) {
    loop {
        if let Ok(mut seen) = seen.lock() {
            seen.extend(profiles(&fleet.pool));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
