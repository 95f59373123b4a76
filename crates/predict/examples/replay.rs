//! How well a predictor does on what `cargo xtask bench predict --only mixes` measured before: it
//! sees the same runs and mixes in the same order, and predicts each before it sees it.
//! `cargo run --release -p holdfast-predict --example replay FILE`.

use std::fs::File;
use std::io::{BufRead, BufReader};

use std::time::SystemTime;

use holdfast_predict::{
    Goal, Measured, Mix, Predictor, RunTime, Settings, Strategy, StrategyComparison, Validator,
};
use serde::Deserialize;

/// A line of the file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Run { run: RunTime },
    Compared { compared: Vec<Way>, tested: bool },
}

#[derive(Deserialize)]
struct Way {
    mix: Mix,
    runs: Vec<Measured>,
}

struct Tested {
    strategy: Strategy,
    shared: bool,
    error: f64,
    covered: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("which file?")?;
    let mut world = World::default();
    for line in BufReader::new(File::open(path)?).lines() {
        match serde_json::from_str(&line?)? {
            // Runs of a comparison come before it, and nothing may be known of them ahead.
            Line::Run { run } => world.runs.push(run),
            Line::Compared { compared, tested } => world.compared(&compared, tested),
        }
    }
    let World { tested, regrets, .. } = &world;
    let counted =
        |of: &dyn Fn(&Tested) -> bool| tested.iter().filter(|one| of(one)).collect::<Vec<_>>();
    report("all", &counted(&|one| one.shared));
    for strategy in Strategy::ALL {
        report(&strategy.to_string(), &counted(&|one| one.shared && one.strategy == strategy));
    }
    report("unshared", &counted(&|one| !one.shared));
    let small = regrets.iter().filter(|regret| **regret <= 0.05).count();
    let most = regrets.iter().copied().fold(0.0, f64::max);
    println!("regret up to 5 % in {small} of {}, at most {:.1} %", regrets.len(), most * 1e2);
    Ok(())
}

/// A predictor with all that changes it, as in a pool.
#[derive(Default)]
struct World {
    predictor: Predictor,
    validator: Validator,
    settings: Settings,
    comparisons: Vec<StrategyComparison>,
    /// Runs since the last comparison.
    runs: Vec<RunTime>,
    tested: Vec<Tested>,
    regrets: Vec<f64>,
}

impl World {
    fn compared(&mut self, compared: &[Way], counts: bool) {
        let Some(first) = compared.first() else { return };
        self.predictor.meet(&first.mix.device);
        let shared = |at: usize| at < Strategy::ALL.len();
        if counts {
            let ways = compared.iter().enumerate();
            self.tested.extend(ways.map(|(at, way)| way.test(&self.predictor, shared(at))));
            self.regrets.push(regret(&self.predictor, &self.settings, compared));
        }
        let now = SystemTime::now();
        let estimates: Vec<_> =
            compared.iter().map(|way| self.predictor.estimate(&way.mix)).collect();
        for run in self.runs.drain(..) {
            self.predictor.observe_run(&run);
        }
        for (at, (way, estimate)) in compared.iter().zip(&estimates).enumerate() {
            // A strategy that comes to the same as another was not measured by itself.
            if compared[..at].iter().any(|other| other.runs == way.runs) {
                continue;
            }
            let (mix, measured) = (&way.mix, way.measured());
            let validated = self.validator.validate_prediction(
                mix,
                Goal::Latency,
                estimate,
                &measured,
                now,
                String::new(),
            );
            self.predictor.observe_mix(mix, estimate, &measured);
            for advice in validated.recommendations {
                let (refinement, metric) = (advice.refinement, advice.metric);
                let record = self.predictor.refine(refinement, metric, &advice.reason, now);
                self.validator.refined();
                println!(
                    "{} {}: {:.1} % to {:.1} % on {}, {}: {}",
                    record.method,
                    record.metric,
                    record.error_before * 1e2,
                    record.error_after * 1e2,
                    record.judged_by,
                    if record.kept { "kept" } else { "taken back" },
                    record.reason
                );
            }
        }
        let (backend, seconds) = (&first.mix.device.backend, |way: &Way| {
            (way.mix.strategy, way.measured().latency_seconds)
        });
        let ways = &compared[..Strategy::ALL.len()];
        let rounds: Vec<Vec<f64>> = ways.iter().map(Way::seconds).collect();
        let rivals: Vec<(&Mix, &[f64])> =
            ways.iter().zip(&rounds).map(|(way, rounds)| (&way.mix, rounds.as_slice())).collect();
        self.predictor.observe_comparison(&rivals);
        self.comparisons.push(StrategyComparison {
            backend: backend.clone(),
            model_count: first.mix.answers,
            batching_size: self.settings.get(backend).batching_size,
            seconds: ways.iter().map(seconds).collect(),
            available_memory_bytes: None,
        });
        for change in self.settings.update(backend, &self.comparisons, now) {
            println!("{change:?}");
        }
    }
}

impl Way {
    fn measured(&self) -> Measured {
        let middle = |of: &dyn Fn(&Measured) -> f64| {
            let mut values: Vec<f64> = self.runs.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
        };
        Measured {
            latency_seconds: middle(&|run| run.latency_seconds),
            throughput_per_second: middle(&|run| run.throughput_per_second),
            // All ways were loaded in one engine, so what that took is no measure of any.
            memory_bytes: None,
        }
    }

    fn seconds(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.latency_seconds).collect()
    }

    fn test(&self, predictor: &Predictor, shared: bool) -> Tested {
        let predicted = predictor.estimate(&self.mix).latency_seconds;
        let seconds = self.measured().latency_seconds;
        let error = predicted.value / seconds - 1.0;
        Tested { strategy: self.mix.strategy, shared, error, covered: predicted.covers(seconds) }
    }
}

fn regret(predictor: &Predictor, settings: &Settings, compared: &[Way]) -> f64 {
    let ways = &compared[..Strategy::ALL.len()];
    let mixes: Vec<Mix> = ways.iter().map(|way| way.mix.clone()).collect();
    let chosen = predictor.recommend(&mixes, Goal::Latency, settings);
    let seconds = |way: &Way| way.measured().latency_seconds;
    let best = ways.iter().map(seconds).fold(f64::INFINITY, f64::min);
    let way = chosen.and_then(|chosen| ways.iter().find(|way| way.mix.strategy == chosen.strategy));
    way.map_or(f64::NAN, |way| seconds(way) / best - 1.0)
}

fn report(what: &str, of: &[&Tested]) {
    let mut errors: Vec<f64> = of.iter().map(|one| one.error.abs()).collect();
    errors.sort_by(f64::total_cmp);
    let mean = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
    let bias = of.iter().map(|one| one.error).sum::<f64>() / errors.len().max(1) as f64;
    let covered = of.iter().filter(|one| one.covered).count() as f64 / errors.len().max(1) as f64;
    println!(
        "{what:<12} {:>4} mixes  median {:>5.1} %  mean {:>5.1} %  bias {:>+5.1} %  covered {:.1} %",
        errors.len(),
        errors.get(errors.len() / 2).copied().unwrap_or(f64::NAN) * 1e2,
        mean * 1e2,
        bias * 1e2,
        covered * 1e2,
    );
}
