//! Lowering: the engine's own optimiser, run over a component whole, once.
//!
//! A lowered graph is what is fingerprinted for sharing, cut and run, with optimisation off:
//! then a piece of it computes the same bits as the whole. The result is kept in the store as a
//! graph of its own, weights by digest, under a key that names everything it depends on, so a
//! new engine version lowers again by itself.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use holdfast_graph::{
    ExternalProblem, Model, WeightTable, blob_digest, graph_only, hoist, hoist_constants,
};
use holdfast_models::{Store, StoredGraph, hashed_weights};
use ort::session::builder::GraphOptimizationLevel;

use super::fault::engine_error;
use super::runtime::Runtime;
use super::session::base_builder;
use crate::error::{DeviceError, ErrorKind};

/// What a graph is lowered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Target {
    Cpu,
    Wasm,
    WebGpu,
    WebNn,
}

/// How far the optimiser goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Not at all.
    None,
    /// Rewrites that any backend understands.
    Basic,
    /// Fused operators.
    Extended,
    /// Also data layouts for this very processor.
    All,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Target::Cpu => "cpu",
            Target::Wasm => "wasm",
            Target::WebGpu => "webgpu",
            Target::WebNn => "webnn",
        }
    }

    /// The level for a graph: a fixed function of graph and target, never of what runs beside it.
    pub fn level(self, model: &Model) -> Level {
        let uses = |operator: &str| model.nodes().iter().any(|node| node.op_type == operator);
        let half = model
            .inputs()
            .iter()
            .chain(&model.outputs())
            .any(|value| value.dtype == Some(holdfast_graph::DataType::F16))
            || holdfast_graph::weights::weights(model)
                .iter()
                .any(|weight| weight.tensor.dtype() == holdfast_graph::DataType::F16);
        match self {
            Target::Cpu if uses("Conv") => Level::All,
            Target::Cpu => Level::Extended,
            // The processor's optimiser would insert casts around every half-precision operator.
            Target::Wasm | Target::WebGpu | Target::WebNn if half => Level::None,
            Target::Wasm | Target::WebGpu => Level::Extended,
            Target::WebNn => Level::Basic,
        }
    }
}

impl Target {
    /// Rewrites that do more harm than good there.
    fn without(self) -> &'static str {
        match self {
            // They make operators that the backend does not have, so that attention, or a dense
            // layer with its activation, would run on the processor.
            Target::WebGpu => "MatMulScaleFusion;MatmulTransposeFusion;GemmActivationFusion",
            Target::Cpu | Target::Wasm | Target::WebNn => "",
        }
    }
}

/// Below this, a weight that the optimiser made stays in the graph.
const MIN_WEIGHT_BYTES: usize = 1024;

/// The lowered form of a stored graph: the kept one, or a new one.
pub(crate) fn lower(
    runtime: &Runtime,
    store: &Store,
    original: &StoredGraph,
    target: Target,
    dims: &BTreeMap<String, usize>,
) -> Result<StoredGraph, DeviceError> {
    let in_store = |error| DeviceError::caused(ErrorKind::Caller, "cannot lower the model", error);
    let model = store.open_graph(original).map_err(in_store)?;
    let level = target.level(&model);
    let id = lowering_id(runtime, target, level, dims);
    if let Some(kept) = store.derived(&original.graph, &id).map_err(in_store)?
        // What is damaged can be made again. Weights of the original were checked just now.
        && store.open_graph(&kept).is_ok()
    {
        return Ok(kept);
    }
    let lowered = match level {
        Level::None => model,
        _ => optimise(runtime, store, &model, target, level, dims)?,
    };
    let lowered = hoist(&lowered, MIN_WEIGHT_BYTES);
    let weights = hashed_weights(&lowered);
    store.put_derived(&original.graph, &id, &lowered, &weights).map_err(in_store)
}

/// Everything that the result depends on besides the graph.
fn lowering_id(
    runtime: &Runtime,
    target: Target,
    level: Level,
    dims: &BTreeMap<String, usize>,
) -> String {
    let Runtime { engine, build, .. } = runtime;
    let mut id = format!("lowered for {} at {level:?} by {engine} ({build})", target.name());
    if !target.without().is_empty() {
        id.push_str(&format!("; without {}", target.without()));
    }
    if level == Level::All {
        id.push_str(&format!("; processor {}", super::processor::features().join(" ")));
    }
    for (name, size) in dims {
        id.push_str(&format!("; {name:?}={size}"));
    }
    id
}

fn optimise(
    runtime: &Runtime,
    store: &Store,
    model: &Model,
    target: Target,
    level: Level,
    dims: &BTreeMap<String, usize>,
) -> Result<Model, DeviceError> {
    let failed = |error| engine_error("the engine cannot optimise the model", error);
    let scratch = tempfile::tempdir()
        .map_err(|e| DeviceError::caused(ErrorKind::Device, "cannot make a temporary folder", e))?;
    let path = scratch.path().join("lowered.onnx");
    let ort_level = match level {
        Level::None => GraphOptimizationLevel::Disable,
        Level::Basic => GraphOptimizationLevel::Level1,
        Level::Extended => GraphOptimizationLevel::Level2,
        Level::All => GraphOptimizationLevel::All,
    };

    // The engine reads weights of the outermost graph from the blobs; others come inside.
    let flat = hoist_constants(model, MIN_WEIGHT_BYTES);
    let weights = WeightTable::hashed_by(&flat, |weights| {
        let slices: Vec<&[u8]> = weights.iter().map(|weight| &weight.tensor.bytes()[..]).collect();
        holdfast_models::hash_all(&slices)
    });
    let outermost = |weight: &holdfast_graph::HashedWeight| {
        weight.place.bodies.is_empty()
            && weight.tensor.bytes().len() >= MIN_WEIGHT_BYTES
            && store.has_blob(&weight.content)
    };
    let graph = graph_only(&flat, &weights, outermost).proto;
    let bytes = holdfast_graph::Message::encode_to_vec(&graph);

    let build = || -> ort::Result<()> {
        let mut builder = base_builder(runtime, store, 1, &Arc::default())?
            .with_optimization_level(ort_level)?
            .with_prepacking(false)?
            .with_config_entry("optimization.disable_specified_optimizers", target.without())?
            .with_optimized_model_path(&path)?;
        for (name, size) in dims {
            builder = builder.with_dimension_override(name, *size as i64)?;
        }
        builder.commit_from_memory(&bytes).map(drop)
    };
    build().map_err(failed)?;
    read_lowered(store, &path)
}

/// Reads what the engine wrote. Weights that it did not touch still name their blobs.
fn read_lowered(store: &Store, path: &Path) -> Result<Model, DeviceError> {
    let unreadable =
        |e| DeviceError::caused(ErrorKind::Device, "cannot read what the engine wrote", e);
    let bytes = holdfast_graph::map_file(path)
        .map_err(|e| DeviceError::caused(ErrorKind::Device, "the engine wrote no graph", e))?;
    let source = |location: &str| {
        // The engine may have made the name a path.
        let name = Path::new(location).file_name().and_then(|name| name.to_str());
        let digest = name.and_then(blob_digest);
        let outside = || ExternalProblem::Outside(location.to_owned());
        store.blob(&digest.ok_or_else(outside)?).map_err(|_| outside())
    };
    Model::from_bytes_with(bytes, source).map_err(unreadable)
}
