//! `holdfast models`

use std::collections::HashMap;

use holdfast_graph::Digest;
use holdfast_models::{Manifest, Models};
use serde_json::json;

use crate::args::Global;
use crate::output::{self, bytes, plural};

pub(crate) fn run(global: &Global) -> anyhow::Result<()> {
    let store = global.store()?;
    let Models { readable: models, unreadable } = store.models()?;
    let users = users_of_weights(&models);
    let sums: Vec<Sums> = models.iter().map(|model| Sums::new(model, &users)).collect();
    let stored: u64 = users.values().map(|(bytes, _)| bytes).sum();
    let apart: u64 = sums.iter().map(|sums| sums.bytes).sum();
    if global.json {
        let rows = models.iter().zip(&sums).map(|(model, sums)| {
            json!({
                "model": model.name,
                "components": roles(model),
                "variants": model.variants(),
                "weight_bytes": sums.bytes,
                "shared_weight_bytes": sums.shared,
                "imported_at_unix": model.provenance.imported_at_unix,
            })
        });
        return output::print_json(&json!({
            "home": store.home(),
            "models": rows.collect::<Vec<_>>(),
            "unreadable": unreadable.iter().map(|(name, problem)| json!({
                "model": name,
                "problem": problem.to_string(),
            })).collect::<Vec<_>>(),
            "weight_bytes": stored,
        }));
    }
    for (name, problem) in &unreadable {
        output::warn(format!("`{name}` cannot be used: {problem}"));
    }
    if models.is_empty() {
        return output::line("no models yet; `holdfast import PATH` adds one");
    }
    let rows = models.iter().zip(&sums).map(|(model, sums)| {
        let variants: Vec<String> = model.variants().iter().map(ToString::to_string).collect();
        vec![
            model.name.clone(),
            roles(model).join(", "),
            variants.join(", "),
            bytes(sums.bytes),
            bytes(sums.shared),
        ]
    });
    output::table(&["model", "components", "variants", "weights", "shared"], 3, rows.collect())?;
    let models = plural(models.len(), "model");
    let weights = output::bytes_instead_of(stored, apart);
    output::line(format!("\n{models}, weights on disk: {weights}"))
}

/// Each stored weight with its size and the models that use it.
pub(crate) fn users_of_weights(models: &[Manifest]) -> HashMap<Digest, (u64, Vec<&str>)> {
    let mut users: HashMap<Digest, (u64, Vec<&str>)> = HashMap::new();
    for model in models {
        for weight in model.components.iter().flat_map(|component| &component.graph.weights) {
            let (_, names) = users.entry(weight.content).or_insert((weight.bytes, Vec::new()));
            if !names.contains(&model.name.as_str()) {
                names.push(&model.name);
            }
        }
    }
    users
}

struct Sums {
    bytes: u64,
    shared: u64,
}

impl Sums {
    fn new(model: &Manifest, users: &HashMap<Digest, (u64, Vec<&str>)>) -> Sums {
        let own = users.values().filter(|(_, names)| names.contains(&model.name.as_str()));
        own.fold(Sums { bytes: 0, shared: 0 }, |sums, (bytes, names)| Sums {
            bytes: sums.bytes + bytes,
            shared: sums.shared + if names.len() > 1 { *bytes } else { 0 },
        })
    }
}

fn roles(model: &Manifest) -> Vec<String> {
    let mut roles: Vec<String> = model.components.iter().map(|c| c.role.to_string()).collect();
    roles.sort();
    roles.dedup();
    roles
}
