//! W2: what Holdfast adds to a request, beside the same model in a bare page of the same browser.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use holdfast_devices::Device;
use holdfast_devtools::ARGUMENT;
use holdfast_wire::Backend;

use super::bare::Bare;
use super::models::Sample;
use super::rig::{self, Rig, THREADS};
use crate::record::{Goal, Record};
use crate::spine::cases::MINILM;
use crate::timing::median;

/// Each browser lays out its memory in its own way, which alone changes times by some percent.
const BROWSERS: usize = 5;

/// Both sides take turns, with requests one after the other in each turn.
const TURNS: usize = 10;
const REQUESTS: usize = 5;
const WARM_UPS: usize = 2;

/// Threads of WebAssembly look for work for a moment after a run; the other side must not pay.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) async fn run(record: &mut Record) -> Result<()> {
    let mut steady = Vec::new();
    let mut first = Vec::new();
    for _ in 0..BROWSERS {
        let Times { mut ours, mut theirs } = in_a_browser().await?;
        steady.push((ours.steady() / theirs.steady(), theirs.steady()));
        first.push((ours.first() / theirs.first(), theirs.first()));
    }
    let what = "MiniLM, 128 tokens, wasm: time per request, one after the other, in 5 browsers";
    add(record, "W2", what, steady, Goal::AtMost(1.05));
    let what = "the same, of the first request after 20 ms in which nothing happened";
    add(record, "W2.first", what, first, Goal::AtMost(1.05));
    Ok(())
}

/// The median over all browsers.
fn add(record: &mut Record, id: &str, what: &str, mut each: Vec<(f64, f64)>, goal: Goal) {
    each.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (ratio, theirs) = each[each.len() / 2];
    let (least, most) = (each[0].0, each[each.len() - 1].0);
    let peer =
        format!("a bare page in the same browser: {:.1} ms; {least:.3} to {most:.3}", theirs * 1e3);
    record.add(id, what, ratio, "×", &peer, goal);
}

/// Times of both sides in one browser.
#[derive(Default)]
struct Times {
    ours: Side,
    theirs: Side,
}

/// The first request of each turn finds everything asleep, the others do not.
#[derive(Default)]
struct Side {
    first: Vec<Duration>,
    steady: Vec<Duration>,
}

impl Side {
    fn push(&mut self, mut turn: Vec<Duration>) {
        self.first.push(turn.remove(0));
        self.steady.extend(turn);
    }

    fn first(&mut self) -> f64 {
        median(&mut self.first).as_secs_f64()
    }

    fn steady(&mut self) -> f64 {
        median(&mut self.steady).as_secs_f64()
    }
}

async fn in_a_browser() -> Result<Times> {
    let rig = Rig::new().await?;
    let mut launch = rig::launch(&rig.link(Backend::Wasm))?;
    launch.extra_arguments.push(ARGUMENT.to_owned());
    let browser = launch.start().await?;
    let lane = rig.lane(&browser, Backend::Wasm).await?;
    let mut bare = Bare::open(&browser, rig.store.clone()).await?;

    let sample = Sample::real(&rig, &MINILM, 1, 128).await?;
    let segment = rig.segment(&sample.graph, lane.target(), &sample.inputs).await?;
    bare.load(&segment, &sample.inputs, THREADS).await?;
    let loaded = lane.load(segment).await?;
    let mut times = Times::default();
    for turn in 0..WARM_UPS + TURNS {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let mut answer = 0.0;
        tokio::time::sleep(PAUSE).await;
        for _ in 0..REQUESTS {
            let started = Instant::now();
            let outputs = rig::run(&lane, &loaded, &sample.inputs).await?;
            ours.push(started.elapsed());
            answer = f64::from(outputs[0].to_vec::<f32>()?[0]);
        }
        tokio::time::sleep(PAUSE).await;
        for _ in 0..REQUESTS {
            let (took, first) = bare.run().await?;
            theirs.push(took);
            ensure!((answer - first).abs() < 1e-5, "the bare page computes something else");
        }
        if turn >= WARM_UPS {
            times.ours.push(ours);
            times.theirs.push(theirs);
        }
    }
    drop(bare);
    rig.close(browser).await?;
    Ok(times)
}
