//! L3 in browsers: several models at once over the lanes of two browsers, beside one after the other,
//! and beside bare pages in browsers of their own, which is what the cores allow.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use holdfast_browsers::Browser;
use holdfast_devices::Segment;
use holdfast_devices::cpu::Target;
use holdfast_models::StoredGraph;
use holdfast_pool::{Answer, Request};
use holdfast_testkit::{Recipe, Size, bert};

use super::fleet::Fleet;
use super::rig::same;
use crate::lane::bare::Bare;
use crate::lane::launch;
use crate::record::{Goal, Record};
use crate::spine::cases::REAL;
use crate::timing::{Spread, median, settle};

/// How long each model's part takes when it is alone.
const PART: Duration = Duration::from_millis(1_500);
const TOKENS: usize = 32;
const ROUNDS: usize = 7;
/// After these, every model was loaded wherever it is going to run.
const WARM_UPS: usize = 2;

pub(super) fn run(record: &mut Record) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(record))
}

async fn measure(record: &mut Record) -> Result<()> {
    let fleet = Fleet::start(1).await?;
    let mut parts = Vec::new();
    for (name, graph, ids) in models(&fleet)? {
        parts.push(Part::new(&fleet, name, graph, ids).await?);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut wrong = 0;
    for count in 2..=parts.len() {
        let parts = &parts[..count];
        let mut narrow = Pages::open(&fleet, parts, 1).await?;
        let mut wide = Pages::open(&fleet, parts, cores).await?;
        let (mut over_one, mut over_pages) = (Vec::new(), Vec::new());
        let mut ours = Vec::new();
        for round in 0..WARM_UPS + ROUNDS {
            settle();
            let started = Instant::now();
            for part in parts {
                wrong += part.run(&fleet).await?;
            }
            let one_after_the_other = started.elapsed();
            settle();
            let started = Instant::now();
            let each = try_join_all(parts.iter().map(|part| part.run(&fleet))).await?;
            let at_once = started.elapsed();
            wrong += each.into_iter().sum::<usize>();
            // Whichever way is better for pages is what the cores allow.
            let pages = narrow.run(parts).await?.min(wide.run(parts).await?);
            if round >= WARM_UPS {
                let seconds = at_once.as_secs_f64();
                over_one.push(one_after_the_other.as_secs_f64() / seconds);
                over_pages.push(pages.as_secs_f64() / seconds);
                ours.push(at_once);
            }
        }
        narrow.close().await?;
        wide.close().await?;
        let names: Vec<&str> = parts.iter().map(|part| part.name).collect();
        let spread = Spread::of(&mut over_one);
        let what = format!("{count} models at once on wasm ({}): throughput", names.join(", "));
        let peer = format!("one after the other over the pool; {ROUNDS} rounds, {spread}");
        record.add(&format!("L3.wasm{count}"), &what, spread.middle, "×", &peer, Goal::Report);
        let spread = Spread::of(&mut over_pages);
        let what = format!("{count} models at once on wasm: of what the cores allow");
        let peer = format!(
            "bare pages in {count} browsers at once, with 1 or {cores} threads each, whichever was \
             faster; {:.2} s of ours, {ROUNDS} rounds, {spread}",
            median(&mut ours).as_secs_f64()
        );
        let id = format!("L3.wasm{count}.cores");
        record.add(&id, &what, spread.middle, "×", &peer, Goal::AtLeast(0.9));
    }
    let what = "answers of those whose bits are not those of a run alone";
    record.add("L3.wasm.bits", what, wrong as f64, "answers", "a run alone", Goal::AtMost(0.0));
    fleet.pool.close().await;
    Ok(())
}

/// The models, the first two of them first, and how many different ids each takes.
fn models(fleet: &Fleet) -> Result<Vec<(&'static str, StoredGraph, usize)>> {
    let real = |id: &'static str| -> Result<_> {
        let case = REAL.iter().find(|case| case.id == id).with_context(|| format!("no `{id}`"))?;
        Ok((id, fleet.import(&case.path())?, 20_000))
    };
    let made = |name: &'static str, layers, hidden, seed| -> Result<_> {
        let model = bert(&Recipe::new(Size::new(layers, hidden), seed))?;
        Ok((name, fleet.add(&model, name)?, 250))
    };
    Ok(vec![
        real("minilm")?,
        real("gte-small")?,
        made("bert-4x256", 4, 256, 1)?,
        made("bert-8x128", 8, 128, 2)?,
    ])
}

/// What is asked of one model, one request after the other.
struct Part {
    name: &'static str,
    request: Request,
    segment: Segment,
    alone: Answer,
    count: usize,
}

impl Part {
    async fn new(
        fleet: &Fleet,
        name: &'static str,
        graph: StoredGraph,
        ids: usize,
    ) -> Result<Part> {
        let request = fleet.request(&graph, (TOKENS, ids), 1, "wasm")?;
        let alone = fleet.pool.run(&request).await?;
        let mut times = Vec::new();
        for _ in 0..9 {
            let started = Instant::now();
            fleet.pool.run(&request).await?;
            times.push(started.elapsed());
        }
        let count = (PART.as_secs_f64() / median(&mut times).as_secs_f64()).ceil() as usize;
        let lowered = fleet.pool.engine().lower(&graph, Target::Wasm, &BTreeMap::new()).await?;
        let segment = Segment::new(lowered);
        Ok(Part { name, request, segment, alone, count: count.max(1) })
    }

    /// Runs it all. How many answers were wrong.
    async fn run(&self, fleet: &Fleet) -> Result<usize> {
        let (pool, asked, count) = (fleet.pool.clone(), self.request.clone(), self.count);
        // In a task, as requests of a server are.
        let answers = tokio::spawn(async move {
            let mut answers = Vec::with_capacity(count);
            for _ in 0..count {
                answers.push(pool.run(&asked).await?);
            }
            anyhow::Ok(answers)
        });
        let answers = answers.await??;
        Ok(answers.iter().filter(|answer| !same(answer, &self.alone)).count())
    }
}

/// A bare page for each part, in a browser of its own.
struct Pages(Vec<(Browser, Bare)>);

impl Pages {
    async fn open(fleet: &Fleet, parts: &[Part], threads: usize) -> Result<Pages> {
        let mut pages = Vec::new();
        for part in parts {
            let page = Bare::page(fleet.store.clone()).await?;
            let browser = launch(&page.address)?.start().await?;
            let mut page = page.opened().await?;
            page.load(&part.segment, &part.request.inputs, threads).await?;
            let (_, first) = page.run().await?;
            let ours = part.alone.outcome.outputs[0].tensor.to_vec::<f32>()?;
            ensure!((f64::from(ours[0]) - first).abs() < 1e-5, "the bare page computes otherwise");
            pages.push((browser, page));
        }
        Ok(Pages(pages))
    }

    /// Has all of them work at once, until the last is done.
    async fn run(&mut self, parts: &[Part]) -> Result<Duration> {
        settle();
        let started = Instant::now();
        let runs = self.0.iter_mut().zip(parts).map(|((_, page), part)| async move {
            for _ in 0..part.count {
                page.run().await?;
            }
            anyhow::Ok(())
        });
        try_join_all(runs).await?;
        Ok(started.elapsed())
    }

    async fn close(self) -> Result<()> {
        for (browser, page) in self.0 {
            drop(page);
            browser.close().await?;
        }
        Ok(())
    }
}
