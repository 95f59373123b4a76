//! P1, P2, P4 and P5: mixes of models that were seen alone before, predicted before each runs.
//!
//! First every model runs alone at every number of rows. Then mixes of one seed are run to learn
//! how models get along, and mixes of another seed, which are the ones that count. Each of these is
//! predicted before it runs, and learned from afterwards, as in real use.

use std::fs::File;
use std::io::{BufWriter, Write};

use anyhow::Result;
use holdfast_pool::{Compared, Comparison, Request};
use holdfast_predict::{Measured, Mix, Predictor, RunTime};
use holdfast_testkit::Numbers;
use serde_json::json;

use super::lab::Lab;
use super::models::{BATCHES, Column, Drawn, Models};
use super::{error, mean, median, unseen};
use crate::record::{Goal, Record};

const LEARNED: usize = 20;
const LEARNED_SEED: u64 = 1;
const TESTED: usize = 60;
const TESTED_SEED: u64 = 20_261_118;
/// Runs of a model alone at each number of rows.
const ALONE: usize = 6;
/// Runs of each way: every second one is what is measured, the others tell the noise.
const REPEATS: usize = 10;

/// One way to run a mix.
pub(super) struct Way {
    pub(super) drawn: Drawn,
    pub(super) mix: Mix,
    predicted: f64,
    covered: bool,
    /// The median of five runs.
    pub(super) measured: f64,
    /// How far the median of five others is from it.
    noise: f64,
}

pub(super) async fn run(record: &mut Record, column: Column) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let models = Models::new(folder.path())?;
    let lab = Lab::start(&models.store, folder.path(), column, None).await?;
    alone(&lab, &models, column).await?;
    let runs: Vec<RunTime> = lab.seen.runs.lock().expect("nobody panics").clone();
    let mut trace = Trace::new(column)?;
    let mut learning = Numbers::new(LEARNED_SEED);
    for number in 0..LEARNED {
        let drawn = models.draw(&mut learning);
        let workload = models.workload(&drawn, column, 1_000 + number as u64)?;
        let compared = lab.pool.compare(&workload, 3).await?;
        trace.add(&lab, &compared, false)?;
    }
    let frozen = frozen(&lab)?;
    let mut tested = Numbers::new(TESTED_SEED);
    let mut ways = Vec::new();
    let mut regrets = Vec::new();
    let mut paired = Vec::new();
    for number in 0..TESTED {
        let drawn = models.draw(&mut tested);
        let workload = models.workload(&drawn, column, 2_000 + number as u64)?;
        let compared = lab.pool.compare(&workload, REPEATS).await?;
        trace.add(&lab, &compared, true)?;
        println!(
            "{:>2}/{TESTED} {} regret {:.1} %: {}",
            number + 1,
            compared.recommended,
            compared.regret * 1e2,
            models.words(&drawn)
        );
        regrets.push(compared.regret);
        paired.push(paired_regret(&compared));
        ways.extend(compared.ways.iter().map(|way| Way::of(way, &drawn)));
    }
    lab.pool.close().await;
    rows(record, column, &ways, &regrets);
    beside(record, column, &ways, &paired, &frozen);
    unseen::rows(record, column, &models, &ways, &runs);
    Ok(())
}

/// Runs every model alone, so that it has been seen.
pub(super) async fn alone(lab: &Lab, models: &Models, column: Column) -> Result<()> {
    for model in 0..models.members.len() {
        for batch in BATCHES {
            for round in 0..ALONE {
                let request = models.request(model, batch, column, round as u64)?;
                lab.pool.run(&Request { share: false, ..request }).await?;
            }
        }
    }
    lab.pool.ledger().settled().await;
    Ok(())
}

impl Way {
    fn of(way: &Compared, drawn: &Drawn) -> Way {
        let part = |odd: usize| {
            let runs = way.runs.iter().skip(odd).step_by(2);
            median(runs.map(|run: &Measured| run.latency_seconds))
        };
        let (measured, again) = (part(0), part(1));
        let predicted = way.estimate.latency_seconds;
        Way {
            drawn: drawn.clone(),
            mix: way.mix.clone(),
            predicted: predicted.value,
            covered: predicted.covers(measured),
            measured,
            noise: error(again, measured),
        }
    }
}

fn rows(record: &mut Record, column: Column, ways: &[Way], regrets: &[f64]) {
    let name = column.name();
    let errors: Vec<f64> = ways.iter().map(|way| error(way.predicted, way.measured)).collect();
    let noise: Vec<f64> = ways.iter().map(|way| way.noise).collect();
    let (noise_median, noise_mean) = (median(noise.clone()), mean(&noise));
    let what =
        |of: &str| format!("latency of {TESTED} mixes in 3 ways, models seen alone: {of} error");
    let peer = |noise: f64| {
        format!("repeat noise in the same run: {:.1} % (a median of 5 beside another)", noise * 1e2)
    };
    record.add(
        &format!("P1.median.{name}"),
        &what("median"),
        median(errors.clone()),
        "of measured",
        &peer(noise_median),
        Goal::AtMost((1.5 * noise_median).max(0.08)),
    );
    record.add(
        &format!("P1.mean.{name}"),
        &what("mean"),
        mean(&errors),
        "of measured",
        &peer(noise_mean),
        Goal::AtMost((1.5 * noise_mean).max(0.10)),
    );
    for strategy in holdfast_predict::Strategy::ALL {
        let of = ways.iter().filter(|way| way.mix.strategy == strategy);
        let errors = of.map(|way| error(way.predicted, way.measured));
        let (id, what) =
            (format!("P1.{strategy}.{name}"), format!("the same, {strategy}: median error"));
        record.add(&id, &what, median(errors), "of measured", "", Goal::Report);
    }
    let covered = ways.iter().filter(|way| way.covered).count() as f64 / ways.len() as f64;
    let peer = format!("{} predictions", ways.len());
    let what = "part of measurements in the 90 % interval";
    record.add(&format!("P4.{name}"), what, covered, "", &peer, Goal::AtLeast(0.86));
    record.add(&format!("P4.most.{name}"), what, covered, "", &peer, Goal::AtMost(0.94));
    let small = regrets.iter().filter(|regret| **regret <= 0.05).count();
    let small = small as f64 / regrets.len() as f64;
    let peer = format!(
        "the best of three strategies, each a median of {REPEATS}; largest regret {:.1} %",
        regrets.iter().copied().fold(0.0, f64::max) * 1e2
    );
    let what = "mixes in which the recommended strategy costs at most 5 % more";
    record.add(&format!("P5.{name}"), what, small, "", &peer, Goal::AtLeast(0.95));
}

/// What says how to read the rows above.
fn beside(record: &mut Record, column: Column, ways: &[Way], paired: &[f64], frozen: &Predictor) {
    let name = column.name();
    let errors =
        ways.iter().map(|way| error(frozen.estimate(&way.mix).latency_seconds.value, way.measured));
    let what = "the same by a predictor that learns nothing from these mixes: median error";
    record.add(&format!("P1.frozen.{name}"), what, median(errors), "of measured", "", Goal::Report);
    let small = paired.iter().filter(|regret| **regret <= 0.05).count();
    let small = small as f64 / paired.len() as f64;
    let what =
        "the same, the best found in one half of the rounds and regret measured in the other";
    let peer = format!("medians of ratios within rounds; mean regret {:.1} %", mean(paired) * 1e2);
    record.add(&format!("P5.paired.{name}"), what, small, "", &peer, Goal::Report);
}

/// What the recommended strategy takes more than the best, free of two things that noise does to a
/// plain quotient of medians: whichever is best by chance is not compared with itself, and what
/// disturbs a round disturbs both.
fn paired_regret(compared: &Comparison) -> f64 {
    let of = |half: usize| {
        let measured = |way: &Compared, half: usize| -> Vec<f64> {
            way.runs.iter().skip(half).step_by(2).map(|run| run.latency_seconds).collect()
        };
        let score = |way: &&Compared| median(measured(way, half));
        let best = compared.ways.iter().min_by(|a, b| score(a).total_cmp(&score(b)));
        let chosen = compared.ways.iter().find(|way| way.strategy == compared.recommended);
        let (Some(best), Some(chosen)) = (best, chosen) else { return f64::NAN };
        let (best, chosen) = (measured(best, 1 - half), measured(chosen, 1 - half));
        median(chosen.iter().zip(&best).map(|(chosen, best)| chosen / best)) - 1.0
    };
    (of(0) + of(1)) / 2.0
}

/// What the lab's predictor knows now.
fn frozen(lab: &Lab) -> Result<Predictor> {
    let learned: serde_json::Value = serde_json::from_str(&lab.pool.ledger().snapshot())?;
    Ok(Predictor::from_json(&learned["predictor"].to_string())?)
}

/// A predictor that has seen these runs on a device.
pub(super) fn taught<'a>(mix: &Mix, runs: impl Iterator<Item = &'a RunTime>) -> Predictor {
    let mut predictor = Predictor::new();
    predictor.meet(&mix.device);
    runs.for_each(|run| predictor.observe_run(run));
    predictor
}

/// All that a predictor learned from, in order, so that another one can be tried on the same:
/// `cargo run --release -p holdfast-predict --example replay FILE`.
struct Trace {
    file: BufWriter<File>,
    runs: usize,
}

impl Trace {
    fn new(column: Column) -> Result<Trace> {
        let name = format!("predict-{}.jsonl", column.name());
        let path = std::env::current_exe()?.with_file_name(name);
        Ok(Trace { file: BufWriter::new(File::create(path)?), runs: 0 })
    }

    fn add(&mut self, lab: &Lab, compared: &Comparison, tested: bool) -> Result<()> {
        let runs = lab.seen.runs.lock().expect("nobody panics");
        for run in &runs[self.runs..] {
            writeln!(self.file, "{}", json!({ "run": run }))?;
        }
        self.runs = runs.len();
        let way = |way: &Compared| json!({ "mix": way.mix, "runs": way.runs });
        let ways: Vec<_> = compared.ways.iter().chain(&compared.unshared).map(way).collect();
        writeln!(self.file, "{}", json!({ "compared": ways, "tested": tested }))?;
        Ok(self.file.flush()?)
    }
}
