//! `holdfast share`: what models have in common, what that saves, and why the rest is not shared.

pub(crate) mod in_common;
pub(crate) mod planning;
mod words;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use holdfast_devices::cpu::{CpuEngine, CpuOptions};
use holdfast_graph::share::{SharePlan, Source};
use serde_json::{Value, json};

use crate::args::{Global, ShareArgs};
use crate::output::{self, Spinner};
use in_common::InCommon;
use planning::{Mirrored, Planned, plan};

pub(crate) fn run(global: &Global, args: &ShareArgs) -> anyhow::Result<()> {
    let store = Arc::new(global.store()?);
    let options = CpuOptions { library: global.onnxruntime.clone(), ..CpuOptions::default() };
    let spinner = Spinner::new("starting the engine");
    let engine = CpuEngine::new(store.clone(), options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    let say = |what: String| spinner.say(what);
    let planning = plan(&engine, &store, &args.models, args.target, &args.dims, &say);
    let Planned { plan, dims, mirrored } = runtime.block_on(planning)?;
    let in_common = InCommon::of(&plan);
    drop(spinner);
    if let Some(path) = &args.dot {
        write(path, &plan.to_dot())?;
    }
    if let Some(path) = &args.svg {
        write(path, &plan.to_svg())?;
    }
    if global.json {
        return output::print_json(&to_json(&plan, &in_common, &mirrored, args.target.name()));
    }
    let mut lines = words::lines(&plan, &in_common, args.target, &dims);
    lines.extend(words::mirrored(&mirrored));
    lines.iter().try_for_each(output::line)
}

fn write(path: &Path, picture: &str) -> anyhow::Result<()> {
    std::fs::write(path, picture).with_context(|| format!("cannot write {}", path.display()))
}

fn to_json(plan: &SharePlan, in_common: &InCommon, mirrored: &[Mirrored], target: &str) -> Value {
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
        "transposed": mirrored.iter().map(|mirrored| json!({
            "model": mirrored.graph,
            "other": mirrored.other,
            "weights": mirrored.weights,
            "bytes": mirrored.bytes,
        })).collect::<Vec<_>>(),
        "weights_without_trunk": in_common.groups.iter().map(|(models, group)| json!({
            "models": models.iter().map(name).collect::<Vec<_>>(),
            "weights": group.weights,
            "bytes": group.bytes,
        })).collect::<Vec<_>>(),
    })
}
