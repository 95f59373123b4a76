//! W3: what the wire costs, beside a raw WebSocket in the same browser.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use holdfast_devices::{Device, TensorId};
use holdfast_devtools::ARGUMENT;
use holdfast_graph::Tensor;
use holdfast_wire::Backend;

use super::bare::Bare;
use super::models::identity;
use super::rig::{self, Rig};
use crate::record::{Goal, Record};
use crate::timing::median;

const BYTES: usize = 16 << 20;
const TRANSFERS: usize = 42;
const MESSAGES: usize = 500;
const WARM_UPS: usize = 5;

/// In which each of six comes once after each other one.
const ORDERS: [[usize; 6]; 6] = [
    [0, 1, 5, 2, 4, 3],
    [1, 2, 0, 3, 5, 4],
    [2, 3, 1, 4, 0, 5],
    [3, 4, 2, 5, 1, 0],
    [4, 5, 3, 0, 2, 1],
    [5, 0, 4, 1, 3, 2],
];

pub(super) async fn run(record: &mut Record) -> Result<()> {
    let rig = Rig::new().await?;
    let mut launch = rig::launch(&rig.link(Backend::Wasm))?;
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

    let id = TensorId("bench".to_owned());
    let feed = [("x".to_owned(), tensor.clone())];
    lane.put(id.clone(), tensor.clone()).await?;
    let mut times: [Vec<Duration>; 6] = Default::default();
    for round in 0..WARM_UPS + TRANSFERS {
        // Each leaves memory behind that is cleared while the next one runs: they take turns at
        // being next.
        for what in ORDERS[round % ORDERS.len()] {
            let started = Instant::now();
            let took = match what {
                0 => bare.echo(tensor.bytes()).await?,
                1 => {
                    lane.put(id.clone(), tensor.clone()).await?;
                    started.elapsed()
                }
                2 => bare.send(tensor.bytes()).await?,
                3 => {
                    let got = lane.get(&id).await?;
                    let took = started.elapsed();
                    ensure!(got.bytes() == tensor.bytes(), "the lane gave back something else");
                    took
                }
                4 => bare.receive(BYTES).await?,
                _ => {
                    let answer = rig::run(&lane, &loaded, &feed).await?;
                    let took = started.elapsed();
                    ensure!(answer[0].bytes() == tensor.bytes(), "the model gave something else");
                    took
                }
            };
            if round >= WARM_UPS {
                times[what].push(took);
            }
        }
    }
    let [echo, put, down, get, up, run] = times.each_mut().map(|times| median(times).as_secs_f64());
    let raw = |what: &str, bytes: usize, seconds: f64| {
        format!("raw WebSocket, {what}: {:.0} MB/s", bytes as f64 / seconds / 1e6)
    };
    let peer = raw("an echo in one message", 2 * BYTES, echo);
    let what = "16 MiB to the lane and back (put, get), rate";
    record.add("W3.both", what, echo / (put + get), "×", &peer, Goal::AtLeast(0.9));
    let what = "16 MiB through a one-node model, rate";
    record.add("W3.through", what, echo / run, "×", &peer, Goal::Report);
    let peer = raw("to the browser", BYTES, down);
    let what = "16 MiB to the lane (put), rate";
    record.add("W3.put", what, down / put, "×", &peer, Goal::AtLeast(0.9));
    let peer = raw("from the browser", BYTES, up);
    let what = "16 MiB from the lane (get), rate";
    record.add("W3.get", what, up / get, "×", &peer, Goal::AtLeast(0.9));

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
