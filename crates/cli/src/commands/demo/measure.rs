//! The comparison: both sides of a set, run in turn.
//!
//! In turn, because a noisy moment then hits both; and the fastest run of each counts, because
//! noise only ever adds.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use holdfast_devices::DeviceInfo;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::scenarios::{Input, Set};
use super::side::{Asked, Job, Ran, Said};
use super::workshop::Workshop;
use crate::args::{DemoArgs, Global};

/// Both sides of a set.
pub(crate) struct Measured {
    pub(crate) shared: Figures,
    /// Why there are none, where the models did not fit into the memory that was allowed.
    pub(crate) unshared: Option<Result<Figures, String>>,
    /// The texts that were shown, with the best class by each model.
    pub(crate) shown: Vec<(String, Vec<String>)>,
}

/// What was measured of one side.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub(crate) times: Vec<Duration>,
    pub(crate) memory: Option<u64>,
    pub(crate) devices: Vec<DeviceInfo>,
    pub(crate) reused_tensors: usize,
    pub(crate) reused_bytes: u64,
}

impl Figures {
    pub(crate) fn fastest(&self) -> Duration {
        self.times.iter().min().copied().unwrap_or_default()
    }
}

/// Inputs that are run to warm up, before anything is measured.
pub(crate) const WARM_UP: usize = 3;
/// At least so many rounds, and more while there is time.
const LEAST_ROUNDS: usize = 5;
const MOST_ROUNDS: usize = 25;
const ENOUGH: Duration = Duration::from_secs(3);

/// How a set is measured.
pub(crate) struct Measuring<'a> {
    pub(crate) global: &'a Global,
    pub(crate) args: &'a DemoArgs,
    pub(crate) workshop: &'a Workshop,
}

impl Measuring<'_> {
    pub(crate) async fn measure(&self, set: &Set) -> anyhow::Result<Measured> {
        let spinner = &self.workshop.spinner;
        // A plan is tried once in a store, which takes memory that later processes do without.
        spinner.say("finding what is in common and proving that it keeps every bit");
        Side::start(self, set, true).await?.end().await?;
        spinner.say("loading with sharing");
        let mut shared = Side::start(self, set, true).await?;
        // Before the other side starts: browsers share what they map, so each changes the other's
        // account.
        shared.measure_memory().await?;
        let mut unshared = None;
        if self.args.compare {
            spinner.say("loading without sharing");
            unshared = Some(match self.start_unshared(set).await {
                Ok(side) => Ok(side),
                // That it does not fit is what the limit is there to show.
                Err(error) if self.args.max_memory.is_some() => Err(format!("{error:#}")),
                Err(error) => return Err(error.context("without sharing")),
            });
        }
        let started = Instant::now();
        let last = set.input.rounds().min(WARM_UP + MOST_ROUNDS);
        for round in WARM_UP..last {
            let done = round - WARM_UP;
            if done >= LEAST_ROUNDS && started.elapsed() > ENOUGH {
                break;
            }
            spinner.say(format!("running, round {}", done + 1));
            let with = shared.run(Asked::Run(round)).await?;
            if let Some(Ok(unshared)) = &mut unshared {
                let without = unshared.run(Asked::Run(round)).await?;
                compare(&set.models, &with, &without)?;
                unshared.note(without);
            }
            shared.note(with);
        }
        let shown = self.show(set, &mut shared).await?;
        let shared = shared.end().await?;
        let unshared = match unshared {
            Some(Ok(side)) => Some(Ok(side.end().await?)),
            Some(Err(error)) => Some(Err(error)),
            None => None,
        };
        Ok(Measured { shared, unshared, shown })
    }

    async fn start_unshared(&self, set: &Set) -> anyhow::Result<Side> {
        let mut side = Side::start(self, set, false).await?;
        side.measure_memory().await?;
        Ok(side)
    }

    /// What the models say to the texts that are for showing.
    async fn show(&self, set: &Set, side: &mut Side) -> anyhow::Result<Vec<(String, Vec<String>)>> {
        let Input::Texts { shown, .. } = &set.input else { return Ok(Vec::new()) };
        let ran = side.run(Asked::Show).await?;
        let of_text = |(index, text): (usize, &String)| {
            let label = |given: &super::side::Given| given.labels.get(index).cloned();
            (text.clone(), ran.answers.iter().filter_map(label).collect())
        };
        Ok(shown.iter().enumerate().map(of_text).collect())
    }

    /// Where a packaged browser is: the user's own if there is one, so that it need not be
    /// unpacked again.
    fn browsers(&self) -> anyhow::Result<PathBuf> {
        let of_user = self.global.home()?.join("browsers");
        Ok(if of_user.is_dir() { of_user } else { self.workshop.path("browsers") })
    }
}

/// Whether both sides gave the same bits.
fn compare(models: &[String], with: &Ran, without: &Ran) -> anyhow::Result<()> {
    for (model, (with, without)) in models.iter().zip(with.answers.iter().zip(&without.answers)) {
        ensure!(
            with.digest == without.digest,
            "`{model}` gave other bits with sharing than without; please report this"
        );
    }
    Ok(())
}

/// A side's process. When it is dropped, the process is ended.
struct Side {
    process: Child,
    asks: ChildStdin,
    says: Lines<BufReader<ChildStdout>>,
    figures: Figures,
}

impl Side {
    /// Starts a side and waits until its models are loaded.
    async fn start(measuring: &Measuring<'_>, set: &Set, share: bool) -> anyhow::Result<Side> {
        let Measuring { global, args, workshop } = measuring;
        let program = std::env::current_exe().context("cannot find this program's path")?;
        let mut command = Command::new(program);
        command.arg("demo-side").arg("--home").arg(workshop.home());
        if let Some(library) = &global.onnxruntime {
            command.arg("--onnxruntime").arg(library);
        }
        for kind in &args.browser {
            command.arg("--browser").arg(kind.id());
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().context("cannot start a process to measure in")?;
        let (asks, says) = process.stdin.take().zip(process.stdout.take()).context("no pipes")?;
        let figures = Figures {
            times: vec![],
            memory: None,
            devices: vec![],
            reused_tensors: 0,
            reused_bytes: 0,
        };
        let mut side = Side { process, asks, says: BufReader::new(says).lines(), figures };
        let job = Job {
            models: set.models.clone(),
            input: set.input.clone(),
            share,
            hardware: args.hardware.name().parse().map_err(anyhow::Error::msg)?,
            max_memory: args.max_memory.map(|megabytes| u64::from(megabytes) * 1_000_000),
            browsers: measuring.browsers()?,
        };
        side.write(&serde_json::to_string(&job)?).await?;
        match side.read().await? {
            Said::Ready => Ok(side),
            other => bail!("expected the models to be loaded, but it said {other:?}"),
        }
    }

    async fn run(&mut self, asked: Asked) -> anyhow::Result<Ran> {
        self.write(&serde_json::to_string(&asked)?).await?;
        match self.read().await? {
            Said::Ran(ran) => Ok(ran),
            other => bail!("expected answers, but it said {other:?}"),
        }
    }

    fn note(&mut self, ran: Ran) {
        let Ran { took, devices, reused_tensors, reused_bytes, .. } = ran;
        let Figures { times, .. } = &mut self.figures;
        times.push(took);
        let times = std::mem::take(times);
        let memory = self.figures.memory;
        self.figures = Figures { times, memory, devices, reused_tensors, reused_bytes };
    }

    async fn measure_memory(&mut self) -> anyhow::Result<()> {
        self.write(&serde_json::to_string(&Asked::Memory)?).await?;
        match self.read().await? {
            Said::Memory(bytes) => self.figures.memory = bytes,
            other => bail!("expected a size, but it said {other:?}"),
        }
        Ok(())
    }

    /// Lets the process end by itself, which closes its browser.
    async fn end(self) -> anyhow::Result<Figures> {
        let Side { mut process, asks, figures, .. } = self;
        drop(asks);
        process.wait().await.context("cannot wait for a process")?;
        Ok(figures)
    }

    async fn write(&mut self, line: &str) -> anyhow::Result<()> {
        // One that has ended has said why, which is read next.
        let _ = self.asks.write_all(format!("{line}\n").as_bytes()).await;
        Ok(())
    }

    async fn read(&mut self) -> anyhow::Result<Said> {
        let line = self.says.next_line().await.context("cannot read from a process")?;
        let Some(line) = line else {
            let status = self.process.wait().await.context("cannot wait for a process")?;
            bail!("the process that measures ended early ({status})");
        };
        match serde_json::from_str(&line).context("cannot read what a process said")? {
            Said::Failed(reason) => bail!("{reason}"),
            said => Ok(said),
        }
    }
}
