//! L3: several models at once on the processor, beside one after the other and beside processes
//! that have nothing to do with each other, which is what the cores allow.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use holdfast_devices::{Device, Loaded, Program};
use holdfast_pool::{Answer, PoolOptions, Request};

use super::bare::Bare;
use super::rig::{Rig, request, same};
use crate::record::{Goal, Record};
use crate::spine::cases::{Case, REAL, inputs};
use crate::timing::{Spread, median, settle};

/// The models, the first two of them first: text, text, file types, reading.
const MODELS: [&str; 4] = ["minilm", "gte-small", "magika", "rapidocr-rec"];
/// How long each model's part takes when it is alone.
const PART: Duration = Duration::from_millis(700);
const TOKENS: usize = 32;
const ROUNDS: usize = 7;
const WARM_UPS: usize = 1;

pub(super) fn run(record: &mut Record) -> Result<()> {
    let rig = Rig::new(PoolOptions::default())?;
    let mut parts = Vec::new();
    for id in MODELS {
        parts.push(Part::new(&rig, id)?);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut wrong = 0;
    for count in 2..=MODELS.len() {
        let parts = &parts[..count];
        let mut narrow = Processes::start(parts, 1)?;
        let mut wide = Processes::start(parts, cores)?;
        let (mut ours, mut engine) = (Vec::new(), Vec::new());
        let (mut over_one, mut over_processes) = (Vec::new(), Vec::new());
        for round in 0..WARM_UPS + ROUNDS {
            settle();
            let started = Instant::now();
            for part in parts {
                wrong += rig.runtime.block_on(part.run(&rig))?;
            }
            let one_after_the_other = started.elapsed();
            settle();
            let started = Instant::now();
            let all = try_join_all(parts.iter().map(|part| part.run(&rig)));
            wrong += rig.runtime.block_on(all)?.iter().sum::<usize>();
            let at_once = started.elapsed();
            settle();
            let started = Instant::now();
            let all = try_join_all(parts.iter().map(|part| part.run_bare(&rig)));
            rig.runtime.block_on(all)?;
            let without_pool = started.elapsed();
            // Whichever way is better for processes is what the cores allow.
            let processes = narrow.run()?.min(wide.run()?);
            if round >= WARM_UPS {
                let seconds = at_once.as_secs_f64();
                over_one.push(one_after_the_other.as_secs_f64() / seconds);
                over_processes.push(processes.as_secs_f64() / seconds);
                engine.push(processes.as_secs_f64() / without_pool.as_secs_f64());
                ours.push(at_once);
            }
        }
        let names = MODELS[..count].join(", ");
        let spread = Spread::of(&mut over_one);
        let what = format!("{count} models at once on the CPU ({names}): throughput");
        let peer = format!("one after the other over the pool; {ROUNDS} rounds, {spread}");
        record.add(&format!("L3.cpu{count}"), &what, spread.middle, "×", &peer, Goal::Report);
        let spread = Spread::of(&mut over_processes);
        let what = format!("{count} models at once on the CPU: of what the cores allow");
        let peer = format!(
            "bare onnxruntime in {count} processes started at once, with 1 or {cores} threads \
             each, whichever was faster; {:.2} s of ours, {ROUNDS} rounds, {spread}",
            median(&mut ours).as_secs_f64()
        );
        let id = format!("L3.cpu{count}.cores");
        record.add(&id, &what, spread.middle, "×", &peer, Goal::AtLeast(0.9));
        let spread = Spread::of(&mut engine);
        let what = format!("{count} models at once over the engine without the pool");
        let peer = format!("the same processes; {spread}");
        let id = format!("L3.cpu{count}.engine");
        record.add(&id, &what, spread.middle, "×", &peer, Goal::Report);
    }
    let what = "answers of those whose bits are not those of a run alone";
    record.add("L3.bits", what, wrong as f64, "answers", "a run alone", Goal::AtMost(0.0));
    Ok(())
}

/// The part of a process: one model, bare, as often as it is told, whenever it is told.
pub(crate) fn child(arguments: &[String]) -> Result<()> {
    let [id, count, threads] = arguments else { anyhow::bail!("a part needs three arguments") };
    let (count, threads): (usize, usize) = (count.parse()?, threads.parse()?);
    let mut bare = Bare::new(case(id)?, TOKENS, threads)?;
    bare.run()?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "ready")?;
    for line in std::io::stdin().lines() {
        line?;
        for _ in 0..count {
            bare.run()?;
        }
        writeln!(stdout, "done")?;
    }
    Ok(())
}

/// What is asked of one model, one request after the other.
struct Part {
    id: &'static str,
    request: Request,
    alone: Answer,
    count: usize,
}

impl Part {
    fn new(rig: &Rig, id: &'static str) -> Result<Part> {
        let case = case(id)?;
        let graph = rig.import(&case.path())?;
        let request = request(&graph, inputs(case, &rig.inputs(&graph)?, 1, TOKENS)?);
        let once = || Ok::<_, anyhow::Error>(rig.run(std::slice::from_ref(&request))?.remove(0));
        let alone = once()?;
        let mut times = Vec::new();
        for _ in 0..9 {
            let started = Instant::now();
            once()?;
            times.push(started.elapsed());
        }
        let count = (PART.as_secs_f64() / median(&mut times).as_secs_f64()).ceil() as usize;
        Ok(Part { id, request, alone, count: count.max(1) })
    }

    /// Runs it all. How many answers were wrong.
    async fn run(&self, rig: &Rig) -> Result<usize> {
        let (pool, asked, count) = (rig.pool.clone(), self.request.clone(), self.count);
        // In a task, as requests of a server are.
        let answers = rig.runtime.spawn(async move {
            let mut answers = Vec::with_capacity(count);
            for _ in 0..count {
                answers.push(pool.run(&asked).await?);
            }
            anyhow::Ok(answers)
        });
        let answers = answers.await??;
        Ok(answers.iter().filter(|answer| !same(answer, &self.alone)).count())
    }

    /// The same without the pool.
    async fn run_bare(&self, rig: &Rig) -> Result<()> {
        let (engine, inputs, count) =
            (rig.pool.engine().clone(), self.request.inputs.clone(), self.count);
        let Loaded { id: segment, outputs, .. } = self.alone.loaded.clone();
        let name = self.id;
        let runs = rig.runtime.spawn(async move {
            for _ in 0..count {
                let outputs = outputs.iter().map(|output| output.name.clone());
                engine.run(Program::single(name, segment, inputs.clone(), outputs)).await?;
            }
            anyhow::Ok(())
        });
        runs.await?
    }
}

fn case(id: &str) -> Result<&'static Case> {
    REAL.iter().find(|case| case.id == id).with_context(|| format!("no model `{id}`"))
}

/// A process for each part. They end when their input does.
struct Processes(Vec<(Child, ChildStdin, BufReader<ChildStdout>)>);

impl Processes {
    fn start(parts: &[Part], threads: usize) -> Result<Processes> {
        let mut processes = Processes(Vec::new());
        for part in parts {
            let mut child = Command::new(std::env::current_exe()?)
                .args(["--child", "bare", part.id, &part.count.to_string(), &threads.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let stdin = child.stdin.take().context("no way in")?;
            let stdout = BufReader::new(child.stdout.take().context("no way out")?);
            processes.0.push((child, stdin, stdout));
        }
        processes.expect("ready")?;
        Ok(processes)
    }

    /// Has all of them work at once, until the last is done.
    fn run(&mut self) -> Result<Duration> {
        settle();
        let started = Instant::now();
        for (_, stdin, _) in &mut self.0 {
            stdin.write_all(b"go\n")?;
        }
        self.expect("done")?;
        Ok(started.elapsed())
    }

    fn expect(&mut self, word: &str) -> Result<()> {
        for (_, _, stdout) in &mut self.0 {
            let mut line = String::new();
            stdout.read_line(&mut line)?;
            ensure!(line.trim() == word, "a process said `{}`, not `{word}`", line.trim());
        }
        Ok(())
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for (mut child, stdin, stdout) in self.0.drain(..) {
            drop((stdin, stdout));
            // One that has ended by itself needs no more than this.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
