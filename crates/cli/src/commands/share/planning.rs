//! The plan for models of the store, as they run on a target.

use std::collections::BTreeMap;

use anyhow::Context;
use holdfast_devices::cpu::{CpuEngine, Target};
use holdfast_graph::infer::Bindings;
use holdfast_graph::share::{Member, Prices, SharePlan, share};
use holdfast_graph::{Fingerprints, Model};
use holdfast_models::{Component, Store, hashed_weights};

use crate::args::ShareTarget;
use crate::commands::show::dims_for;

/// A plan, and the sizes that it was made for.
pub(crate) struct Planned {
    pub(crate) plan: SharePlan,
    pub(crate) dims: BTreeMap<String, usize>,
    /// Weights that two of the models have, one of them the other way round.
    pub(crate) mirrored: Vec<Mirrored>,
}

/// What a graph has in common with another model, but transposed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mirrored {
    pub(crate) graph: String,
    pub(crate) other: String,
    pub(crate) weights: usize,
    pub(crate) bytes: u64,
}

/// Plans all components of some models. `dims` has the sizes that are not the usual ones.
pub(crate) async fn plan(
    engine: &CpuEngine,
    store: &Store,
    models: &[String],
    target: ShareTarget,
    dims: &[(String, usize)],
    say: &dyn Fn(String),
) -> anyhow::Result<Planned> {
    let (mut parts, mut mirrored) = (Vec::new(), Vec::new());
    for name in models {
        let manifest = store.model(name)?;
        let components = manifest.choose(None);
        for component in &components {
            let name = called(&manifest.name, component, components.len());
            mirrored.extend(mirrored_in(component, &name, models));
            say(format!("optimising {name} for {}", target.name()));
            parts.push(Part::new(engine, store, component, name, target.target(), dims).await?);
        }
    }
    say("comparing the models".to_owned());
    let members: Vec<Member<'_>> = parts.iter().map(Part::member).collect();
    let plan = share(&members, &Prices::default())
        .context("give the sizes of its dimensions with --dim NAME=SIZE")?;
    let dims = parts.into_iter().flat_map(|part| part.dims).collect();
    Ok(Planned { plan, dims, mirrored })
}

/// What a component has transposed in others of these models, as the import found it.
fn mirrored_in(component: &Component, graph: &str, models: &[String]) -> Vec<Mirrored> {
    let mut found: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for transposed in component.transposed.iter().filter(|t| models.contains(&t.model)) {
        let weight = component.graph.weights.iter().find(|weight| weight.id == transposed.weight);
        let (weights, bytes) = found.entry(&transposed.model).or_default();
        *weights += 1;
        *bytes += weight.map_or(0, |weight| weight.bytes);
    }
    let of = |(other, (weights, bytes)): (&str, (usize, u64))| {
        let (graph, other) = (graph.to_owned(), other.to_owned());
        Mirrored { graph, other, weights, bytes }
    };
    found.into_iter().map(of).collect()
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
        target: Target,
        given: &[(String, usize)],
    ) -> anyhow::Result<Part> {
        let original = store.open_graph(&component.graph)?;
        let dims = dims_for(&original, given);
        // As the pool does it: only WebNN compiles for fixed sizes, of what the model names.
        let fixed = match target {
            Target::WebNn => {
                let named = dims_for(&original, &[]);
                dims.clone().into_iter().filter(|(name, _)| named.contains_key(name)).collect()
            }
            Target::Cpu | Target::Wasm | Target::WebGpu => BTreeMap::new(),
        };
        let lowered = engine.lower(&component.graph, target, &fixed).await?;
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
