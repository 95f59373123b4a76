//! `holdfast run`: models on text, pictures, sound or tensors.

mod inputs;
mod report;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use holdfast_devices::{ModelKind, process_memory};
use holdfast_models::input::Sidecars;
use holdfast_models::{Component, Store};
use holdfast_pool::{Answer, Request};

use crate::args::{Global, RunArgs};
use crate::chosen::{Chosen, choose};
use crate::output::Spinner;
use crate::place::{Place, Wanted};
use report::{Memory, ModelReport, Report};

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
        asked.push((name, manifest, component, sidecars, prepared, request));
    }
    let requests: Vec<Request> = asked.iter().map(|asked| asked.5.clone()).collect();
    place.bring_together(&requests).await;
    let mut models = Vec::new();
    for (name, manifest, component, sidecars, prepared, request) in asked {
        let runs = repeat(place, &request, args.repeat)
            .await
            .with_context(|| format!("cannot run `{name}`"))?;
        models.push(ModelReport::new(manifest, component, &sidecars, prepared, runs, args)?);
    }
    let here = matches!(place, Place::Here { .. });
    let memory = Memory::new(before, process_memory().filter(|_| here), &models, place.held());
    Ok(Report { models, memory })
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

async fn repeat(place: &Place, request: &Request, times: u32) -> anyhow::Result<Runs> {
    let first = place.run(request).await?;
    let mut runs = Runs { times: vec![first.took], last: first.clone(), first };
    for _ in 1..times {
        runs.last = place.run(request).await?;
        runs.times.push(runs.last.took);
    }
    Ok(runs)
}
