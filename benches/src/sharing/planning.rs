//! H8: how long it takes to find out what three BERT-base have in common, beside reading one of
//! them in Python.
//!
//! Everything that planning needs is counted: opening the lowered graphs in the store, fingerprints,
//! and the plan itself. Of a graph the blob is checked against its hash; those of weights are mapped
//! and not read, because their hashes are known and a device checks what it loads. The page cache is
//! warm and the models were lowered before. Beside that, rows `.mapped` are for models whose blobs
//! this process has mapped already, as it has those of models that are loaded.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use holdfast_devices::cpu::{CpuEngine, CpuOptions, Target};
use holdfast_graph::infer::Bindings;
use holdfast_graph::share::{Member, Prices, SharePlan, share};
use holdfast_graph::{Fingerprints, Model, encode};
use holdfast_models::{Store, StoredGraph};
use holdfast_testkit::{Architecture, Recipe, families};

use super::cases::Column;
use super::home::{self, MEMBER};
use crate::python;
use crate::record::{Goal, Record};

const MODELS: usize = 3;
const ROUNDS: usize = 10;

pub(super) async fn run(record: &mut Record) -> Result<()> {
    let size = Column::Cpu.size();
    let apart = (0..MODELS as u64)
        .map(|seed| Ok(Architecture::Bert.build(&Recipe::new(size.clone(), seed))?.remove(0).model))
        .collect::<Result<Vec<Model>>>()?;
    let scratch = tempfile::tempdir()?;
    let file = scratch.path().join("one.onnx");
    std::fs::write(&file, encode(&apart[0]))?;
    let rounds = ROUNDS.to_string();
    let theirs: f64 =
        python::run("load_time.py", &[file.as_os_str(), OsStr::new(&rounds)])?.trim().parse()?;

    let heads = families::classifiers(&Recipe::new(size, 0), MODELS)?;
    let heads: Vec<Model> = heads.into_iter().map(|member| member.model).collect();
    for (id, models, kind) in
        [("H8", apart, "with weights of their own"), ("H8.heads", heads, "on one trunk")]
    {
        let home = tempfile::tempdir()?;
        home::fill(home.path(), &models)?;
        drop(models);
        let graphs = lowered(home.path()).await?;
        for mapped in [false, true] {
            let (fastest, plan) = plan_all(home.path(), &graphs, mapped)?;
            ensure!((plan.trunks().count() > 0) == (id != "H8"), "an unexpected plan");
            let (_, weights) = plan.weight_bytes();
            let what = format!(
                "planning {MODELS} × BERT-base {kind}, {:.2} GB: time of Python onnx.load of one",
                weights as f64 / 1e9
            );
            let peer = format!("onnx.load: {:.0} ms, ours {:.0} ms", theirs * 1e3, fastest * 1e3);
            let (part, goal) =
                if mapped { (".mapped", Goal::Report) } else { ("", Goal::AtMost(1.0)) };
            record.add(&format!("{id}{part}"), &what, fastest / theirs, "×", &peer, goal);
        }
    }
    Ok(())
}

/// Lowers all models of a store.
async fn lowered(home: &Path) -> Result<Vec<StoredGraph>> {
    let store = Arc::new(Store::open(home)?);
    let engine = CpuEngine::new(store.clone(), CpuOptions::default())?;
    let mut graphs = Vec::new();
    for name in store.names()?.iter().filter(|name| name.starts_with(MEMBER)) {
        let graph = store.model(name)?.components.swap_remove(0).graph;
        graphs.push(engine.lower(&graph, Target::Cpu, &Default::default()).await?);
    }
    Ok(graphs)
}

/// Seconds of the fastest round, and the plan.
fn plan_all(home: &Path, graphs: &[StoredGraph], mapped: bool) -> Result<(f64, SharePlan)> {
    // What a store has mapped, it does not check again.
    let kept = mapped.then(|| Store::open(home)).transpose()?;
    let held = kept.iter().flat_map(|store| graphs.iter().map(|graph| store.open_graph(graph)));
    let _held: Vec<Model> = held.collect::<Result<_, _>>()?;
    let sizes = Bindings::new().size("batch", 1).size("sequence", Column::Cpu.tokens());
    let mut fastest = f64::INFINITY;
    let mut last = None;
    // Once more, to warm the page cache.
    for _ in 0..=ROUNDS {
        let started = Instant::now();
        let fresh = Store::open(home)?;
        let store = kept.as_ref().unwrap_or(&fresh);
        let mut opened = Vec::new();
        for graph in graphs {
            let (model, weights) = store.open_hashed(graph)?;
            let prints = Fingerprints::new(&model, &weights);
            opened.push((graph.graph.to_string(), model, prints));
        }
        let members: Vec<Member<'_>> = opened
            .iter()
            .map(|(name, model, prints)| Member { name, model, prints, sizes: &sizes })
            .collect();
        let plan = share(&members, &Prices::default())?;
        fastest = fastest.min(started.elapsed().as_secs_f64());
        last = Some(plan);
    }
    Ok((fastest, last.expect("there is at least one round")))
}
