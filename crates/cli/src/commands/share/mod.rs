//! `holdfast share`: what models have in common, what that saves, and why the rest is not shared.

mod words;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use holdfast_devices::cpu::{CpuEngine, CpuOptions, Target};
use holdfast_graph::infer::Bindings;
use holdfast_graph::share::{Member, Prices, SharePlan, Source, share};
use holdfast_graph::{Fingerprints, Model};
use holdfast_models::{Component, Store, hashed_weights};
use serde_json::{Value, json};

use super::show::dims_for;
use crate::args::{Global, ShareArgs};
use crate::output::{self, Spinner};

pub(crate) fn run(global: &Global, args: &ShareArgs) -> anyhow::Result<()> {
    let store = Arc::new(global.store()?);
    let options = CpuOptions { library: global.onnxruntime.clone(), ..CpuOptions::default() };
    let spinner = Spinner::new("starting the engine");
    let engine = CpuEngine::new(store.clone(), options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    let mut parts = Vec::new();
    for name in &args.models {
        let manifest = store.model(name)?;
        let components = manifest.choose(None);
        for component in &components {
            let name = called(&manifest.name, component, components.len());
            spinner.say(format!("optimising {name} for {}", args.target.name()));
            let part = Part::new(&engine, &store, component, name, args);
            parts.push(runtime.block_on(part)?);
        }
    }
    spinner.say("comparing the models");
    let members: Vec<Member<'_>> = parts.iter().map(Part::member).collect();
    let plan = share(&members, &Prices::default())
        .context("give the sizes of its dimensions with --dim NAME=SIZE")?;
    drop(spinner);
    if let Some(path) = &args.dot {
        std::fs::write(path, plan.to_dot())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if global.json {
        return output::print_json(&to_json(&plan, args.target.name()));
    }
    let dims = parts.iter().fold(BTreeMap::new(), |mut all, part| {
        all.extend(part.dims.clone());
        all
    });
    words::lines(&plan, args.target.name(), &dims).iter().try_for_each(output::line)
}

/// A model of one component goes by its own name.
fn called(model: &str, component: &Component, components: usize) -> String {
    match components {
        1 => model.to_owned(),
        _ => format!("{model} {}", component.role),
    }
}

/// One component as it runs.
struct Part {
    name: String,
    model: Model,
    prints: Fingerprints,
    dims: BTreeMap<String, usize>,
    sizes: Bindings,
}

impl Part {
    async fn new(
        engine: &CpuEngine,
        store: &Store,
        component: &Component,
        name: String,
        args: &ShareArgs,
    ) -> anyhow::Result<Part> {
        let dims = dims_for(&store.open_graph(&component.graph)?, &args.dims);
        // As the pool does it: only WebNN compiles for fixed sizes.
        let fixed = match args.target.target() {
            Target::WebNn => dims.clone(),
            Target::Cpu | Target::Wasm | Target::WebGpu => BTreeMap::new(),
        };
        let lowered = engine.lower(&component.graph, args.target.target(), &fixed).await?;
        let model = store.open_graph(&lowered)?;
        let prints = Fingerprints::new(&model, &hashed_weights(&model));
        let sizes =
            dims.iter().fold(Bindings::new(), |sizes, (name, size)| sizes.size(name, *size));
        Ok(Part { name, model, prints, dims, sizes })
    }

    fn member(&self) -> Member<'_> {
        Member { name: &self.name, model: &self.model, prints: &self.prints, sizes: &self.sizes }
    }
}

fn to_json(plan: &SharePlan, target: &str) -> Value {
    let name = |model: &usize| plan.models[*model].name.clone();
    let segments: Vec<Value> = plan
        .segments
        .iter()
        .map(|segment| {
            json!({
                "id": segment.id.to_string(),
                "kind": words::kind(segment.kind),
                "models": segment.users.iter().map(name).collect::<Vec<_>>(),
                "nodes": segment.model.nodes().len(),
                "flops": segment.cost.flops,
                "weight_bytes": segment.cost.weight_bytes,
                "bytes_in": segment.cost.bytes_in,
                "bytes_out": segment.cost.bytes_out,
            })
        })
        .collect();
    let source = |source: &Source| match source {
        Source::Input { name, casts } => {
            let casts: Vec<&str> = casts.iter().map(|cast| cast.name()).collect();
            json!({ "input": name, "casts": casts })
        }
        Source::Step(from) => json!({ "step": from.step, "output": from.output }),
    };
    let models: Vec<Value> = plan
        .models
        .iter()
        .map(|route| {
            let steps = route.steps.iter().map(|step| {
                let inputs: BTreeMap<&String, Value> =
                    step.inputs.iter().map(|(name, from)| (name, source(from))).collect();
                json!({ "segment": step.segment, "inputs": inputs })
            });
            json!({ "name": route.name, "steps": steps.collect::<Vec<_>>() })
        })
        .collect();
    let differences: Vec<Value> = plan
        .differences
        .iter()
        .map(|difference| {
            json!({
                "model": name(&difference.model),
                "other": name(&difference.other),
                "node": difference.node,
                "operator": difference.operator,
                "reason": difference.reason.to_string(),
            })
        })
        .collect();
    let ((flops, flops_apart), (bytes, bytes_apart)) = (plan.flops(), plan.weight_bytes());
    json!({
        "target": target,
        "plan": plan.id().to_string(),
        "shares": plan.shares(),
        "flops": flops,
        "flops_apart": flops_apart,
        "weight_bytes": bytes,
        "weight_bytes_apart": bytes_apart,
        "segments": segments,
        "models": models,
        "differences": differences,
    })
}
