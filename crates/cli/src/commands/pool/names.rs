//! Which model a loaded segment is.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_devices::Segment;
use holdfast_models::Store;
use holdfast_pool::Metrics;

/// Knows the models that segments were made from.
pub(super) struct Names {
    store: Store,
    known: BTreeMap<String, String>,
    /// Segments that were looked for and not found: of models that are gone, or bound to sizes.
    unknown: BTreeSet<String>,
}

impl Names {
    pub(super) fn new(store: Store) -> Names {
        Names { store, known: BTreeMap::new(), unknown: BTreeSet::new() }
    }

    /// The names of the segments that are loaded, as far as the store tells. It is read again only
    /// when a segment appears that was not there before.
    pub(super) fn of(&mut self, metrics: &Metrics) -> anyhow::Result<BTreeMap<String, String>> {
        let loaded = metrics.devices.iter().flat_map(|device| {
            let ready = device.models.iter().map(|model| &model.segment);
            ready.chain(&device.loading)
        });
        let new: Vec<&String> = loaded
            .filter(|id| !self.known.contains_key(*id) && !self.unknown.contains(*id))
            .collect();
        if !new.is_empty() {
            self.known = read(&self.store)?;
            let unknown = new.into_iter().filter(|id| !self.known.contains_key(*id));
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
    let named = store.derivations()?.into_iter().filter_map(|(from, graph)| {
        let names = names.get(&from)?.iter().cloned().collect::<Vec<_>>().join(" = ");
        Some((Segment::new(graph).id().to_string(), names))
    });
    Ok(named.collect())
}
