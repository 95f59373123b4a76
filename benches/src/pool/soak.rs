//! L5: a long time at four fifths of what the pool can do; its memory stays what it was.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use holdfast_devices::process_memory;
use holdfast_pool::{Answer, PoolOptions, Request};
use tokio::task::JoinSet;

use super::rig::{Rig, request, same};
use crate::record::{Goal, Record};
use crate::spine::cases::{Case, REAL, inputs};

/// How long the goal says; `HOLDFAST_SOAK_MINUTES` makes it another time.
const MINUTES: f64 = 30.0;
const VARIABLE: &str = "HOLDFAST_SOAK_MINUTES";
const LOAD: f64 = 0.8;
/// Of different shapes and sizes, so that what one frees does not just fit the next.
const MODELS: [&str; 3] = ["minilm", "magika", "silero-vad"];
const TOKENS: [usize; 3] = [8, 32, 57];
/// Callers that never wait, which is what capacity is.
const CALLERS: usize = 16;
const CAPACITY: Duration = Duration::from_secs(20);
const SAMPLE: Duration = Duration::from_secs(1);

pub(super) fn run(record: &mut Record) -> Result<()> {
    let minutes = match std::env::var(VARIABLE) {
        Ok(text) => text.parse().with_context(|| format!("{VARIABLE} is `{text}`"))?,
        Err(_) => MINUTES,
    };
    ensure!(minutes > 0.0 && f64::is_finite(minutes), "{VARIABLE} is {minutes}");
    let rig = Rig::new(PoolOptions::default())?;
    let asked = Arc::new(asked(&rig)?);
    let capacity = rig.runtime.block_on(capacity(&rig, &asked))?;
    println!("capacity: {capacity:.0} requests/s");
    let duration = Duration::from_secs_f64(minutes * 60.0);
    let soaked = rig.runtime.block_on(soak(&rig, &asked, capacity * LOAD, duration))?;

    let third = soaked.memory.len() / 3;
    ensure!(third > 0, "{minutes} minutes are too short to tell anything");
    let mean = |part: &[u64]| part.iter().sum::<u64>() as f64 / part.len() as f64;
    let second = mean(&soaked.memory[third..2 * third]);
    let last = mean(&soaked.memory[2 * third..]);
    let growth = (last / second - 1.0) * 100.0;
    // A shorter run is another figure, and says so.
    let (id, length) = match minutes >= MINUTES {
        true => ("L5.memory", format!("{minutes} minutes")),
        false => ("L5.short", format!("{minutes} minutes only, not 30")),
    };
    let what = format!("soak of {length}: memory, last third over second third");
    let achieved = soaked.answered as f64 / duration.as_secs_f64() / capacity * 100.0;
    let peer = format!(
        "{:.1} MB in the second third; {} answers, {achieved:.0} % of a capacity of {capacity:.0} \
         requests/s ({}), on the CPU",
        second / 1e6,
        soaked.answered,
        MODELS.join(", "),
    );
    record.add(id, &what, growth, "%", &peer, Goal::AtMost(2.0));
    let what = format!("soak of {length}: answers that failed or whose bits were not the same");
    let id = format!("{id}.wrong");
    let peer = format!("{} answers", soaked.answered);
    record.add(&id, &what, soaked.wrong as f64, "answers", &peer, Goal::AtMost(0.0));
    Ok(())
}

/// What is asked, with what a run alone gives.
type Asked = Vec<(Request, Answer)>;

fn asked(rig: &Rig) -> Result<Asked> {
    let mut asked = Vec::new();
    for id in MODELS {
        let case: &Case = REAL.iter().find(|case| case.id == id).context("no such model")?;
        let graph = rig.import(&case.path())?;
        for tokens in TOKENS {
            let request = request(&graph, inputs(case, &rig.inputs(&graph)?, 1, tokens)?);
            let alone = rig.run(std::slice::from_ref(&request))?.remove(0);
            asked.push((request, alone));
        }
    }
    Ok(asked)
}

/// Answers per second when somebody always waits.
async fn capacity(rig: &Rig, asked: &Arc<Asked>) -> Result<f64> {
    let started = Instant::now();
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (pool, asked) = (rig.pool.clone(), asked.clone());
        callers.spawn_on(
            async move {
                let mut count = 0;
                while started.elapsed() < CAPACITY {
                    pool.run(&asked[(caller + count) % asked.len()].0).await?;
                    count += 1;
                }
                anyhow::Ok(count)
            },
            rig.runtime.handle(),
        );
    }
    let mut total = 0;
    while let Some(count) = callers.join_next().await {
        total += count??;
    }
    Ok(total as f64 / started.elapsed().as_secs_f64())
}

struct Soaked {
    /// Private bytes of this process, every second.
    memory: Vec<u64>,
    answered: u64,
    wrong: u64,
}

/// Asks at a fixed rate, whether or not answers have come.
async fn soak(rig: &Rig, asked: &Arc<Asked>, rate: f64, duration: Duration) -> Result<Soaked> {
    let counts = Arc::new([const { AtomicU64::new(0) }; 2]);
    // Room from the start, so that the samples do not count themselves.
    let mut memory =
        Vec::with_capacity((duration.as_secs_f64() / SAMPLE.as_secs_f64()) as usize + 2);
    let started = Instant::now();
    let mut next_sample = Duration::ZERO;
    let mut sent = 0u64;
    let mut running = JoinSet::new();
    while started.elapsed() < duration {
        while (sent as f64) < rate * started.elapsed().as_secs_f64() {
            let (pool, asked, counts) = (rig.pool.clone(), asked.clone(), counts.clone());
            let number = sent as usize % asked.len();
            running.spawn_on(
                async move {
                    let (request, alone) = &asked[number];
                    let right = pool.run(request).await.is_ok_and(|answer| same(&answer, alone));
                    counts[usize::from(!right)].fetch_add(1, Ordering::Relaxed);
                },
                rig.runtime.handle(),
            );
            sent += 1;
        }
        while running.try_join_next().is_some() {}
        if started.elapsed() >= next_sample {
            memory.push(process_memory().context("the system does not tell")?.private_bytes);
            next_sample += SAMPLE;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    while running.join_next().await.is_some() {}
    let [right, wrong] = [&counts[0], &counts[1]].map(|count| count.load(Ordering::Relaxed));
    Ok(Soaked { memory, answered: right + wrong, wrong })
}
