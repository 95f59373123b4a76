//! `holdfast run`: models on text, pictures, sound or tensors.

mod inputs;
mod report;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use holdfast_devices::cpu::{CpuEngine, CpuOptions, Target};
use holdfast_devices::{Device, Loaded, Outcome, Program, RequestId, Segment, process_memory};
use holdfast_graph::Tensor;
use holdfast_models::input::Sidecars;
use holdfast_models::{Component, Manifest, Store, StoreError, Variant};

use crate::args::{Global, RunArgs};
use crate::output::{Spinner, plural};
use report::{Memory, ModelReport, Report};

pub(crate) fn run(global: &Global, args: &RunArgs) -> anyhow::Result<()> {
    let store = Arc::new(global.store()?);
    let chosen = args
        .models
        .iter()
        .map(|name| choose(&store, name, args))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut options = CpuOptions { library: global.onnxruntime.clone(), ..CpuOptions::default() };
    if let Some(threads) = args.threads {
        options.threads = threads.into();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(run_all(store, chosen, options, args))?;
    report.print(global.json, args)
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
    store: Arc<Store>,
    chosen: Vec<Chosen>,
    options: CpuOptions,
    args: &RunArgs,
) -> anyhow::Result<Report> {
    let engine = CpuEngine::new(store.clone(), options)?;
    let before = process_memory();
    let spinner = Spinner::new("preparing");
    let mut models = Vec::new();
    for Chosen { manifest, component } in &chosen {
        let name = &manifest.name;
        spinner.say(format!("lowering {name} for this processor (once)"));
        let lowered = engine
            .lower(&component.graph, Target::Cpu, &Default::default())
            .await
            .with_context(|| format!("cannot run `{name}`"))?;
        spinner.say(format!("loading {name}"));
        let loaded = engine
            .load(Segment::new(lowered))
            .await
            .with_context(|| format!("cannot load `{name}`"))?;
        let mut sidecars = Sidecars::default();
        for (file, bytes) in store.files(manifest)? {
            sidecars.insert(file, bytes);
        }
        let prepared = inputs::prepare(&sidecars, &loaded.inputs, args)
            .with_context(|| format!("cannot feed `{name}`"))?;
        spinner.say(format!("running {name}"));
        let runs = repeat(&engine, &loaded, &prepared.tensors, args)
            .await
            .with_context(|| format!("running `{name}`"))?;
        models
            .push(ModelReport::new(manifest, component, &loaded, &sidecars, prepared, runs, args)?);
    }
    drop(spinner);
    let memory = Memory::new(before, process_memory(), &engine.stats().await?, &models);
    Ok(Report { device: engine.info().as_ref().clone(), models, memory })
}

/// The last outcome and the time of every run.
struct Runs {
    outcome: Outcome,
    times: Vec<Duration>,
}

async fn repeat(
    engine: &CpuEngine,
    loaded: &Loaded,
    inputs: &[(String, Tensor)],
    args: &RunArgs,
) -> anyhow::Result<Runs> {
    let outputs: Vec<String> = loaded.outputs.iter().map(|output| output.name.clone()).collect();
    let mut times = Vec::new();
    loop {
        let program = Program::single("", loaded.id, inputs.to_vec(), outputs.clone());
        let request = RequestId(format!("{}-{}", loaded.id, times.len()));
        let program = Program { request, deadline: args.deadline, ..program };
        let started = Instant::now();
        let outcome = engine.run(program).await?;
        times.push(started.elapsed());
        if times.len() >= args.repeat as usize {
            return Ok(Runs { outcome, times });
        }
    }
}
