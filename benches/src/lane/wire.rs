//! W3: what the wire costs, beside a raw WebSocket in the same browser.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use holdfast_devices::{Device, TensorId};
use holdfast_devtools::ARGUMENT;
use holdfast_graph::Tensor;
use holdfast_wire::{Backend, FRAME_BODY_LIMIT};

use super::bare::Bare;
use super::models::identity;
use super::rig::{self, Rig};
use crate::record::{Goal, Record};
use crate::timing::median;

const BYTES: usize = 16 << 20;
const TRANSFERS: usize = 40;
const MESSAGES: usize = 500;
const WARM_UPS: usize = 5;

pub(super) async fn run(record: &mut Record) -> Result<()> {
    let rig = Rig::new().await?;
    let mut launch = rig.launch(&rig.link(Backend::Wasm))?;
    launch.extra_arguments.push(ARGUMENT.to_owned());
    let browser = launch.start().await?;
    let lane = rig.lane(&browser, Backend::Wasm).await?;
    let mut bare = Bare::open(&browser, rig.store.clone()).await?;
    let graph = rig.add(&identity()?, "identity")?;
    let loaded = lane.load(rig.segment(&graph, lane.target(), &[]).await?).await?;

    // Noise, so that nothing on the way can take it for zeros.
    let mut state = 1u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32
    });
    let noise: Vec<f32> = noise.take(BYTES / 4).collect();
    let tensor = Tensor::from_slice(&[BYTES / 4], &noise)?;
    let frames: Vec<Bytes> = (0..BYTES / FRAME_BODY_LIMIT)
        .map(|number| {
            tensor.bytes().slice(number * FRAME_BODY_LIMIT..(number + 1) * FRAME_BODY_LIMIT)
        })
        .collect();

    let id = TensorId("bench".to_owned());
    let mut times: [Vec<Duration>; 5] = Default::default();
    for round in 0..WARM_UPS + TRANSFERS {
        let down = bare.send(&frames).await?;
        let started = Instant::now();
        lane.put(id.clone(), tensor.clone()).await?;
        let put = started.elapsed();
        let up = bare.receive(frames.len(), FRAME_BODY_LIMIT).await?;
        let started = Instant::now();
        let got = lane.get(&id).await?;
        let get = started.elapsed();
        ensure!(got.bytes() == tensor.bytes(), "the lane gave back something else");
        let feed = [("x".to_owned(), tensor.clone())];
        let started = Instant::now();
        let answer = rig::run(&lane, &loaded, &feed).await?;
        let both = started.elapsed();
        ensure!(answer[0].bytes() == tensor.bytes(), "the model gave back something else");
        if round >= WARM_UPS {
            for (times, took) in times.iter_mut().zip([down, put, up, get, both]) {
                times.push(took);
            }
        }
    }
    let [down, put, up, get, both] = times.each_mut().map(|times| median(times).as_secs_f64());
    let rate = |seconds: f64| format!("raw WebSocket: {:.0} MB/s", BYTES as f64 / seconds / 1e6);
    let what = "16 MiB to the lane (put), rate";
    record.add("W3.put", what, down / put, "×", &rate(down), Goal::AtLeast(0.9));
    let what = "16 MiB from the lane (get), rate";
    record.add("W3.get", what, up / get, "×", &rate(up), Goal::AtLeast(0.9));
    let what = "16 MiB there and back through a one-node model, rate";
    record.add("W3.both", what, (down + up) / both, "×", &rate((down + up) / 2.0), Goal::Report);

    let small = [("x".to_owned(), Tensor::from_slice(&[16], &[1f32; 16])?)];
    let (mut raw, mut ours) = (Vec::new(), Vec::new());
    for round in 0..WARM_UPS + MESSAGES {
        let round_trip = bare.round_trip().await?;
        let started = Instant::now();
        rig::run(&lane, &loaded, &small).await?;
        let took = started.elapsed();
        if round >= WARM_UPS {
            raw.push(round_trip);
            ours.push(took);
        }
    }
    let (raw, ours) = (median(&mut raw).as_secs_f64() * 1e3, median(&mut ours).as_secs_f64() * 1e3);
    let what = "a run of a one-node model: more than a raw round trip, median of 500";
    let peer = format!("raw WebSocket: {raw:.2} ms");
    record.add("W3.run", what, ours - raw, "ms", &peer, Goal::AtMost(1.0));
    drop(bare);
    rig.close(browser).await
}
