//! `holdfast compare`: a mix run in every way, in turns, beside what was predicted.

use anyhow::bail;
use holdfast_pool::{Compared, Comparison};
use holdfast_predict::{Goal, Measured};
use serde_json::{Value, json};

use super::predict::{as_json, time};
use crate::args::{CompareArgs, Global};
use crate::lab::Lab;
use crate::output;

pub(crate) fn run(global: &Global, args: &CompareArgs) -> anyhow::Result<()> {
    by_time(args.goal)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let lab = Lab::open(global, &args.place).await?;
        let compared = match lab.workload(&args.models, &args.place, args.goal, 0) {
            Ok(workload) => {
                lab.spinner.say(format!("running every way {} times", args.repeats));
                let compared = lab.pool.compare(&workload, args.repeats.into()).await;
                compared.map_err(anyhow::Error::from)
            }
            Err(error) => Err(error),
        };
        lab.close().await;
        print(global, args, &compared?)
    })
}

/// Refuses a goal that ways cannot be compared by.
pub(super) fn by_time(goal: Goal) -> anyhow::Result<()> {
    if goal == Goal::Memory {
        bail!(
            "ways cannot be compared by memory: they take turns in one engine, which keeps what each \
             of them took; `holdfast predict --goal memory` says what each would take, and \
             `holdfast run --strategy WAY` what one of them took"
        );
    }
    Ok(())
}

fn print(global: &Global, args: &CompareArgs, compared: &Comparison) -> anyhow::Result<()> {
    if global.json {
        return output::print_json(&json!({
            "device": compared.choice.to_string(),
            "goal": compared.goal,
            "best": compared.best,
            "confidence": compared.confidence,
            "recommended": compared.recommended,
            "regret": compared.regret,
            "strategies": compared.ways.iter().map(way_json).collect::<Vec<_>>(),
            "unshared": compared.unshared.as_ref().map(way_json),
        }));
    }
    let models: Vec<String> = args.models.iter().map(ToString::to_string).collect();
    output::line(format!(
        "{} on {}, {} in turns after one to warm up",
        models.join(", "),
        compared.choice,
        output::plural(args.repeats.into(), "run"),
    ))?;
    let header =
        ["strategy", "predicted", "measured", "error", "fastest – slowest", "answers a second"];
    let mut rows: Vec<Vec<String>> =
        compared.ways.iter().map(|way| row(way, way.strategy.to_string())).collect();
    if let Some(unshared) = &compared.unshared {
        rows.push(row(unshared, format!("{}, nothing shared", unshared.strategy)));
    }
    output::table(&header, 1, rows)?;
    output::line(format!(
        "\nbest for {}: {} (sure to {:.0} %)",
        compared.goal,
        compared.best,
        compared.confidence * 1e2
    ))?;
    output::line(format!(
        "recommended before: {}, which takes {:.1} % more than the best",
        compared.recommended,
        compared.regret * 1e2
    ))
}

fn row(way: &Compared, name: String) -> Vec<String> {
    let Measured { latency_seconds, throughput_per_second, .. } = way.measured();
    let predicted = way.estimate.latency_seconds.value;
    let times = || way.runs.iter().map(|run| run.latency_seconds);
    let (fastest, slowest) = (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
    vec![
        name,
        time(predicted),
        time(latency_seconds),
        format!("{:+.1} %", (predicted / latency_seconds - 1.0) * 1e2),
        format!("{} – {}", time(fastest), time(slowest)),
        format!("{throughput_per_second:.1}"),
    ]
}

fn way_json(way: &Compared) -> Value {
    let measured = way.measured();
    let runs: Vec<f64> = way.runs.iter().map(|run| run.latency_seconds * 1e3).collect();
    json!({
        "strategy": way.strategy,
        "predicted": as_json(way.strategy, &way.estimate),
        "measured": {
            "latency_ms": measured.latency_seconds * 1e3,
            "throughput_per_second": measured.throughput_per_second,
        },
        "runs_ms": runs,
    })
}
