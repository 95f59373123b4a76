//! `holdfast validate`: mixes drawn at random, each predicted before it runs.

use anyhow::bail;
use holdfast_pool::{Comparison, Request, Workload, WorkloadError};
use serde_json::{Value, json};

use super::compare::by_time;
use super::predict::time;
use super::report::words::percent;
use crate::args::{Global, ModelBatch, ValidateArgs};
use crate::lab::Lab;
use crate::output;

/// Models of a mix.
const LEAST: usize = 2;
const MOST: usize = 6;
/// Rows that a model of a mix may have.
const BATCHES: [usize; 3] = [1, 2, 4];
/// Runs of a model alone, so that it has been seen.
const ALONE: usize = 4;

pub(crate) fn run(global: &Global, args: &ValidateArgs) -> anyhow::Result<()> {
    by_time(args.goal)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let lab = Lab::open(global, &args.place).await?;
        let validated = validate(&lab, global, args).await;
        let history = lab.recording.history.clone();
        lab.close().await;
        let drawn = validated?;
        let dataset = match &args.dataset {
            Some(path) => Some((path, history.export(path)?)),
            None => None,
        };
        let summary = Summary::of(&drawn);
        if global.json {
            return output::print_json(&json!({
                "mixes": drawn.iter().map(Drawn::json).collect::<Vec<_>>(),
                "summary": summary.json(),
            }));
        }
        summary.print()?;
        if let Some((path, rows)) = dataset {
            let rows = output::plural(usize::try_from(rows)?, "row");
            output::line(format!("wrote {rows} to {}", path.display()))?;
        }
        Ok(())
    })
}

/// A mix that was drawn, and what came of it.
struct Drawn {
    models: Vec<ModelBatch>,
    compared: Comparison,
}

async fn validate(lab: &Lab, global: &Global, args: &ValidateArgs) -> anyhow::Result<Vec<Drawn>> {
    let names = if args.models.is_empty() { lab.models(&args.place)? } else { args.models.clone() };
    if names.len() < LEAST {
        bail!(
            "mixes are drawn from at least {LEAST} models, and there {} that can be fed; import \
             more, or make some with `holdfast synth`",
            if names.len() == 1 { "is one".to_owned() } else { format!("are {}", names.len()) }
        );
    }
    for (number, name) in names.iter().enumerate() {
        lab.spinner.say(format!("{name} alone ({} of {})", number + 1, names.len()));
        for batch in BATCHES {
            let model = ModelBatch { model: name.clone(), batch };
            for round in 0..ALONE {
                let workload = lab.workload(
                    std::slice::from_ref(&model),
                    &args.place,
                    args.goal,
                    round as u64,
                )?;
                for request in &workload.requests {
                    lab.pool.run(&Request { share: false, ..request.clone() }).await?;
                }
            }
        }
    }
    lab.pool.ledger().settled().await;
    let mut chance = Chance(args.seed);
    let mut all = Vec::new();
    if !global.json {
        lab.spinner.beside(|| output::line(Drawn::HEADER))?;
    }
    for number in 0..args.mixes {
        let models = draw(&names, &mut chance);
        lab.spinner.say(format!("mix {} of {}", number + 1, args.mixes));
        let round = 1_000 + u64::from(number);
        let workload: Workload = lab.workload(&models, &args.place, args.goal, round)?;
        let compared = match lab.pool.compare(&workload, args.repeats.into()).await {
            // There is no prediction to judge, and the other mixes have theirs.
            Err(error @ WorkloadError::Unknown { .. }) => {
                lab.spinner
                    .beside(|| output::warn(format!("mix {} is left out: {error}", number + 1)));
                continue;
            }
            compared => compared?,
        };
        let drawn = Drawn { models, compared };
        if !global.json {
            lab.spinner.beside(|| output::line(drawn.line()))?;
        }
        all.push(drawn);
    }
    Ok(all)
}

/// Two to six models, each once, with some rows.
fn draw(names: &[String], chance: &mut Chance) -> Vec<ModelBatch> {
    let mut left = names.to_vec();
    let count = LEAST + chance.below(MOST.min(left.len()) - LEAST + 1);
    let mut pick = || {
        let model = left.swap_remove(chance.below(left.len()));
        ModelBatch { model, batch: BATCHES[chance.below(BATCHES.len())] }
    };
    (0..count).map(|_| pick()).collect()
}

/// Numbers that are the same for the same seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        // SplitMix64: neighbouring seeds give numbers that have nothing to do with each other.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit.max(1) as u64) as usize
    }
}

impl Drawn {
    const HEADER: &'static str =
        "strategy     predicted     measured     error  90 %  regret  models";

    /// The recommended way, and what it cost to follow the recommendation.
    fn line(&self) -> String {
        let way = self.compared.ways.iter().find(|way| way.strategy == self.compared.recommended);
        let Some(way) = way else { return String::new() };
        let (predicted, measured) = (way.estimate.latency_seconds, way.measured().latency_seconds);
        let models: Vec<String> = self.models.iter().map(ToString::to_string).collect();
        format!(
            "{:<11} {:>10} {:>12} {:>9}  {:<4}  {:>6}  {}",
            way.strategy.to_string(),
            time(predicted.value),
            time(measured),
            format!("{:+.1} %", (predicted.value / measured - 1.0) * 1e2),
            if predicted.covers(measured) { "in" } else { "out" },
            percent(self.compared.regret),
            models.join(", ")
        )
    }

    fn json(&self) -> Value {
        let ways = self.compared.ways.iter().map(|way| {
            let measured = way.measured();
            json!({
                "strategy": way.strategy,
                "predicted_ms": way.estimate.latency_seconds.value * 1e3,
                "low_ms": way.estimate.latency_seconds.low * 1e3,
                "high_ms": way.estimate.latency_seconds.high * 1e3,
                "measured_ms": measured.latency_seconds * 1e3,
            })
        });
        json!({
            "models": self.models.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "recommended": self.compared.recommended,
            "best": self.compared.best,
            "regret": self.compared.regret,
            "ways": ways.collect::<Vec<_>>(),
        })
    }
}

/// How good the predictions of all mixes and strategies were.
struct Summary {
    mixes: usize,
    latency: Vec<f64>,
    covered: f64,
    small_regret: f64,
}

impl Summary {
    fn of(drawn: &[Drawn]) -> Summary {
        let ways = || drawn.iter().flat_map(|drawn| &drawn.compared.ways);
        let error = |predicted: f64, measured: f64| (predicted / measured - 1.0).abs();
        let mut latency: Vec<f64> = ways()
            .map(|way| error(way.estimate.latency_seconds.value, way.measured().latency_seconds))
            .collect();
        let covered = ways()
            .filter(|way| way.estimate.latency_seconds.covers(way.measured().latency_seconds));
        let small = drawn.iter().filter(|drawn| drawn.compared.regret <= 0.05);
        latency.sort_by(f64::total_cmp);
        let part = |count: usize, of: usize| count as f64 / of.max(1) as f64;
        Summary {
            mixes: drawn.len(),
            covered: part(covered.count(), latency.len()),
            small_regret: part(small.count(), drawn.len()),
            latency,
        }
    }

    fn median(&self) -> Option<f64> {
        self.latency.get(self.latency.len() / 2).copied()
    }

    fn json(&self) -> Value {
        json!({
            "mixes": self.mixes,
            "latency_error_median": self.median(),
            "latency_error_mean": mean(&self.latency),
            "interval_coverage": self.covered,
            "regret_at_most_5_percent": self.small_regret,
        })
    }

    fn print(&self) -> anyhow::Result<()> {
        let shown = |rate: Option<f64>| rate.map_or("–".to_owned(), percent);
        output::line(format!(
            "\n{} in every way: latency was off by {} in the middle and by {} on average",
            output::plural(self.mixes, "mix").replace("mixs", "mixes"),
            shown(self.median()),
            shown(mean(&self.latency)),
        ))?;
        output::line(format!(
            "{} of the measurements lay in the 90 % interval; following the recommendation cost at \
             most 5 % in {} of the mixes",
            percent(self.covered),
            percent(self.small_regret)
        ))
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_mixes_and_another_one_others() {
        let names: Vec<String> = (0..8).map(|number| format!("model-{number}")).collect();
        let mixes = |seed| {
            let mut chance = Chance(seed);
            let mix = |_| draw(&names, &mut chance).iter().map(ToString::to_string).collect();
            (0..20).map(mix).collect::<Vec<Vec<String>>>()
        };
        assert_eq!(mixes(1), mixes(1));
        assert_ne!(mixes(1), mixes(2));
        for mix in mixes(3) {
            assert!((LEAST..=MOST).contains(&mix.len()), "{mix:?}");
        }
    }

    #[test]
    fn a_mix_has_no_more_models_than_there_are() {
        let names = ["a".to_owned(), "b".to_owned()];
        let mut chance = Chance(5);
        for _ in 0..20 {
            let mut models: Vec<String> =
                draw(&names, &mut chance).into_iter().map(|of| of.model).collect();
            models.sort();
            assert_eq!(models, ["a", "b"]);
        }
    }
}
