//! P3 and P4: the most memory that a mix takes, in a process of its own for each mix, so that nothing of
//! an earlier one is there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use holdfast_models::Store;
use holdfast_predict::Strategy;
use holdfast_testkit::Numbers;
use serde::{Deserialize, Serialize};

use super::lab::Lab;
use super::models::{Column, Drawn, Models};
use super::{error, mean, median};
use crate::record::{Goal, Record};

const LEARNED: usize = 12;
const LEARNED_SEED: u64 = 3;
const TESTED: usize = 60;
const TESTED_SEED: u64 = 77_261_118;

/// What a child prints.
#[derive(Serialize, Deserialize)]
struct Told {
    predicted_bytes: f64,
    measured_bytes: f64,
    /// Whether it lay in the interval.
    covered: bool,
    predicted_seconds: f64,
    measured_seconds: f64,
}

/// What a child is told.
#[derive(Serialize, Deserialize)]
struct Asked {
    column: String,
    home: PathBuf,
    learned: PathBuf,
    drawn: Drawn,
    strategy: Strategy,
}

pub(super) async fn run(record: &mut Record, column: Column) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let models = Models::new(folder.path())?;
    let learned = folder.path().join("learned.json");
    let mut numbers = Numbers::new(LEARNED_SEED);
    for number in 0..LEARNED {
        ask(&asked(folder.path(), &learned, column, models.draw(&mut numbers), number))?;
    }
    let mut numbers = Numbers::new(TESTED_SEED);
    let (mut errors, mut cold) = (Vec::new(), Vec::new());
    let mut covered = 0;
    for number in 0..TESTED {
        let drawn = models.draw(&mut numbers);
        let words = models.words(&drawn);
        let told = ask(&asked(folder.path(), &learned, column, drawn, number))?;
        errors.push(error(told.predicted_bytes, told.measured_bytes));
        covered += usize::from(told.covered);
        cold.push(error(told.predicted_seconds, told.measured_seconds));
        println!(
            "{:>2}/{TESTED} predicted {:.0} MB, measured {:.0} MB: {words}",
            number + 1,
            told.predicted_bytes / 1e6,
            told.measured_bytes / 1e6
        );
    }
    let name = column.name();
    let peer = match column {
        Column::Cpu => "private bytes of the process at the worst moment",
        Column::Wasm => "PSS of the browser's processes after the run",
    };
    let what = format!("peak memory of {TESTED} mixes, nothing loaded before: mean error");
    let (id, value) = (format!("P3.{name}"), mean(&errors));
    record.add(&id, &what, value, "of measured", peer, Goal::AtMost(0.05));
    let what = "part of peak memory in the 90 % interval";
    let (part, peer) = (covered as f64 / TESTED as f64, format!("{TESTED} predictions"));
    record.add(&format!("P4.memory.{name}"), what, part, "", &peer, Goal::AtLeast(0.86));
    record.add(&format!("P4.memory.most.{name}"), what, part, "", &peer, Goal::AtMost(0.94));
    let what = "latency of the same, loading included: median error";
    record.add(&format!("P3.cold.{name}"), what, median(cold), "of measured", "", Goal::Report);
    Ok(())
}

fn asked(folder: &Path, learned: &Path, column: Column, drawn: Drawn, number: usize) -> Asked {
    Asked {
        column: column.name().to_owned(),
        home: folder.to_owned(),
        learned: learned.to_owned(),
        drawn,
        strategy: Strategy::ALL[number % Strategy::ALL.len()],
    }
}

fn ask(asked: &Asked) -> Result<Told> {
    let output = Command::new(std::env::current_exe()?)
        .args(["--child", "predict", &serde_json::to_string(asked)?])
        .output()?;
    ensure!(
        output.status.success(),
        "a child failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let text = String::from_utf8(output.stdout)?;
    let line = text.lines().last().context("a child said nothing")?;
    Ok(serde_json::from_str(line)?)
}

/// Predicts a mix, runs it, learns, and tells.
pub(super) async fn child(arguments: &[String]) -> Result<()> {
    let [text] = arguments else { bail!("a child is told one thing") };
    let Asked { column, home, learned, drawn, strategy } = serde_json::from_str(text)?;
    let column = Column::ALL.into_iter().find(|known| known.name() == column);
    let column = column.context("there is no such column")?;
    let models = Models::reopen(&home)?;
    let known = std::fs::read_to_string(&learned).ok();
    let scratch = tempfile::tempdir()?;
    let store: Arc<Store> = models.store.clone();
    let lab = Lab::start(&store, scratch.path(), column, known).await?;
    let workload = models.workload(&drawn, column, 7)?;
    let done = lab.pool.execute(&workload, Some(strategy)).await?;
    let estimate = done.estimate.context("it was not predicted")?;
    let measured_bytes = done.measured.memory_bytes.context("memory was not measured")?;
    let told = Told {
        predicted_bytes: estimate.memory_bytes.value,
        measured_bytes,
        covered: estimate.memory_bytes.covers(measured_bytes),
        predicted_seconds: estimate.latency_seconds.value,
        measured_seconds: done.measured.latency_seconds,
    };
    lab.pool.ledger().settled().await;
    std::fs::write(&learned, lab.pool.ledger().snapshot())?;
    lab.pool.close().await;
    println!("{}", serde_json::to_string(&told)?);
    Ok(())
}
