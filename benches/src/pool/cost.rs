//! L4: what the pool adds to a request, and whether that depends on how many wait.

use std::time::Instant;

use anyhow::Result;
use holdfast_devices::{Device, Program, RequestId};
use holdfast_graph::{DataType, Model, Tensor};
use holdfast_pool::PoolOptions;
use holdfast_testkit::{Builder, fixed};

use super::rig::{Rig, request};
use crate::record::{Goal, Record};
use crate::timing::median;

const ROUNDS: usize = 4000;
const WARM_UPS: usize = 500;

pub(super) fn run(record: &mut Record) -> Result<()> {
    let rig = Rig::new(PoolOptions::default())?;
    let asked = request(&rig.add(&one_node()?, "one-node")?, inputs()?);
    let loaded = rig.run(std::slice::from_ref(&asked))?.remove(0).loaded;

    let (pool, engine) = (rig.pool.clone(), rig.pool.engine().clone());
    let through = asked.clone();
    // In a task, as requests of a server are; outside of one every answer would wake a thread.
    let measured = rig.runtime.block_on(rig.runtime.spawn(async move {
        let (mut ours, mut alone) = (Vec::new(), Vec::new());
        for round in 0..WARM_UPS + ROUNDS {
            let outputs = loaded.outputs.iter().map(|output| output.name.clone());
            let program = Program::single("", loaded.id, through.inputs.clone(), outputs);
            let program = Program { request: RequestId(format!("bench-{round}")), ..program };
            let started = Instant::now();
            engine.run(program).await?;
            let bare = started.elapsed();
            let started = Instant::now();
            pool.run(&through).await?;
            let pooled = started.elapsed();
            if round >= WARM_UPS {
                ours.push(pooled);
                alone.push(bare);
            }
        }
        anyhow::Ok((median(&mut ours), median(&mut alone)))
    }))?;
    let (ours, alone) = measured?;
    let added = (ours.as_secs_f64() - alone.as_secs_f64()) * 1e6;
    let what = "one-node model on the CPU: what the pool adds to a request";
    let peer = format!("the engine alone, alternating: {:.1} µs", alone.as_secs_f64() * 1e6);
    record.add("L4.cost", what, added, "µs", &peer, Goal::AtMost(50.0));

    let (few, many) = (per_request(&rig, &asked, 10, 1000)?, per_request(&rig, &asked, 10_000, 1)?);
    let what = "10,000 queued at once: time per request";
    let peer = format!("10 queued at once: {:.1} µs", few * 1e6);
    record.add("L4.queue", what, many / few, "×", &peer, Goal::AtMost(1.2));
    Ok(())
}

/// Seconds for one of so many that are queued at once; the fastest of five rounds.
fn per_request(
    rig: &Rig,
    asked: &holdfast_pool::Request,
    queued: usize,
    times: usize,
) -> Result<f64> {
    let requests = vec![asked.clone(); queued];
    let mut fastest = f64::INFINITY;
    for _ in 0..5 {
        let started = Instant::now();
        for _ in 0..times {
            rig.run(&requests)?;
        }
        fastest = fastest.min(started.elapsed().as_secs_f64() / (queued * times) as f64);
    }
    Ok(fastest)
}

/// Of a fixed size, so that every request runs on its own.
fn one_node() -> Result<Model> {
    let mut builder = Builder::new("one-node", 1);
    let x = builder.input("x", DataType::F32, &[fixed(4)]);
    let y = builder.node("Add", &[&x, &x], &[]);
    builder.output("y", &y, DataType::F32, &[fixed(4)]);
    Ok(builder.finish()?)
}

fn inputs() -> Result<Vec<(String, Tensor)>> {
    Ok(vec![("x".to_owned(), Tensor::from_slice(&[4], &[1f32, 2.0, 3.0, 4.0])?)])
}
