//! One side of a comparison: the models of a set, with or without sharing, in a process of its own.
//!
//! Memory can only be told apart by process, and a process does not get rid of what it has loaded.
//! The demo talks with it in lines of JSON: a [`Job`] first, then any number of [`Asked`], each
//! answered by a [`Said`]. It ends when nobody asks any more.
//!
//! Without sharing, every model has an engine of its own on the CPU, so that not even weights are
//! shared; in a browser, requests ask for it.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures_util::{StreamExt, TryStreamExt, stream};
use holdfast_devices::{DeviceInfo, Returned, process_memory};
use holdfast_graph::{Digest, Tensor};
use holdfast_pool::{Answer, Choices, PoolOptions, Priority, Request};
use serde::{Deserialize, Serialize};

use super::contender::Contender;
use super::measure::WARM_UP;
use super::scenarios::Input;
use super::workshop::NOTHING;
use crate::args::{DemoSideArgs, Global};
use crate::output;
use crate::place::{Place, browser_options, pool_options};

/// What a side is to run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) models: Vec<String>,
    pub(crate) input: Input,
    pub(crate) share: bool,
    pub(crate) hardware: Choices,
    /// Bytes that models may take.
    pub(crate) max_memory: Option<u64>,
    /// Where a packaged browser is unpacked.
    pub(crate) browsers: PathBuf,
}

/// What a side is asked to do.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Asked {
    /// One input through all models.
    Run(usize),
    /// The texts that are for showing.
    Show,
    /// What the models have added to the memory of an empty engine.
    Memory,
}

/// What a side answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Said {
    /// The models are loaded and have warmed up.
    Ready,
    Ran(Ran),
    Memory(Option<u64>),
    /// It cannot go on.
    Failed(String),
}

/// What came of one input.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ran {
    pub(crate) took: Duration,
    /// By model.
    pub(crate) answers: Vec<Given>,
    /// What computed them, each once.
    pub(crate) devices: Vec<DeviceInfo>,
    /// Tensors that were there already and did not have to be computed, for all models.
    pub(crate) reused_tensors: usize,
    pub(crate) reused_bytes: u64,
}

/// What one model gave.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Given {
    /// The digest of all outputs: equal means the same bits.
    pub(crate) digest: String,
    /// The best class of each text, where the model has classes.
    pub(crate) labels: Vec<String>,
}

/// Runs a side until nobody asks any more.
pub(crate) fn run(global: &Global, args: &DemoSideArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(serve(global, args));
    if let Err(error) = &done {
        say(&Said::Failed(output::message(error)))?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

async fn serve(global: &Global, args: &DemoSideArgs) -> anyhow::Result<()> {
    let mut lines = std::io::stdin().lines();
    let job = lines.next().context("no job was given")??;
    let job: Job = serde_json::from_str(&job).context("cannot read the job")?;
    let side = Side::open(global, args, job).await?;
    let served = side.answer(lines).await;
    for place in side.places {
        place.close().await;
    }
    served
}

fn say(said: &Said) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, said)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

struct Side {
    job: Job,
    contenders: Vec<Contender>,
    /// What engines warm up on.
    nothing: Contender,
    /// One for all models, or one for each.
    places: Vec<Place>,
}

impl Side {
    async fn open(global: &Global, args: &DemoSideArgs, job: Job) -> anyhow::Result<Side> {
        let store = global.store()?;
        let in_browser = job.hardware.need_browser();
        let count = if job.share || in_browser { 1 } else { job.models.len() };
        let mut places = Vec::new();
        for _ in 0..count {
            let options = options(global, args, &job, count)?;
            // Stores keep files mapped, which is a way of sharing, too.
            let store = Arc::new(global.store()?);
            places.push(Place::here(store, options, in_browser).await?);
        }
        let contenders = job
            .models
            .iter()
            .map(|name| Contender::open(&store, name))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let nothing = Contender::open(&store, NOTHING)?;
        Ok(Side { job, contenders, nothing, places })
    }

    async fn answer(
        &self,
        lines: impl Iterator<Item = std::io::Result<String>>,
    ) -> anyhow::Result<()> {
        self.warm_up().await?;
        let empty = self.memory().await;
        for round in 0..WARM_UP {
            self.run(self.requests(|contender| contender.round(&self.job.input, round))?).await?;
        }
        say(&Said::Ready)?;
        for line in lines {
            let asked = serde_json::from_str(&line?).context("cannot read what is asked")?;
            say(&match asked {
                Asked::Run(round) => {
                    let inputs = |contender: &Contender| contender.round(&self.job.input, round);
                    Said::Ran(self.run(self.requests(inputs)?).await?)
                }
                Asked::Show => {
                    let Input::Texts { shown, .. } = &self.job.input else {
                        bail!("there are no texts to show")
                    };
                    let inputs = |contender: &Contender| contender.texts(shown);
                    Said::Ran(self.run(self.requests(inputs)?).await?)
                }
                Asked::Memory => {
                    let now = self.memory().await;
                    Said::Memory(now.zip(empty).map(|(now, empty)| now.saturating_sub(empty)))
                }
            })?;
        }
        Ok(())
    }

    fn requests(
        &self,
        inputs: impl Fn(&Contender) -> anyhow::Result<Vec<(String, Tensor)>>,
    ) -> anyhow::Result<Vec<Request>> {
        let request = |contender: &Contender| {
            let inputs =
                inputs(contender).with_context(|| format!("cannot feed `{}`", contender.name))?;
            Ok(self.request(contender, inputs))
        };
        self.contenders.iter().map(request).collect()
    }

    fn request(&self, contender: &Contender, inputs: Vec<(String, Tensor)>) -> Request {
        Request {
            model: contender.name.clone(),
            graph: contender.graph.clone(),
            kind: contender.kind,
            inputs,
            choices: self.job.hardware.clone(),
            priority: Priority::Normal,
            deadline: None,
            share: self.job.share,
            namespace: String::new(),
        }
    }

    /// Engines take some memory once they have run anything at all.
    async fn warm_up(&self) -> anyhow::Result<()> {
        let inputs = self.nothing.round(&Input::Made { tokens: 1 }, 0)?;
        // It is not one of the models that are in play.
        let request = Request { share: false, ..self.request(&self.nothing, inputs) };
        for place in &self.places {
            place.run(&request).await.context("cannot warm up")?;
        }
        Ok(())
    }

    async fn run(&self, requests: Vec<Request>) -> anyhow::Result<Ran> {
        let started = Instant::now();
        let answers = match self.places.as_slice() {
            [Place::Here { pool, .. }] => {
                let answers = pool.run_concurrent(&requests).await;
                answers.into_iter().collect::<Result<Vec<Answer>, _>>()?
            }
            // As many at once as one pool would run.
            several => {
                let at_once = PoolOptions::default().cpu.concurrency.max(1);
                let runs = several.iter().zip(&requests).map(|(place, request)| place.run(request));
                stream::iter(runs).buffered(at_once).try_collect().await?
            }
        };
        let took = started.elapsed();
        Ran::new(took, &self.contenders, &answers)
    }

    /// The memory of what computes: this process, or the browser that it has started.
    async fn memory(&self) -> Option<u64> {
        let mut least = self.look()?;
        let mut unchanged = 0;
        // What was let go is given back a little later.
        while unchanged < LOOKS {
            tokio::time::sleep(LOOK).await;
            let now = self.look()?;
            unchanged = if now + (1 << 20) < least { 0 } else { unchanged + 1 };
            least = least.min(now);
        }
        Some(least)
    }

    fn look(&self) -> Option<u64> {
        if !self.job.hardware.need_browser() {
            return process_memory().map(|memory| memory.private_bytes);
        }
        let [Place::Here { pool, .. }] = self.places.as_slice() else { return None };
        let browsers = pool.metrics().fleet.browsers;
        let memory = |process: Option<u32>| process.and_then(holdfast_browsers::tree_memory);
        browsers.iter().map(|browser| memory(browser.process)).sum()
    }
}

/// How often memory is looked at until it has settled.
const LOOKS: usize = 5;
const LOOK: Duration = Duration::from_millis(100);

/// A pool for one of `count` that have the memory together.
fn options(
    global: &Global,
    args: &DemoSideArgs,
    job: &Job,
    count: usize,
) -> anyhow::Result<PoolOptions> {
    let mut options = pool_options(global, None, None, Arc::new(|_| {}))?;
    if let Some(bytes) = job.max_memory {
        options.cpu_model_bytes = bytes / count.max(1) as u64;
        options.lane_model_bytes = bytes;
    }
    if job.hardware.need_browser() {
        let mut browser = browser_options(global, &args.browser)?;
        browser.cache = job.browsers.clone();
        // The other side may take long.
        browser.idle = Duration::from_secs(3600);
        options.browser = Some(browser);
    }
    Ok(options)
}

impl Ran {
    fn new(took: Duration, contenders: &[Contender], answers: &[Answer]) -> anyhow::Result<Ran> {
        let mut ran =
            Ran { took, answers: vec![], devices: vec![], reused_tensors: 0, reused_bytes: 0 };
        for (contender, answer) in contenders.iter().zip(answers) {
            let labels = contender.labels(answer)?;
            ran.answers.push(Given { digest: digest(answer), labels });
            let device = answer.outcome.device.as_ref();
            if !ran.devices.iter().any(|known| known.name == device.name) {
                ran.devices.push(device.clone());
            }
            ran.reused_tensors += answer.reused.tensors;
            ran.reused_bytes += answer.reused.bytes;
        }
        Ok(ran)
    }
}

/// The digest of all outputs with their names, types and shapes.
fn digest(answer: &Answer) -> String {
    let line = |output: &Returned| {
        let (dtype, dims) = (output.tensor.dtype(), output.tensor.dims());
        format!("{:?} {dtype}{dims:?} {}", output.name, Digest::of(output.tensor.bytes()))
    };
    let mut lines: Vec<String> = answer.outcome.outputs.iter().map(line).collect();
    lines.sort();
    Digest::of(lines.join("\n").as_bytes()).to_string()
}
