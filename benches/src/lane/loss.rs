//! W6: whatever is lost, every request gets its right answer or an error that says whose fault it
//! was, in time, and the lane serves again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use holdfast_devices::lane::Lane;
use holdfast_devices::{Device, DeviceError, ErrorKind, Loaded, Program, Segment};

use super::faults::{Breakable, Kind};
use super::models::Sample;
use super::rig::{Rig, program, tensors};
use crate::compare::difference;
use crate::record::{Goal, Record};
use crate::spine::cases::MINILM;

const TIMES: usize = 50;

/// How much later than its deadline an answer may come on a busy machine.
const MARGIN: Duration = Duration::from_millis(500);

/// How long after a fault the lane has to serve again.
const RECOVERY: Duration = Duration::from_secs(60);

/// What became of the requests.
#[derive(Default)]
struct Tally {
    right: usize,
    wrong: usize,
    late: usize,
    /// Errors by kind.
    errors: BTreeMap<String, usize>,
    /// Errors that blame the caller, who did nothing wrong.
    misjudged: usize,
    not_serving: usize,
    slowest_recovery: Duration,
}

pub(super) async fn run(record: &mut Record, kind: Kind) -> Result<()> {
    let rig = Rig::new().await?;
    // On the way of a socket that is cut there have to be bytes; elsewhere small is quick.
    let sample = match kind {
        Kind::SocketCut => Sample::real(&rig, &MINILM, 1, 32).await?,
        _ => Sample::tiny_bert(&rig, 16).await?,
    };
    let deadline = match kind {
        Kind::EngineHung => Duration::from_secs(1),
        _ => Duration::from_secs(10),
    };
    let breakable = Breakable::start(&rig, kind).await?;
    let lane = rig.lane(&breakable.browser, kind.backend()).await?;
    let segment = rig.segment(&sample.graph, lane.target(), &sample.inputs).await?;
    let subject = Subject { rig: &rig, breakable: &breakable, kind, segment, sample, deadline };
    let mut tally = Tally::default();
    // The same moments in every run.
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut chance = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 20
    };
    for number in 0..TIMES {
        let once = subject.once(&mut tally, chance(), chance()).await;
        once.with_context(|| format!("{}, time {number}", kind.name()))?;
        if (number + 1) % 10 == 0 {
            println!("  {}: {} of {TIMES} times", kind.name(), number + 1);
        }
    }
    tally.record(record, kind);
    rig.close(breakable.browser).await
}

struct Subject<'a> {
    rig: &'a Rig,
    breakable: &'a Breakable,
    kind: Kind,
    segment: Segment,
    sample: Sample,
    deadline: Duration,
}

impl Subject<'_> {
    /// One fault at a random moment while requests run one after the other, and what follows.
    async fn once(&self, tally: &mut Tally, moment: u64, chance: u64) -> Result<()> {
        let (lane, loaded, took) = self.healthy().await?;
        let armed = self.breakable.arm().await?;
        // Somewhere within the next three requests.
        let delay = took.mul_f64(3.0 * (moment % 1000) as f64 / 1000.0);
        let strike = async {
            tokio::time::sleep(delay).await;
            self.breakable.strike(armed, chance).await?;
            anyhow::Ok(Instant::now())
        };
        tokio::pin!(strike);
        let mut struck = None;
        let (mut lane, mut loaded) = (lane, Some(loaded));
        loop {
            let began = Instant::now();
            let served = {
                let request = self.request(&lane, &mut loaded, tally);
                tokio::pin!(request);
                loop {
                    tokio::select! {
                        at = &mut strike, if struck.is_none() => struck = Some(at?),
                        served = &mut request => break served,
                    }
                }
            };
            let Some(at) = struck else { continue };
            // Only a request that began after the fault shows that the lane serves again.
            if served && began > at {
                tally.slowest_recovery = tally.slowest_recovery.max(at.elapsed());
                return Ok(());
            }
            if at.elapsed() > RECOVERY {
                tally.not_serving += 1;
                return Ok(());
            }
            if lane.gone().is_some() {
                lane = self.rig.lane(&self.breakable.browser, self.kind.backend()).await?;
                loaded = None;
            }
        }
    }

    /// A lane that has just given the right answer, and how long that took.
    async fn healthy(&self) -> Result<(Lane, Loaded, Duration)> {
        let began = Instant::now();
        while began.elapsed() < RECOVERY {
            let lane = self.rig.lane(&self.breakable.browser, self.kind.backend()).await?;
            let Ok(loaded) = lane.load(self.segment.clone()).await else { continue };
            let started = Instant::now();
            if lane.run(self.program(&loaded)).await.is_ok() {
                return Ok((lane, loaded, started.elapsed()));
            }
        }
        bail!("the lane does not serve")
    }

    fn program(&self, loaded: &Loaded) -> Program {
        Program { deadline: Some(self.deadline), ..program(loaded, &self.sample.inputs) }
    }

    /// One request, loading again first if need be. Whether it got its answer.
    async fn request(&self, lane: &Lane, loaded: &mut Option<Loaded>, tally: &mut Tally) -> bool {
        let ready = match loaded {
            Some(ready) => ready,
            None => match lane.load(self.segment.clone()).await {
                Ok(again) => loaded.insert(again),
                Err(error) => {
                    tally.error("load", &error);
                    return false;
                }
            },
        };
        let run = tokio::time::timeout(self.deadline + MARGIN, lane.run(self.program(ready)));
        match run.await {
            Err(_) => {
                tally.late += 1;
                false
            }
            Ok(Err(error)) => {
                tally.error("run", &error);
                // What is still there is not loaded again.
                *loaded = None;
                false
            }
            Ok(Ok(outcome)) => {
                let answer = tensors(outcome);
                let close = |(ours, theirs)| difference(ours, theirs).is_ok_and(|by| by <= 1e-3);
                let is_right = answer.len() == self.sample.expected.len()
                    && answer.iter().zip(&self.sample.expected).all(close);
                if is_right {
                    tally.right += 1;
                } else {
                    tally.wrong += 1;
                }
                is_right
            }
        }
    }
}

impl Tally {
    fn error(&mut self, during: &str, error: &DeviceError) {
        *self.errors.entry(format!("{during}: {}", error.kind())).or_default() += 1;
        // Nobody asked for anything wrong, and nobody cancelled.
        let blames_us =
            matches!(error.kind(), ErrorKind::Caller | ErrorKind::Cancelled | ErrorKind::Protocol);
        if blames_us {
            println!("  misjudged: {during}: {error}");
            self.misjudged += 1;
        }
    }

    fn record(&self, record: &mut Record, kind: Kind) {
        let errors: Vec<String> =
            self.errors.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let errors = if errors.is_empty() { "none".to_owned() } else { errors.join(", ") };
        let name = kind.name();
        let peer = format!(
            "{} right answers; errors: {errors}; back after {:.1} s at the latest",
            self.right,
            self.slowest_recovery.as_secs_f64()
        );
        let mut add = |part: &str, what: &str, count: usize| {
            let (id, what) =
                (format!("{}.{part}", kind.id()), format!("{name} {TIMES} times: {what}"));
            record.add(&id, &what, count as f64, "", &peer, Goal::AtMost(0.0));
        };
        add("wrong", "wrong answers", self.wrong);
        add("late", "requests without an answer in time", self.late);
        add("misjudged", "errors of the wrong kind", self.misjudged);
        add("dead", "times the lane did not serve again", self.not_serving);
    }
}
