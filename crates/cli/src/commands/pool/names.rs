//! Which model a graph is of.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_models::Store;
use holdfast_pool::Metrics;

/// Knows the models of graphs.
pub(super) struct Names {
    store: Store,
    known: BTreeMap<String, String>,
    /// Graphs that were looked for and not found: of models that are gone.
    unknown: BTreeSet<String>,
}

impl Names {
    pub(super) fn new(store: Store) -> Names {
        Names { store, known: BTreeMap::new(), unknown: BTreeSet::new() }
    }

    /// The names of the graphs that are loaded, as far as the store tells. It is read again only
    /// when a graph appears that was not there before.
    pub(super) fn of(&mut self, metrics: &Metrics) -> anyhow::Result<BTreeMap<String, String>> {
        let loaded = metrics.devices.iter().flat_map(|device| {
            let ready = device.models.iter().map(|model| &model.graph);
            ready.chain(&device.loading_graph)
        });
        let new: Vec<&String> = loaded
            .filter(|graph| !self.known.contains_key(*graph) && !self.unknown.contains(*graph))
            .collect();
        if !new.is_empty() {
            self.known = read(&self.store)?;
            let unknown = new.into_iter().filter(|graph| !self.known.contains_key(*graph));
            self.unknown.extend(unknown.cloned());
        }
        Ok(self.known.clone())
    }
}

fn read(store: &Store) -> anyhow::Result<BTreeMap<String, String>> {
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for model in &store.models()?.readable {
        let precisions = model.variants().len();
        for component in &model.components {
            let mut name = model.name.clone();
            if component.role.0 != "model" {
                name = format!("{name} {}", component.role);
            }
            if precisions > 1 {
                name = format!("{name} {}", component.variant);
            }
            names.entry(component.graph.graph.to_string()).or_default().insert(name);
        }
    }
    let joined = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(" = ");
    Ok(names.into_iter().map(|(graph, names)| (graph, joined(names))).collect())
}
