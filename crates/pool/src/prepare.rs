//! Models on their own, as devices load them: lowered, each once.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_devices::cpu::{CpuEngine, Target};
use holdfast_devices::{ErrorKind, ModelKind, Segment};
use holdfast_graph::{Digest, Dim, Tensor, Value};
use holdfast_models::{Store, StoredGraph};
use tokio::time::Instant;

use crate::pool::{explain, lock};
use crate::request::{Request, RunError};
use crate::route::Prepared;

/// Why a model cannot be prepared.
pub(crate) enum Unprepared {
    /// Not for this choice.
    Choice(String),
    /// Not at all.
    Request(RunError),
}

type Key = (Digest, Target, ModelKind, BTreeMap<String, usize>);

/// Prepares models, each once.
pub(crate) struct Preparer {
    engine: CpuEngine,
    store: Arc<Store>,
    /// Never held while anything is awaited.
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    ready: HashMap<Key, Arc<Prepared>>,
    /// Those that are not ready yet, or cannot be.
    cells: HashMap<Key, Arc<Cell>>,
    inputs: HashMap<Digest, Arc<Vec<Value>>>,
}

/// Filled by whoever comes first; the others wait for it.
type Cell = tokio::sync::Mutex<Option<Result<Arc<Prepared>, (Instant, String)>>>;

/// Models that are remembered. Past this all are forgotten: the store still has them.
const LIMIT: usize = 1024;

/// How long it is remembered that a model cannot be prepared.
const REFUSED_FOR: Duration = Duration::from_secs(60);

impl Preparer {
    pub(crate) fn new(engine: CpuEngine, store: Arc<Store>) -> Preparer {
        Preparer { engine, store, known: Mutex::default() }
    }

    /// The model of a request for a target.
    pub(crate) async fn prepare(
        &self,
        request: &Request,
        target: Target,
        progress: impl FnOnce() + Send,
    ) -> Result<Arc<Prepared>, Unprepared> {
        // WebNN compiles for fixed sizes.
        let dims = match target {
            Target::WebNn => self.bind(request).map_err(Unprepared::Choice)?,
            Target::Cpu | Target::Wasm | Target::WebGpu => BTreeMap::new(),
        };
        let key = (request.graph.graph, target, request.kind, dims);
        let cell = {
            let mut known = lock(&self.known);
            if let Some(prepared) = known.ready.get(&key) {
                return Ok(prepared.clone());
            }
            if known.cells.len() >= LIMIT && !known.cells.contains_key(&key) {
                known.cells.clear();
            }
            known.cells.entry(key.clone()).or_default().clone()
        };
        let mut cell = cell.lock().await;
        match cell.as_ref() {
            Some(Ok(prepared)) => return Ok(prepared.clone()),
            Some(Err((since, reason))) if since.elapsed() < REFUSED_FOR => {
                return Err(Unprepared::Choice(reason.clone()));
            }
            _ => progress(),
        }
        let (kind, dims) = (request.kind, key.3.clone());
        let lowered = self.engine.lower(&request.graph, target, &dims).await;
        let prepared = match lowered {
            Ok(graph) => self.describe(request.graph.graph, graph, dims, kind).await,
            Err(error) => match error.kind() {
                ErrorKind::Caller | ErrorKind::Cancelled => {
                    return Err(Unprepared::Request(error.into()));
                }
                _ => Err(explain(&error)),
            },
        };
        match prepared {
            Ok(prepared) => {
                let prepared = Arc::new(prepared);
                *cell = Some(Ok(prepared.clone()));
                let mut known = lock(&self.known);
                if known.ready.len() >= LIMIT {
                    known.ready.clear();
                }
                known.ready.insert(key.clone(), prepared.clone());
                known.cells.remove(&key);
                Ok(prepared)
            }
            Err(reason) => {
                *cell = Some(Err((Instant::now(), reason.clone())));
                Err(Unprepared::Choice(reason))
            }
        }
    }

    async fn describe(
        &self,
        original: Digest,
        graph: StoredGraph,
        dims: BTreeMap<String, usize>,
        kind: ModelKind,
    ) -> Result<Prepared, String> {
        let store = self.store.clone();
        let described = tokio::task::spawn_blocking(move || {
            let model = store.open_graph(&graph).map_err(|error| explain(&error))?;
            let segment = Segment { dims, kind, ..Segment::new(graph) };
            Ok(Prepared::whole(original, segment, &model.inputs(), &model.outputs()))
        });
        described.await.map_err(|error| error.to_string())?
    }

    /// The sizes of the named dimensions, by the inputs that are given.
    fn bind(&self, request: &Request) -> Result<BTreeMap<String, usize>, String> {
        let known = lock(&self.known).inputs.get(&request.graph.graph).cloned();
        let declared = match known {
            Some(declared) => declared,
            None => {
                let model =
                    self.store.open_graph(&request.graph).map_err(|error| explain(&error))?;
                let declared = Arc::new(model.inputs());
                let mut known = lock(&self.known);
                if known.inputs.len() >= LIMIT {
                    known.inputs.clear();
                }
                known.inputs.insert(request.graph.graph, declared.clone());
                declared
            }
        };
        bindings(&declared, &request.inputs)
    }
}

fn bindings(
    declared: &[Value],
    inputs: &[(String, Tensor)],
) -> Result<BTreeMap<String, usize>, String> {
    let mut bound: BTreeMap<String, usize> = BTreeMap::new();
    for (name, tensor) in inputs {
        let dims =
            declared.iter().find(|value| value.name == *name).and_then(|value| value.dims.as_ref());
        for (dim, &size) in dims.into_iter().flatten().zip(tensor.dims()) {
            let Dim::Named(dim) = dim else { continue };
            if let Some(other) = bound.insert(dim.clone(), size)
                && other != size
            {
                return Err(format!(
                    "the inputs disagree on the dimension `{dim}`: {other} and {size}"
                ));
            }
        }
    }
    Ok(bound)
}

#[cfg(test)]
mod tests {
    use holdfast_graph::DataType;
    use holdfast_testkit::named;

    use super::*;

    #[test]
    fn dimensions_are_bound_by_the_inputs() {
        let tensor = |dims: &[usize]| Tensor::zeros(DataType::F32, dims).unwrap();
        let value = |name: &str, dims: Vec<Dim>| Value {
            name: name.to_owned(),
            dtype: Some(DataType::F32),
            dims: Some(dims),
        };
        let declared = [
            value("a", vec![named("batch"), named("tokens")]),
            value("b", vec![named("batch"), Dim::Fixed(3)]),
        ];
        let inputs =
            |b: usize| vec![("a".to_owned(), tensor(&[2, 5])), ("b".to_owned(), tensor(&[b, 3]))];
        let bound = bindings(&declared, &inputs(2)).unwrap();
        assert_eq!(bound, [("batch".to_owned(), 2), ("tokens".to_owned(), 5)].into());
        assert!(bindings(&declared, &inputs(4)).unwrap_err().contains("`batch`: 2 and 4"));
    }
}
