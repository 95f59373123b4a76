//! `holdfast show`

use std::collections::{BTreeMap, HashMap, HashSet};

use holdfast_graph::cost::{Cost, cost};
use holdfast_graph::infer::Bindings;
use holdfast_graph::{Digest, Dim, Fingerprints, Model, Value as GraphValue};
use holdfast_models::{Component, Manifest, Source, Store, hashed_weights};
use serde_json::{Value, json};

use super::models::users_of_weights;
use crate::args::{Global, ShowArgs};
use crate::output::{self, bytes, count, plural};

pub(crate) fn run(global: &Global, args: &ShowArgs) -> anyhow::Result<()> {
    let store = global.store()?;
    let manifest = store.model(&args.model)?;
    let mut others = store.models()?.readable;
    others.retain(|other| other.name != manifest.name);
    let views = manifest
        .components
        .iter()
        .map(|component| View::new(&store, component, &others, &args.dims))
        .collect::<anyhow::Result<Vec<_>>>()?;
    if global.json {
        let components: Vec<Value> = views.iter().map(View::to_json).collect();
        return output::print_json(&json!({
            "model": manifest.name,
            "provenance": manifest.provenance,
            "files": manifest.files.keys().collect::<Vec<_>>(),
            "components": components,
        }));
    }
    output::line(format!("{}  ({})", manifest.name, came_from(&manifest.provenance.source)))?;
    if !manifest.files.is_empty() {
        let files: Vec<&str> = manifest.files.keys().map(String::as_str).collect();
        output::line(format!("files       {}", files.join(", ")))?;
    }
    views.iter().try_for_each(View::print)
}

fn came_from(source: &Source) -> String {
    match source {
        Source::File { path } | Source::Folder { path } => format!("from {}", path.display()),
        Source::Hub { repository, revision, .. } => format!("{repository} at {revision}"),
    }
}

/// What there is to say of a component.
struct View<'a> {
    component: &'a Component,
    inputs: Vec<GraphValue>,
    outputs: Vec<GraphValue>,
    operators: BTreeMap<String, usize>,
    opset: Option<i64>,
    weights: usize,
    weight_bytes: u64,
    /// Weights of other models that are the same: count, bytes, and whose.
    shared: (usize, u64, Vec<String>),
    structure: Option<Digest>,
    dims: BTreeMap<String, usize>,
    cost: Result<Cost, String>,
}

impl<'a> View<'a> {
    fn new(
        store: &Store,
        component: &'a Component,
        others: &[Manifest],
        given: &[(String, usize)],
    ) -> anyhow::Result<View<'a>> {
        let model = store.open_graph(&component.graph)?;
        let weights = hashed_weights(&model);
        let fingerprints = Fingerprints::new(&model, &weights);
        let mut operators = BTreeMap::new();
        for node in model.nodes() {
            let name = match node.domain.as_str() {
                "" | "ai.onnx" => node.op_type.clone(),
                domain => format!("{domain}.{}", node.op_type),
            };
            *operators.entry(name).or_insert(0) += 1;
        }
        let dims = dims_for(&model, given);
        let bindings =
            dims.iter().fold(Bindings::new(), |bindings, (name, size)| bindings.size(name, *size));
        Ok(View {
            component,
            inputs: model.inputs(),
            outputs: model.outputs(),
            operators,
            opset: model.opset(""),
            weights: weights.entries().len(),
            weight_bytes: weights.entries().iter().map(|w| w.tensor.bytes().len() as u64).sum(),
            shared: shared_with(component, others),
            structure: fingerprints.model().map(|structure| structure.0),
            cost: cost(&model, &bindings).map_err(|error| error.to_string()),
            dims,
        })
    }

    fn print(&self) -> anyhow::Result<()> {
        let Component { role, variant, file, transposed, .. } = self.component;
        output::line(format!("\n{role} ({variant})  {file}"))?;
        for (label, values) in [("input", &self.inputs), ("output", &self.outputs)] {
            for value in values {
                output::line(format!("  {label:<9} {} {value}", value.name))?;
            }
        }
        let mut operators: Vec<(&String, &usize)> = self.operators.iter().collect();
        operators.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let listed: Vec<String> = operators.iter().map(|(name, n)| format!("{name} {n}")).collect();
        let opset = self.opset.map_or(String::new(), |version| format!(" (opset {version})"));
        output::line(format!("  operators {}{opset}", listed.join(", ")))?;
        output::line(format!(
            "  weights   {} in {}",
            bytes(self.weight_bytes),
            plural(self.weights, "tensor")
        ))?;
        let (shared, shared_bytes, models) = &self.shared;
        if *shared > 0 {
            let weights = plural(*shared, "weight");
            output::line(format!(
                "  shared    {weights}, {} with {}",
                bytes(*shared_bytes),
                models.join(", ")
            ))?;
        }
        if let Some(first) = transposed.first() {
            let weights = plural(transposed.len(), "weight");
            output::line(format!("  mirrored  {weights} transposed in {}", first.model))?;
        }
        self.print_cost()?;
        match &self.structure {
            Some(structure) => output::line(format!("  structure {structure}")),
            None => output::line("  structure none: the outputs depend on chance"),
        }
    }

    fn print_cost(&self) -> anyhow::Result<()> {
        let cost = match &self.cost {
            Ok(cost) => cost,
            Err(error) => return output::line(format!("  cost      not known: {error}")),
        };
        let sizes: Vec<String> =
            self.dims.iter().map(|(name, size)| format!("{name}={size}")).collect();
        let at = if sizes.is_empty() { String::new() } else { format!(" at {}", sizes.join(", ")) };
        output::line(format!(
            "  cost      {}FLOP, {} moved, {} activations at most{at}",
            count(cost.flops as f64),
            bytes(cost.bytes_moved),
            bytes(cost.peak_activation_bytes),
        ))?;
        if let Some(first) = cost.unknowns.first() {
            let nodes = plural(cost.unknowns.len(), "node");
            output::line(format!(
                "            without {nodes} that could not be counted, such as {}: {}",
                first.node, first.reason
            ))?;
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        let value = |value: &GraphValue| {
            json!({
                "name": value.name,
                "dtype": value.dtype.map(|dtype| dtype.name()),
                "dims": value.dims.as_ref().map(|dims| dims.iter().map(dim_json).collect::<Vec<_>>()),
            })
        };
        let (shared, shared_bytes, shared_with) = &self.shared;
        json!({
            "role": self.component.role,
            "variant": self.component.variant,
            "file": self.component.file,
            "opset": self.opset,
            "inputs": self.inputs.iter().map(value).collect::<Vec<_>>(),
            "outputs": self.outputs.iter().map(value).collect::<Vec<_>>(),
            "operators": self.operators,
            "weights": self.weights,
            "weight_bytes": self.weight_bytes,
            "shared_weights": shared,
            "shared_weight_bytes": shared_bytes,
            "shared_with": shared_with,
            "transposed": self.component.transposed,
            "graph": self.component.graph.graph.to_string(),
            "structure": self.structure.map(|digest| digest.to_string()),
            "cost": match &self.cost {
                Ok(cost) => json!({
                    "dims": self.dims,
                    "flops": cost.flops,
                    "bytes_moved": cost.bytes_moved,
                    "weight_bytes": cost.weight_bytes,
                    "peak_activation_bytes": cost.peak_activation_bytes,
                    "unknown": cost.unknowns.iter().map(|unknown| json!({
                        "node": unknown.node,
                        "reason": unknown.reason.to_string(),
                    })).collect::<Vec<_>>(),
                }),
                Err(error) => json!({ "error": error }),
            },
        })
    }
}

fn dim_json(dim: &Dim) -> Value {
    match dim {
        Dim::Fixed(size) => json!(size),
        Dim::Named(name) => json!(name),
        Dim::Unknown => Value::Null,
    }
}

/// Sizes for the named dimensions: those given, else 128 for lengths of sequences and 1.
pub(crate) fn dims_for(model: &Model, given: &[(String, usize)]) -> BTreeMap<String, usize> {
    let named = model.inputs().into_iter().flat_map(|input| input.dims.unwrap_or_default());
    let names = named.filter_map(|dim| match dim {
        Dim::Named(name) => Some(name),
        Dim::Fixed(_) | Dim::Unknown => None,
    });
    let default = |name: &str| if name.contains("seq") && !name.contains("past") { 128 } else { 1 };
    let mut dims: BTreeMap<String, usize> =
        names.map(|name| (name.clone(), default(&name))).collect();
    dims.extend(given.iter().cloned());
    dims
}

/// How many of the component's large weights other models have too.
fn shared_with(component: &Component, others: &[Manifest]) -> (usize, u64, Vec<String>) {
    let users: HashMap<Digest, (u64, Vec<&str>)> = users_of_weights(others);
    let mut seen = HashSet::new();
    let mut models = HashSet::new();
    let mut shared_bytes = 0;
    for weight in &component.graph.weights {
        if let Some((_, names)) = users.get(&weight.content)
            && seen.insert(weight.content)
        {
            shared_bytes += weight.bytes;
            models.extend(names.iter().map(|name| (*name).to_owned()));
        }
    }
    let mut models: Vec<String> = models.into_iter().collect();
    models.sort();
    (seen.len(), shared_bytes, models)
}
