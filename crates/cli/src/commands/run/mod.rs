//! `holdfast run`: models on text, pictures, sound or tensors.

mod inputs;
mod report;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use holdfast_devices::{ModelKind, process_memory};
use holdfast_models::input::Sidecars;
use holdfast_models::{Component, Manifest, Store, StoreError, Variant};
use holdfast_pool::{Answer, Request};
use holdfast_server::ServerFile;

use crate::args::{Global, RunArgs};
use crate::output::{self, Spinner, plural};
use crate::place::{Place, pool_options};
use report::{Memory, ModelReport, Report};

pub(crate) fn run(global: &Global, args: &RunArgs) -> anyhow::Result<()> {
    let store = Arc::new(global.store()?);
    let chosen = args
        .models
        .iter()
        .map(|name| choose(&store, name, args))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        let spinner = Arc::new(Spinner::new("preparing"));
        let place = place(global, args, &store, spinner.clone()).await?;
        let report = run_all(&store, &place, &chosen, args).await;
        spinner.say("ending");
        place.close().await;
        report
    })?;
    report.print(global.json, args)
}

/// The server that runs already, unless this run wants an engine of its own.
async fn place(
    global: &Global,
    args: &RunArgs,
    store: &Arc<Store>,
    spinner: Arc<Spinner>,
) -> anyhow::Result<Place> {
    let own_engine = args.threads.is_some() || global.onnxruntime.is_some();
    if !own_engine && let Some(server) = ServerFile::find(&global.home()?) {
        if args.browser.is_set() {
            output::warn("a server runs, so what was said about the browser does not count");
        }
        return Ok(Place::There(server));
    }
    let progress = Arc::new(move |text: &str| spinner.say(text.to_owned()));
    let options = pool_options(global, Some(&args.browser), args.threads, progress)?;
    Place::here(store.clone(), options, args.device.need_browser()).await
}

/// A component that the user asked for.
struct Chosen {
    manifest: Manifest,
    component: Component,
}

fn choose(store: &Store, name: &str, args: &RunArgs) -> anyhow::Result<Chosen> {
    let manifest = store.model(name)?;
    let variant = args.variant.clone().map(Variant);
    if let Some(variant) = &variant
        && !manifest.variants().contains(variant)
    {
        let available = manifest.variants().iter().map(ToString::to_string).collect();
        let (of, asked) = (name.to_owned(), variant.to_string());
        return Err(StoreError::NoSuchVariant { of, asked, available }.into());
    }
    let components = manifest.choose(variant.as_ref());
    let roles: Vec<String> = components.iter().map(|c| c.role.to_string()).collect();
    let component = match (&args.component, components.as_slice()) {
        (None, [only]) => *only,
        (None, several) => match several.iter().find(|component| component.role.0 == "model") {
            Some(component) => component,
            None => bail!(
                "`{name}` has {}; choose with --component: {}",
                plural(several.len(), "component"),
                roles.join(", ")
            ),
        },
        (Some(role), all) => {
            let found = all.iter().find(|component| component.role.0 == *role);
            found.ok_or_else(|| StoreError::NoSuchComponent {
                model: name.to_owned(),
                role: role.clone(),
                available: roles,
            })?
        }
    };
    Ok(Chosen { component: component.clone(), manifest })
}

async fn run_all(
    store: &Store,
    place: &Place,
    chosen: &[Chosen],
    args: &RunArgs,
) -> anyhow::Result<Report> {
    let before = process_memory();
    let mut models = Vec::new();
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
            graph: component.graph.clone(),
            kind: kind(component, args),
            inputs: prepared.tensors.clone(),
            choices: args.device.clone(),
            deadline: args.deadline,
        };
        let runs = repeat(place, &request, args.repeat)
            .await
            .with_context(|| format!("cannot run `{name}`"))?;
        models.push(ModelReport::new(manifest, component, &sidecars, prepared, runs, args)?);
    }
    let here = matches!(place, Place::Here { .. });
    let memory = Memory::new(before, process_memory().filter(|_| here), &models);
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
