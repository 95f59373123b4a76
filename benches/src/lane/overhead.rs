//! W2: what Holdfast adds to a request, beside the same model in a bare page of the same browser.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use holdfast_devices::Device;
use holdfast_devtools::ARGUMENT;
use holdfast_wire::Backend;

use super::bare::Bare;
use super::models::Sample;
use super::rig::{self, Rig};
use crate::record::{Goal, Record};
use crate::spine::cases::MINILM;
use crate::timing::median;

const ROUNDS: usize = 40;
const WARM_UPS: usize = 5;

/// Threads of WebAssembly look for work for a moment after a run; the other side must not pay.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) async fn run(record: &mut Record) -> Result<()> {
    let rig = Rig::new().await?;
    let mut launch = rig.launch(&rig.link(Backend::Wasm))?;
    launch.extra_arguments.push(ARGUMENT.to_owned());
    let browser = launch.start().await?;
    let lane = rig.lane(&browser, Backend::Wasm).await?;
    let mut bare = Bare::open(&browser, rig.store.clone()).await?;

    let sample = Sample::real(&rig, &MINILM, 1, 128).await?;
    let segment = rig.segment(&sample.graph, lane.target(), &sample.inputs).await?;
    bare.load(&segment, &sample.inputs).await?;
    let loaded = lane.load(segment).await?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..WARM_UPS + ROUNDS {
        tokio::time::sleep(PAUSE).await;
        let started = Instant::now();
        let answer = rig::run(&lane, &loaded, &sample.inputs).await?;
        let took = started.elapsed();
        tokio::time::sleep(PAUSE).await;
        let (bare_took, first) = bare.run().await?;
        let same = f64::from(answer[0].to_vec::<f32>()?[0]);
        ensure!((same - first).abs() < 1e-5, "the bare page computes something else");
        if round >= WARM_UPS {
            ours.push(took);
            theirs.push(bare_took);
        }
    }
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    let what = "MiniLM, 128 tokens, wasm: time per request, median of 40";
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    let peer = format!("a bare page in the same browser: {:.1} ms", theirs.as_secs_f64() * 1e3);
    record.add("W2", what, ratio, "×", &peer, Goal::AtMost(1.05));
    drop(bare);
    rig.close(browser).await
}
