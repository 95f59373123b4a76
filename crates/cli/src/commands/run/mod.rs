//! `holdfast run`: models on text, pictures, sound or tensors.

mod inputs;
mod report;
mod together;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use holdfast_devices::{ModelKind, process_memory};
use holdfast_models::input::Sidecars;
use holdfast_models::{Component, Store};
use holdfast_pool::{Answer, Execution, Request, Workload};

use crate::args::{Global, RunArgs, Way};
use crate::chosen::{Chosen, choose};
use crate::output::Spinner;
use crate::place::{Place, Wanted};
use report::{Memory, ModelReport, Report};
use together::Together;

pub(crate) fn run(global: &Global, args: &RunArgs) -> anyhow::Result<()> {
    let store = Arc::new(global.store()?);
    let chosen = args
        .models
        .iter()
        .map(|name| choose(&store, name, args.variant.as_deref(), args.component.as_deref()))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        let spinner = Arc::new(Spinner::new("preparing"));
        let wanted = Wanted {
            fleet: &args.fleet,
            threads: args.threads,
            with_browser: args.device.need_browser(),
        };
        let place = Place::find(global, &store, wanted, spinner.clone()).await?;
        let report = run_all(&store, &place, &chosen, args).await;
        spinner.say("ending");
        place.close().await;
        report
    })?;
    report.print(global.json, args)
}

async fn run_all(
    store: &Store,
    place: &Place,
    chosen: &[Chosen],
    args: &RunArgs,
) -> anyhow::Result<Report> {
    let before = process_memory();
    let mut asked = Vec::new();
    for Chosen { manifest, component } in chosen {
        let name = &manifest.name;
        let mut sidecars = Sidecars::default();
        for (file, bytes) in store.files(manifest)? {
            sidecars.insert(file, bytes);
        }
        let graph = store.open_graph(&component.graph)?;
        let prepared = inputs::prepare(&sidecars, &graph.inputs(), args)
            .with_context(|| format!("cannot feed `{name}`"))?;
        drop(graph);
        let request = Request {
            model: name.clone(),
            graph: component.graph.clone(),
            kind: kind(component, args),
            inputs: prepared.tensors.clone(),
            choices: args.device.clone(),
            priority: args.priority,
            share: !args.no_share,
            namespace: String::new(),
            deadline: args.deadline,
        };
        asked.push((manifest, component, sidecars, prepared, request));
    }
    let requests: Vec<Request> = asked.iter().map(|asked| asked.4.clone()).collect();
    let (runs, together) = match args.strategy {
        Some(way) => {
            let (runs, together) = run_together(place, requests, way, args).await?;
            (runs, Some(together))
        }
        None => (run_each(place, &requests, args.repeat).await?, None),
    };
    let mut models = Vec::new();
    for ((manifest, component, sidecars, prepared, _), runs) in asked.into_iter().zip(runs) {
        models.push(ModelReport::new(manifest, component, &sidecars, prepared, runs, args)?);
    }
    let here = matches!(place, Place::Here { .. });
    let memory = Memory::new(before, process_memory().filter(|_| here), &models, place.held());
    Ok(Report { models, together, memory })
}

/// What a model is for, as far as its inputs and its role tell.
fn kind(component: &Component, args: &RunArgs) -> ModelKind {
    let given = [!args.texts.is_empty(), !args.images.is_empty(), !args.audio.is_empty()];
    match given {
        _ if component.role.0.starts_with("decoder") => ModelKind::Generation,
        [true, false, false] => ModelKind::Text,
        [false, true, false] => ModelKind::Vision,
        [false, false, true] => ModelKind::Audio,
        [false, false, false] => ModelKind::Other,
        _ => ModelKind::Multimodal,
    }
}

/// The first answer, which says what loading took, the last, and the time of every run.
struct Runs {
    first: Answer,
    last: Answer,
    times: Vec<Duration>,
}

impl Runs {
    fn of(first: Answer) -> Runs {
        Runs { times: vec![first.took], last: first.clone(), first }
    }

    fn add(&mut self, answer: Answer) {
        self.times.push(answer.took);
        self.last = answer;
    }
}

/// One model after the other.
async fn run_each(place: &Place, requests: &[Request], times: u32) -> anyhow::Result<Vec<Runs>> {
    place.bring_together(requests).await;
    let mut all = Vec::new();
    for request in requests {
        let run = || async {
            place.run(request).await.with_context(|| format!("cannot run `{}`", request.model))
        };
        let mut runs = Runs::of(run().await?);
        for _ in 1..times {
            runs.add(run().await?);
        }
        all.push(runs);
    }
    Ok(all)
}

/// All models together, as one workload.
async fn run_together(
    place: &Place,
    requests: Vec<Request>,
    way: Way,
    args: &RunArgs,
) -> anyhow::Result<(Vec<Runs>, Together)> {
    let workload = Workload { requests, goal: args.goal };
    let strategy = match way {
        Way::Recommended => None,
        Way::Given(strategy) => Some(strategy),
    };
    let first = place.execute(&workload, strategy).await?;
    let mut runs: Vec<Runs> = first.answers.iter().cloned().map(Runs::of).collect();
    let mut together = Together { executions: vec![first] };
    for _ in 1..args.repeat {
        let next = place.execute(&workload, strategy).await?;
        runs.iter_mut().zip(&next.answers).for_each(|(runs, answer)| runs.add(answer.clone()));
        together.executions.push(Execution { answers: Vec::new(), ..next });
    }
    Ok((runs, together))
}
