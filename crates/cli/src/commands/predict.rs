//! `holdfast predict`: what a mix of models will cost, before it runs.

use holdfast_pool::Forecast;
use holdfast_predict::{Estimate, Quantity, Strategy, Term, TermSource};
use serde_json::{Value, json};

use crate::args::{Global, PredictArgs};
use crate::lab::Lab;
use crate::output;

pub(crate) fn run(global: &Global, args: &PredictArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let lab = Lab::open(global, &args.place).await?;
        let forecast = match lab.workload(&args.models, &args.place, args.goal, 0) {
            Ok(workload) => lab.pool.forecast(&workload).await.map_err(anyhow::Error::from),
            Err(error) => Err(error),
        };
        lab.close().await;
        print(global, args, &forecast?)
    })
}

fn print(global: &Global, args: &PredictArgs, forecast: &Forecast) -> anyhow::Result<()> {
    let recommendation = &forecast.recommendation;
    let shown: Vec<(Strategy, &Estimate)> = recommendation
        .estimates
        .iter()
        .filter(|(strategy, _)| args.strategy.is_none_or(|only| only == *strategy))
        .map(|(strategy, estimate)| (*strategy, estimate))
        .collect();
    if global.json {
        let strategies: Vec<Value> =
            shown.iter().map(|(strategy, estimate)| as_json(*strategy, estimate)).collect();
        return output::print_json(&json!({
            "device": forecast.choice.to_string(),
            "goal": args.goal,
            "recommended": recommendation.strategy,
            "why": recommendation.why,
            "strategies": strategies,
        }));
    }
    let models: Vec<String> = args.models.iter().map(ToString::to_string).collect();
    output::line(format!("{} on {}", models.join(", "), forecast.choice))?;
    let header = ["strategy", "latency", "answers a second", "memory", "measurements behind it"];
    let row = |(strategy, estimate): &(Strategy, &Estimate)| {
        vec![
            strategy.to_string(),
            interval(&estimate.latency_seconds, time),
            interval(&estimate.throughput_per_second, rate),
            interval(&estimate.memory_bytes, |bytes| output::bytes(bytes as u64)),
            estimate.observations.to_string(),
        ]
    };
    output::table(&header, 1, shown.iter().map(row).collect())?;
    output::line("(in brackets: where 90 of 100 measurements lie)")?;
    if args.strategy.is_none() {
        let why = &recommendation.why;
        output::line(format!("\nfor {}: {}, {why}", args.goal, recommendation.strategy))?;
    }
    if args.explain {
        let of = args.strategy.unwrap_or(recommendation.strategy);
        if let Some((_, estimate)) = shown.iter().find(|(strategy, _)| *strategy == of) {
            output::line(format!("\n{of} is made of"))?;
            output::table(
                &["what", "comes from", "value"],
                2,
                estimate.terms.iter().map(term).collect(),
            )?;
        }
    }
    Ok(())
}

fn term(term: &Term) -> Vec<String> {
    let value = match term.unit.as_str() {
        "s" => time(term.value),
        "bytes" => output::bytes(term.value.max(0.0) as u64),
        unit => format!("{:.3} {unit}", term.value),
    };
    vec![term.what.clone(), source(term.source).to_owned(), value]
}

fn source(source: TermSource) -> &'static str {
    match source {
        TermSource::Measured => "measured",
        TermSource::Interpolated => "measured at other sizes",
        TermSource::Fitted => "fitted to other models",
        TermSource::Prior => "shipped prior",
    }
}

fn interval(quantity: &Quantity, write: impl Fn(f64) -> String) -> String {
    let Quantity { value, low, high, .. } = *quantity;
    format!("{} ({} – {})", write(value), write(low), write(high))
}

/// A time for people.
pub(crate) fn time(seconds: f64) -> String {
    match seconds * 1e3 {
        ms if ms >= 10_000.0 => format!("{seconds:.1} s"),
        ms if ms >= 100.0 => format!("{ms:.0} ms"),
        ms if ms >= 1.0 => format!("{ms:.1} ms"),
        ms => format!("{:.0} µs", ms * 1e3),
    }
}

fn rate(per_second: f64) -> String {
    if per_second >= 100.0 { format!("{per_second:.0}") } else { format!("{per_second:.1}") }
}

/// An estimate with stable keys.
pub(crate) fn as_json(strategy: Strategy, estimate: &Estimate) -> Value {
    let quantity = |quantity: &Quantity, scale: f64| {
        json!({
            "value": quantity.value * scale,
            "low": quantity.low * scale,
            "high": quantity.high * scale,
        })
    };
    json!({
        "strategy": strategy,
        "latency_ms": quantity(&estimate.latency_seconds, 1e3),
        "throughput_per_second": quantity(&estimate.throughput_per_second, 1.0),
        "memory_bytes": quantity(&estimate.memory_bytes, 1.0),
        "observations": estimate.observations,
        "terms": estimate.terms,
    })
}
