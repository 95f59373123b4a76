//! W4: memory after many loads. W5: what a browser that comes back downloads.

use anyhow::{Context, Result, ensure};
use holdfast_browsers::{Browser, Profile};
use holdfast_devices::Device;
use holdfast_graph::Tensor;
use holdfast_wire::Backend;
use rustix::process::{Pid, Signal, kill_process};

use super::models::{Sample, identity};
use super::rig::{self, Rig};
use crate::compare::difference;
use crate::record::{Goal, Record};
use crate::spine::cases::MINILM;

const MB: f64 = 1e6;
const TIMES: usize = 30;
/// Compared with the memory after this many.
const SETTLED: usize = 3;

/// Loads, runs and unloads MiniLM again and again in one lane.
pub(super) async fn leak(record: &mut Record) -> Result<()> {
    let rig = Rig::new().await?;
    let (browser, lane) = rig.browser(Backend::Wasm).await?;
    let sample = Sample::real(&rig, &MINILM, 1, 32).await?;
    let segment = rig.segment(&sample.graph, lane.target(), &sample.inputs).await?;

    // An empty engine that has run something.
    let graph = rig.add(&identity()?, "identity")?;
    let empty = lane.load(rig.segment(&graph, lane.target(), &[]).await?).await?;
    rig::run(&lane, &empty, &[("x".to_owned(), Tensor::from_slice(&[1], &[1f32])?)]).await?;
    lane.unload(empty.id).await?;
    let base = memory(&browser).await?;

    let mut after = Vec::new();
    for _ in 0..TIMES {
        let loaded = lane.load(segment.clone()).await?;
        let answer = rig::run(&lane, &loaded, &sample.inputs).await?;
        ensure!(difference(&answer[0], &sample.expected[0])? <= 1e-4, "a wrong answer");
        lane.unload(loaded.id).await?;
        after.push(memory(&browser).await?.saturating_sub(base) as f64);
    }
    let listed: Vec<String> = after.iter().map(|bytes| format!("{:.0}", bytes / MB)).collect();
    println!("  MB after each: {}", listed.join(" "));
    let settled = after[SETTLED - 1];
    let ratio = after[TIMES - 1] / settled;
    let what = "MiniLM loaded, run and unloaded 30 times: memory at the end";
    let peer = format!("after the third: {:.0} MB above an empty engine", settled / MB);
    record.add("W4", what, ratio, "×", &peer, Goal::AtMost(1.1));
    let most = after.iter().copied().fold(0.0, f64::max);
    let what = "the most in between";
    record.add("W4.most", what, most / settled, "×", &peer, Goal::Report);
    rig.close(browser).await
}

/// Kills the browser after a load, starts it again on the same profile, and loads again.
pub(super) async fn coming_back(record: &mut Record) -> Result<()> {
    let rig = Rig::new().await?;
    let profile = tempfile::tempdir()?;
    let sample = Sample::real(&rig, &MINILM, 1, 32).await?;
    let mut downloaded = Vec::new();
    for _ in 0..2 {
        let mut launch = rig::launch(&rig.link(Backend::Wasm))?;
        launch.profile = Profile::Keep(profile.path().to_owned());
        let browser = launch.start().await?;
        let lane = rig.lane(&browser, Backend::Wasm).await?;
        let segment = rig.segment(&sample.graph, lane.target(), &sample.inputs).await?;
        let loaded = lane.load(segment).await?;
        let answer = rig::run(&lane, &loaded, &sample.inputs).await?;
        ensure!(difference(&answer[0], &sample.expected[0])? <= 1e-4, "a wrong answer");
        downloaded.push(loaded.downloaded_bytes as f64);
        let pid = i32::try_from(browser.pid()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("the browser has no process id")?, Signal::KILL)?;
        browser.exited().await;
        browser.close().await?;
        lane.leave("its browser was killed", false);
    }
    ensure!(downloaded[0] > 0.0, "nothing was downloaded at first");
    let what = "a killed browser comes back: bytes of MiniLM downloaded again";
    let peer = format!("the first time: {:.1} MB", downloaded[0] / MB);
    record.add("W5", what, downloaded[1], "bytes", &peer, Goal::AtMost(0.0));
    rig.server.stop(std::time::Duration::ZERO).await;
    Ok(())
}

/// Memory of the whole browser, once it has stopped falling: what was let go is given back a
/// little later.
async fn memory(browser: &Browser) -> Result<u64> {
    const LOOK: std::time::Duration = std::time::Duration::from_millis(100);
    let measure = || browser.memory().context("the browser's memory cannot be measured here");
    let mut least = measure()?;
    let mut unchanged = 0;
    while unchanged < 5 {
        tokio::time::sleep(LOOK).await;
        let now = measure()?;
        unchanged = if now + (1 << 20) < least { 0 } else { unchanged + 1 };
        least = least.min(now);
    }
    Ok(least)
}
