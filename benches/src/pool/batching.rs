//! L6: requests that come at once, beside a loop over batches that somebody wrote by hand.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use holdfast_devices::cpu::CpuOptions;
use holdfast_devices::{Device, Program, SegmentId};
use holdfast_graph::Tensor;
use holdfast_pool::{Answer, PoolOptions, Request};
use ort::session::Session;
use ort::session::builder::GraphOptimizationLevel;

use super::rig::{Rig, request};
use crate::record::{Goal, Record};
use crate::spine::cases::MINILM;
use crate::timing::{Spread, median, settle};

const REQUESTS: usize = 64;
const BATCH: usize = 8;
const TOKENS: usize = 32;
/// Fresh pools and peers: where memory happens to lie is luck that a pool keeps for its life.
const REPEATS: usize = 3;
const ROUNDS: usize = 15;
const WARM_UPS: usize = 3;

pub(super) fn run(record: &mut Record) -> Result<()> {
    let cores = cores();
    let (mut ratios, mut engine_ratios, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    let mut wrong = 0;
    for _ in 0..REPEATS {
        let rig = Rig::new(PoolOptions::default())?;
        let requests = requests(&rig)?;
        let segment = rig.run(&requests[..1])?.remove(0).loaded.id;
        let expected = one_by_one(&rig, &requests)?;
        let mut peer = Peer::new(&rig, cores)?;
        for round in 0..WARM_UPS + ROUNDS {
            // Whoever goes second finds the cores warm, so they take turns in that as well.
            let before = (round % 2 == 1).then(|| peer.run()).transpose()?;
            settle();
            let started = Instant::now();
            let answers = rig.run(&requests)?;
            let took = started.elapsed();
            wrong += answers.iter().zip(&expected).filter(|(a, e)| output(a) != Some(e)).count();
            drop(answers);
            let engine_took = engine_alone(&rig, segment)?;
            let peer_took = before.map_or_else(|| peer.run(), Ok)?;
            if round >= WARM_UPS {
                engine_ratios.push(peer_took.as_secs_f64() / engine_took.as_secs_f64());
                ratios.push(peer_took.as_secs_f64() / took.as_secs_f64());
                theirs.push(peer_took);
            }
        }
        ensure!(rig.pool.metrics().batches.count > 0, "nothing ran together");
    }
    let spread = Spread::of(&mut ratios);
    let what = "MiniLM, 32 tokens, 64 requests at once on the CPU: throughput";
    let per_second = REQUESTS as f64 / median(&mut theirs).as_secs_f64();
    let peer = format!(
        "batches of 8 by hand over bare onnxruntime with {cores} threads: {per_second:.0} rows/s; \
         alternating, {REPEATS} pools of {ROUNDS} rounds, {spread}"
    );
    record.add("L6.throughput", what, spread.middle, "×", &peer, Goal::AtLeast(1.0));
    let spread = Spread::of(&mut engine_ratios);
    let what = "the same batches by hand over the pool's engine: throughput";
    record.add(
        "L6.engine",
        what,
        spread.middle,
        "×",
        &format!("the same peer; {spread}"),
        Goal::Report,
    );
    let what = "rows of those whose bits are not those of a run alone";
    let peer = format!("{} rows, each run alone", REPEATS * REQUESTS * (ROUNDS + WARM_UPS));
    record.add("L6.bits", what, wrong as f64, "rows", &peer, Goal::AtMost(0.0));
    Ok(())
}

/// How long the engine takes for the peer's batches, without the pool.
fn engine_alone(rig: &Rig, segment: SegmentId) -> Result<Duration> {
    let mut programs = Vec::new();
    for first in (0..REQUESTS).step_by(BATCH) {
        let outputs = ["last_hidden_state".to_owned()];
        let name = format!("by hand {first}");
        programs.push(Program::single(name, segment, inputs(first..first + BATCH)?, outputs));
    }
    settle();
    let started = Instant::now();
    for program in programs {
        std::hint::black_box(rig.runtime.block_on(rig.pool.engine().run(program))?);
    }
    Ok(started.elapsed())
}

/// Throughput by how many programs run at once, with how many threads, in batches of what size.
pub(super) fn settings(record: &mut Record) -> Result<()> {
    let cores = cores();
    for (concurrency, threads) in [(1, cores), (cores, cores), (cores, 1), (cores + 1, 1)] {
        for max_batch in [1, 4, 8, 16] {
            let cpu = CpuOptions { concurrency, threads, ..CpuOptions::default() };
            let rig = Rig::new(PoolOptions { cpu, max_batch, ..PoolOptions::default() })?;
            let requests = requests(&rig)?;
            let mut times = Vec::new();
            for round in 0..WARM_UPS + 5 {
                let started = Instant::now();
                rig.run(&requests)?;
                if round >= WARM_UPS {
                    times.push(started.elapsed());
                }
            }
            let per_second = REQUESTS as f64 / median(&mut times).as_secs_f64();
            let id = format!("L6.s{concurrency}t{threads}b{max_batch}");
            let what = format!("{concurrency} at once, {threads} threads, batches of {max_batch}");
            record.add(&id, &what, per_second, "rows/s", "the other settings", Goal::Report);
        }
    }
    Ok(())
}

/// What bare onnxruntime gives with a session of one thread for each core, beside one session
/// with all threads: what could be had by sharing out the threads. The engine does not, because
/// the bits of some models depend on how many threads they have.
pub(super) fn sessions(record: &mut Record) -> Result<()> {
    let cores = cores();
    let rig = Rig::new(PoolOptions::default())?;
    let mut wide = Peer::new(&rig, cores)?;
    let mut narrow = Vec::new();
    for _ in 0..cores {
        narrow.push(Peer::new(&rig, 1)?);
    }
    let mut ratios = Vec::new();
    for round in 0..WARM_UPS + ROUNDS {
        // As much for each of them as for the one with all threads.
        let one = wide.run()? * cores as u32;
        let started = Instant::now();
        std::thread::scope(|scope| {
            let runs: Vec<_> =
                narrow.iter_mut().map(|peer| scope.spawn(move || peer.run())).collect();
            runs.into_iter().try_for_each(|run| match run.join() {
                Ok(ran) => ran.map(drop),
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })?;
        let apart = started.elapsed();
        if round >= WARM_UPS {
            ratios.push(one.as_secs_f64() / apart.as_secs_f64());
        }
    }
    let spread = Spread::of(&mut ratios);
    let what = format!("bare onnxruntime: {cores} sessions of 1 thread, throughput");
    let peer = format!("1 session of {cores} threads; {ROUNDS} rounds, {spread}");
    record.add("L6.sessions", &what, spread.middle, "×", &peer, Goal::Report);
    Ok(())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Texts that differ.
fn requests(rig: &Rig) -> Result<Vec<Request>> {
    let graph = rig.import(&MINILM.path())?;
    (0..REQUESTS).map(|number| Ok(request(&graph, inputs(number..number + 1)?))).collect()
}

fn inputs(rows: std::ops::Range<usize>) -> Result<Vec<(String, Tensor)>> {
    let dims = [rows.len(), TOKENS];
    let id = |row: usize, token: usize| 1000 + ((row * 7919 + token * 104_729) % 20_000) as i64;
    let ids: Vec<i64> = rows.flat_map(|row| (0..TOKENS).map(move |token| id(row, token))).collect();
    let named = |name: &str, values: Vec<i64>| -> Result<(String, Tensor)> {
        Ok((name.to_owned(), Tensor::from_slice(&dims, &values)?))
    };
    let count = ids.len();
    Ok(vec![
        named("input_ids", ids)?,
        named("attention_mask", vec![1; count])?,
        named("token_type_ids", vec![0; count])?,
    ])
}

/// What each gives when nothing runs with it.
fn one_by_one(rig: &Rig, requests: &[Request]) -> Result<Vec<Tensor>> {
    let run = |request: &Request| -> Result<Tensor> {
        let answer = rig.run(std::slice::from_ref(request))?.remove(0);
        ensure!(answer.batch_rows == 1, "it did not run alone");
        output(&answer).cloned().context("no output")
    };
    requests.iter().map(run).collect()
}

fn output(answer: &Answer) -> Option<&Tensor> {
    answer.outcome.output("last_hidden_state")
}

/// What somebody would write: one session, all threads, and a loop.
struct Peer {
    session: Session,
}

impl Peer {
    fn new(rig: &Rig, threads: usize) -> Result<Peer> {
        let build = || -> ort::Result<Session> {
            Session::builder(rig.pool.engine().environment())?
                .with_optimization_level(GraphOptimizationLevel::All)?
                .with_intra_threads(threads)?
                .commit_from_file(MINILM.path())
        };
        Ok(Peer { session: build()? })
    }

    fn run(&mut self) -> Result<Duration> {
        let mut batches = Vec::new();
        for first in (0..REQUESTS).step_by(BATCH) {
            batches.push(inputs(first..first + BATCH)?);
        }
        settle();
        let started = Instant::now();
        for batch in batches {
            let mut values = Vec::new();
            for (name, tensor) in batch {
                let dims: Vec<i64> = tensor.dims().iter().map(|&dim| dim as i64).collect();
                let value = ort::value::Tensor::from_array((dims, tensor.to_vec::<i64>()?))?;
                values.push((name, value.into_dyn()));
            }
            let outputs = self.session.run(values)?;
            let (_, rows) = outputs[0].try_extract_tensor::<f32>()?;
            std::hint::black_box(rows.to_vec());
        }
        Ok(started.elapsed())
    }
}
