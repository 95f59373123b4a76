//! P6: a background load appears, and everything takes longer than it used to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use holdfast_predict::Strategy;
use holdfast_testkit::Numbers;

use super::lab::Lab;
use super::models::{Column, Models};
use super::{error, mean, mixes};
use crate::record::{Goal, Record};

const SEED: u64 = 6;
/// Executions before the load appears, and after.
const BEFORE: usize = 24;
const AFTER: usize = 60;
/// Errors are looked at over so many executions.
const WINDOW: usize = 5;
const THRESHOLD: f64 = 0.15;

pub(super) async fn run(record: &mut Record, column: Column) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let models = Models::new(folder.path())?;
    let lab = Lab::start(&models.store, folder.path(), column, None).await?;
    mixes::alone(&lab, &models, column).await?;
    let mut numbers = Numbers::new(SEED);
    let mut errors = Vec::new();
    let mut refined_at = None;
    let mut load = None;
    for number in 0..BEFORE + AFTER {
        if number == BEFORE {
            lab.seen.refinements.lock().expect("nobody panics").clear();
            load = Some(Load::start());
        }
        let drawn = models.draw(&mut numbers);
        let workload = models.workload(&drawn, column, 3_000 + number as u64)?;
        let strategy = Strategy::ALL[number % Strategy::ALL.len()];
        // Once to load what is new, which is not what this is about.
        lab.pool.execute(&workload, Some(strategy)).await?;
        let workload = models.workload(&drawn, column, 4_000 + number as u64)?;
        let done = lab.pool.execute(&workload, Some(strategy)).await?;
        let Some(estimate) = done.estimate else { continue };
        errors.push(error(estimate.latency_seconds.value, done.measured.latency_seconds));
        let kept = lab.seen.refinements.lock().expect("nobody panics");
        if refined_at.is_none() && number >= BEFORE && kept.iter().any(|one| one.kept) {
            refined_at = Some(number - BEFORE);
        }
    }
    drop(load);
    lab.pool.close().await;
    let after = &errors[BEFORE..];
    let from = refined_at.unwrap_or(0);
    let back = (from..after.len().saturating_sub(WINDOW - 1))
        .find(|at| mean(&after[*at..*at + WINDOW]) <= THRESHOLD)
        .map_or(f64::INFINITY, |at| (at - from + WINDOW) as f64);
    let first = mean(&after[..WINDOW.min(after.len())]);
    let peer = format!(
        "mean error of {WINDOW}: {:.1} % before, {:.1} % right after; {}",
        mean(&errors[BEFORE - WINDOW..BEFORE]) * 1e2,
        first * 1e2,
        match refined_at {
            Some(at) => format!("a refinement was kept at execution {at}"),
            None => "no refinement was needed: counted from when the load appeared".to_owned(),
        }
    );
    let name = column.name();
    let what = "a background load appears: observations until errors are under 15 % again";
    record.add(&format!("P6.{name}"), what, back, "", &peer, Goal::AtMost(20.0));
    Ok(())
}

/// Threads that compute something, one for each core.
struct Load(Arc<AtomicBool>);

impl Load {
    fn start() -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..cores {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut number = 1u64;
                while !stop.load(Ordering::Relaxed) {
                    number =
                        std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005) + 1);
                }
            });
        }
        Load(stop)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
