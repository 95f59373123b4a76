//! P7: what predicting and recording cost.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use holdfast_pool::{Pool, PoolOptions, Request};
use holdfast_predict::Strategy;

use super::lab::Lab;
use super::median;
use super::models::{Column, Models};
use crate::record::{Goal, Record};

const ESTIMATES: usize = 2_000;
const PAIRS: usize = 9;
const TURNS: usize = 7;
const RUNS: usize = 50;

pub(super) async fn run(record: &mut Record) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let models = Models::new(folder.path())?;
    let lab = Lab::start(&models.store, folder.path(), Column::Cpu, None).await?;
    // Six models, of which five share something with others.
    let drawn = (0..6).map(|model| (model, 1)).collect();
    let workload = models.workload(&drawn, Column::Cpu, 1)?;
    lab.pool.execute(&workload, Some(Strategy::Sequential)).await?;
    let forecast = lab.pool.forecast(&workload).await?;
    let mut worst: f64 = 0.0;
    for mix in &forecast.mixes {
        let started = Instant::now();
        for _ in 0..ESTIMATES {
            std::hint::black_box(lab.pool.ledger().estimate(std::hint::black_box(mix)));
        }
        worst = worst.max(started.elapsed().as_secs_f64() / ESTIMATES as f64);
    }
    let what = "predicting a mix of 6 planned models, the slowest strategy";
    record.add("P7.predict", what, worst * 1e6, "µs", "", Goal::AtMost(200.0));

    lab.pool.close().await;
    recording(record, &models, folder.path()).await
}

/// A model that takes about 5 ms, in a pool that keeps everything and in one that keeps nothing.
///
/// They take turns of many runs, because what is kept is written a little later: after single runs
/// the other pool would pay for it. And there are several pairs, because two sessions of one model
/// differ by some per cent, for as long as they live.
async fn recording(record: &mut Record, models: &Models, folder: &Path) -> Result<()> {
    let model = models.members.iter().position(|member| member.name.starts_with("bert-2x384"));
    let request = models.request(model.context("there is no such model")?, 2, Column::Cpu, 0)?;
    let request = Request { share: false, ..request };
    let (mut ratios, mut plain) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        let lab = Lab::start(&models.store, folder, Column::Cpu, None).await?;
        let bare = Pool::new(models.store.clone(), PoolOptions::default())?;
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for turn in 0..TURNS {
            let mut pools = [(&*lab.pool, &mut with), (&bare, &mut without)];
            if (pair + turn) % 2 == 1 {
                pools.reverse();
            }
            for (pool, times) in pools {
                let started = Instant::now();
                for _ in 0..RUNS {
                    pool.run(&request).await?;
                }
                if turn > 0 {
                    times.push(started.elapsed().as_secs_f64() / RUNS as f64);
                }
            }
        }
        lab.pool.close().await;
        bare.close().await;
        let (with, without) = (median(with), median(without));
        ratios.push(with / without - 1.0);
        plain.push(without);
    }
    let peer = format!(
        "{:.3} ms without; median of {PAIRS} pairs of pools: {}",
        median(plain) * 1e3,
        ratios.iter().map(|ratio| format!("{:+.1} %", ratio * 1e2)).collect::<Vec<_>>().join(", ")
    );
    let what = "what recording in DuckDB adds to an inference, of its time";
    record.add("P7.record", what, median(ratios), "", &peer, Goal::AtMost(0.01));
    Ok(())
}
