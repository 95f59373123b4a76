//! What a run gave, as text, `.npy` files or JSON.

use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use holdfast_devices::{DeviceInfo, ProcessMemory, Returned};
use holdfast_graph::{DataType, Tensor};
use holdfast_models::input::{Labels, Pooling, PoolingMode, Prepared, Scored, Sidecars, npy, pool};
use holdfast_models::{Component, Manifest};
use holdfast_pool::{PassedOver, Reused};
use serde_json::{Value, json};

use super::Runs;
use super::together::Together;
use crate::args::RunArgs;
use crate::output::{self, bytes, milliseconds};

pub(super) struct Report {
    pub(super) models: Vec<ModelReport>,
    /// What they took together, if they ran so.
    pub(super) together: Option<Together>,
    pub(super) memory: Memory,
}

pub(super) struct ModelReport {
    model: String,
    role: String,
    variant: String,
    device: Arc<DeviceInfo>,
    passed_over: Vec<PassedOver>,
    load: Duration,
    first_run: Option<Duration>,
    first_run_error: Option<String>,
    downloaded_bytes: u64,
    placement: Option<String>,
    weight_bytes: u64,
    new_weight_bytes: u64,
    times: Vec<Duration>,
    reused: Reused,
    truncated: Vec<usize>,
    outputs: Vec<Returned>,
    embeddings: Option<Tensor>,
    labels: Option<Vec<Vec<Scored>>>,
}

impl ModelReport {
    pub(super) fn new(
        manifest: &Manifest,
        component: &Component,
        sidecars: &Sidecars,
        prepared: Prepared,
        runs: Runs,
        args: &RunArgs,
    ) -> anyhow::Result<ModelReport> {
        let loaded = runs.first.loaded;
        let outputs = runs.last.outcome.outputs;
        let logits = outputs.iter().find(|output| output.name == "logits");
        let labels = match (Labels::from_sidecars(sidecars)?, logits) {
            // Token classifiers and language models have logits of other shapes.
            (Some(labels), Some(logits)) if logits.tensor.dims().len() == 2 => {
                Some(labels.top(&logits.tensor, 3)?)
            }
            _ => None,
        };
        let embeddings = embeddings(&manifest.name, sidecars, &outputs, &prepared, args)?;
        Ok(ModelReport {
            model: manifest.name.clone(),
            role: component.role.to_string(),
            variant: component.variant.to_string(),
            device: runs.last.outcome.device,
            passed_over: runs.last.passed_over,
            load: loaded.took,
            first_run: loaded.first_run,
            first_run_error: loaded.first_run_error,
            downloaded_bytes: loaded.downloaded_bytes,
            placement: loaded.placement,
            weight_bytes: loaded.weight_bytes,
            new_weight_bytes: loaded.new_weight_bytes,
            times: runs.times,
            reused: runs.last.reused,
            truncated: prepared.truncated,
            outputs,
            embeddings,
            labels,
        })
    }
}

/// One vector for each text, where the model or the user says how.
fn embeddings(
    model: &str,
    sidecars: &Sidecars,
    outputs: &[Returned],
    prepared: &Prepared,
    args: &RunArgs,
) -> anyhow::Result<Option<Tensor>> {
    let pooling = match args.pool.as_deref() {
        Some("none") => None,
        Some(mode) => {
            let mode: PoolingMode = mode.parse().map_err(anyhow::Error::msg)?;
            Some(Pooling { mode, normalize: true })
        }
        None => Pooling::from_sidecars(sidecars)?,
    };
    let hidden = outputs.iter().find(|output| output.tensor.dims().len() == 3);
    match (pooling, hidden, &prepared.mask) {
        (Some(pooling), Some(hidden), Some(mask)) => Ok(Some(pool(&hidden.tensor, mask, pooling)?)),
        (None, _, _) if args.similarity => bail!(
            "`{model}` does not say how its token vectors become one embedding; add --pool mean"
        ),
        (Some(_), None, _) if args.pool.is_some() || args.similarity => {
            bail!("`{model}` gives no [batch, tokens, features] output to pool")
        }
        (Some(_), Some(_), None) if args.pool.is_some() || args.similarity => {
            bail!("pooling needs --text, to know which tokens are padding")
        }
        _ => Ok(None),
    }
}

/// What the models hold in memory together.
pub(super) struct Memory {
    weight_bytes: u64,
    /// What it would be if every model had its own copy.
    apart_bytes: u64,
    private_bytes: Option<u64>,
}

impl Memory {
    pub(super) fn new(
        before: Option<ProcessMemory>,
        after: Option<ProcessMemory>,
        models: &[ModelReport],
        held: Option<u64>,
    ) -> Memory {
        let private = |memory: ProcessMemory| memory.private_bytes;
        let loaded = || models.iter().map(|model| model.new_weight_bytes).sum();
        Memory {
            weight_bytes: held.unwrap_or_else(loaded),
            apart_bytes: models.iter().map(|model| model.weight_bytes).sum(),
            private_bytes: before.zip(after).map(|(a, b)| private(b).saturating_sub(private(a))),
        }
    }
}

impl Report {
    pub(super) fn print(&self, as_json: bool, args: &RunArgs) -> anyhow::Result<()> {
        if let Some(folder) = &args.out {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
            for model in &self.models {
                model.write(folder)?;
            }
        }
        if as_json {
            return output::print_json(&self.to_json(args));
        }
        for model in &self.models {
            model.print(args)?;
        }
        if let Some(together) = &self.together {
            together.print()?;
        }
        self.print_memory()
    }

    fn print_memory(&self) -> anyhow::Result<()> {
        let Memory { weight_bytes, apart_bytes, private_bytes } = &self.memory;
        let mut text = format!("weights {}", output::bytes_instead_of(*weight_bytes, *apart_bytes));
        if let Some(private) = private_bytes {
            text.push_str(&format!("; private to this process {}", bytes(*private)));
        }
        output::line(format!("memory: {text}"))
    }

    fn to_json(&self, args: &RunArgs) -> Value {
        json!({
            "models": self.models.iter().map(|model| model.to_json(args)).collect::<Vec<_>>(),
            "together": self.together.as_ref().map(Together::to_json),
            "memory": {
                "weight_bytes": self.memory.weight_bytes,
                "weight_bytes_apart": self.memory.apart_bytes,
                "private_bytes": self.memory.private_bytes,
            },
        })
    }
}

impl ModelReport {
    fn print(&self, args: &RunArgs) -> anyhow::Result<()> {
        output::line(format!("{} ({}, {})", self.model, self.role, self.variant))?;
        if !self.truncated.is_empty() {
            let texts: Vec<String> = self.truncated.iter().map(|n| (n + 1).to_string()).collect();
            output::line(format!("  note: cut to the model's length: text {}", texts.join(", ")))?;
        }
        match (&self.labels, &self.embeddings) {
            (Some(items), _) => {
                for (item, scored) in items.iter().enumerate() {
                    let top: Vec<String> =
                        scored.iter().map(|s| format!("{} {:.3}", s.label, s.score)).collect();
                    output::line(format!("  {}: {}", item + 1, top.join(", ")))?;
                }
            }
            (None, Some(embeddings)) if args.similarity => {
                print_similarity(&args.texts, embeddings)?;
            }
            (None, Some(embeddings)) => print_tensor("embeddings", embeddings)?,
            (None, None) => {
                for output in &self.outputs {
                    print_tensor(&output.name, &output.tensor)?;
                }
            }
        }
        // What models share is found out by running them, so they may be there by now.
        let mut times = match self.load.is_zero() {
            true => "  was loaded already".to_owned(),
            false => format!("  loaded in {}", milliseconds(self.load)),
        };
        if !self.load.is_zero() && self.new_weight_bytes < self.weight_bytes {
            let there = self.weight_bytes - self.new_weight_bytes;
            times.push_str(&format!(" ({} of weights were loaded already)", bytes(there)));
        }
        if let Some(first_run) = self.first_run {
            times.push_str(&format!(", of that {} to warm up", milliseconds(first_run)));
        }
        times.push_str(&format!(", first run {}", milliseconds(self.times[0])));
        if self.times.len() > 1 {
            let (fastest, median) = summary(&self.times);
            let runs = self.times.len();
            times.push_str(&format!(
                ", of {runs} runs: fastest {}, median {}",
                milliseconds(fastest),
                milliseconds(median)
            ));
        }
        output::line(times)?;
        if self.reused != Reused::default() {
            let Reused { tensors, bytes: reused, saved } = self.reused;
            output::line(format!(
                "  took {} ({}) from what was computed for another model, which saved {}",
                output::plural(tensors, "tensor"),
                bytes(reused),
                milliseconds(saved)
            ))?;
        }
        for PassedOver { choice, reason } in &self.passed_over {
            output::line(format!("  {choice} was passed over: {reason}"))?;
        }
        let DeviceInfo { name, engine, adapter, accelerated, .. } = self.device.as_ref();
        let accelerated = if *accelerated { "accelerated" } else { "no accelerator" };
        output::line(format!("  ran on {name}: {engine} on {adapter}, {accelerated}"))?;
        if let Some(placement) = &self.placement {
            output::line(format!("  not all of it: {placement}"))?;
        }
        output::line("")
    }

    fn to_json(&self, args: &RunArgs) -> Value {
        let ms = |duration: &Duration| duration.as_secs_f64() * 1e3;
        let outputs = self.outputs.iter().map(|output| {
            let mut entry = json!({
                "name": output.name,
                "dtype": output.tensor.dtype().name(),
                "dims": output.tensor.dims(),
            });
            if args.out.is_none() {
                entry["values"] = values(&output.tensor).map_or(Value::Null, Value::from);
            }
            entry
        });
        let embeddings = self.embeddings.as_ref().map(rows);
        json!({
            "model": self.model,
            "component": self.role,
            "variant": self.variant,
            "device": {
                "name": self.device.name,
                "backend": self.device.backend,
                "engine": self.device.engine,
                "adapter": self.device.adapter,
                "accelerated": self.device.accelerated,
            },
            "passed_over": self.passed_over.iter().map(|PassedOver { choice, reason }| {
                json!({ "device": choice.to_string(), "reason": reason })
            }).collect::<Vec<_>>(),
            "load_ms": ms(&self.load),
            "warm_up_ms": self.first_run.as_ref().map(ms),
            "warm_up_error": self.first_run_error,
            "downloaded_bytes": self.downloaded_bytes,
            "placement": self.placement,
            "weight_bytes": self.weight_bytes,
            "new_weight_bytes": self.new_weight_bytes,
            "shared_tensors_used": self.reused.tensors,
            "shared_bytes": self.reused.bytes,
            "saved_ms": ms(&self.reused.saved),
            "run_ms": self.times.iter().map(ms).collect::<Vec<_>>(),
            "truncated": self.truncated,
            "outputs": outputs.collect::<Vec<_>>(),
            "embeddings": embeddings,
            "similarity": args.similarity.then(|| self.embeddings.as_ref().map(similarity)),
            "labels": self.labels.as_ref().map(|items| items.iter().map(|scored| {
                scored.iter().map(|s| json!({ "label": s.label, "score": s.score })).collect()
            }).collect::<Vec<Vec<Value>>>()),
        })
    }

    fn write(&self, folder: &std::path::Path) -> anyhow::Result<()> {
        let embeddings = self.embeddings.iter().map(|tensor| ("embeddings", tensor));
        let outputs = self.outputs.iter().map(|output| (output.name.as_str(), &output.tensor));
        for (name, tensor) in outputs.chain(embeddings) {
            let plain =
                |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
            let name: String = name.chars().map(plain).collect();
            let path = folder.join(format!("{}.{name}.npy", self.model));
            let context = || format!("cannot write {}", path.display());
            let file = File::create(&path).with_context(context)?;
            npy::write(tensor, BufWriter::new(file)).with_context(context)?;
        }
        Ok(())
    }
}

fn summary(times: &[Duration]) -> (Duration, Duration) {
    let mut sorted = times.to_vec();
    sorted.sort();
    (sorted[0], sorted[sorted.len() / 2])
}

fn print_tensor(name: &str, tensor: &Tensor) -> anyhow::Result<()> {
    let shown = values(tensor).map_or(String::new(), |values| {
        let first: Vec<String> = values.iter().take(6).map(|value| format!("{value:.4}")).collect();
        let more = if values.len() > 6 { ", …" } else { "" };
        format!("  {}{more}", first.join(", "))
    });
    output::line(format!("  {name} {}{:?}{shown}", tensor.dtype(), tensor.dims()))
}

fn print_similarity(texts: &[String], embeddings: &Tensor) -> anyhow::Result<()> {
    let matrix = similarity(embeddings);
    for (number, (text, row)) in texts.iter().zip(&matrix).enumerate() {
        let cells: Vec<String> = row.iter().map(|value| format!("{value:6.3}")).collect();
        output::line(format!("  {:>2} {}  {text}", number + 1, cells.join(" ")))?;
    }
    Ok(())
}

/// The vectors of a matrix.
fn rows(tensor: &Tensor) -> Vec<Vec<f64>> {
    let width = tensor.dims().last().copied().unwrap_or(1).max(1);
    let values = values(tensor).unwrap_or_default();
    values.chunks(width).map(<[f64]>::to_vec).collect()
}

/// The cosine of every pair of rows.
fn similarity(embeddings: &Tensor) -> Vec<Vec<f64>> {
    let rows = rows(embeddings);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let cosine = |a: &Vec<f64>, b: &Vec<f64>| dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    rows.iter().map(|a| rows.iter().map(|b| cosine(a, b)).collect()).collect()
}

/// The elements as numbers; `None` for types that are only bytes to us.
fn values(tensor: &Tensor) -> Option<Vec<f64>> {
    macro_rules! read {
        ($type:ty) => {
            tensor.to_vec::<$type>().ok()?.into_iter().map(|value| value as f64).collect()
        };
    }
    Some(match tensor.dtype() {
        DataType::F32 => read!(f32),
        DataType::F64 => read!(f64),
        DataType::I8 => read!(i8),
        DataType::I16 => read!(i16),
        DataType::I32 => read!(i32),
        DataType::I64 => read!(i64),
        DataType::U8 => read!(u8),
        DataType::U16 => read!(u16),
        DataType::U32 => read!(u32),
        DataType::U64 => read!(u64),
        DataType::Bool => tensor
            .to_vec::<bool>()
            .ok()?
            .into_iter()
            .map(|value| f64::from(u8::from(value)))
            .collect(),
        DataType::F16 => tensor.to_vec::<half::f16>().ok()?.into_iter().map(f64::from).collect(),
        _ => return None,
    })
}
