//! Sessions whose weights are the store's own memory maps.
//!
//! Every large weight is handed to the engine as a value over the map, and all sessions share
//! one container of pre-packed copies. Two sessions that use one weight then hold it once,
//! packed copy included (measured: 1.6 MB for a second session of a 148 MB model).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use holdfast_graph::{Digest, Dim, Tensor, Value};
use holdfast_models::Store;
use ort::session::Session;
use ort::session::builder::{GraphOptimizationLevel, PrepackedWeights, SessionBuilder};

use super::cores::Crew;
use super::fault::engine_error;
use super::helpers::Helpers;
use super::runtime::Runtime;
use super::value::{Borrowed, borrow};
use crate::error::{DeviceError, ErrorKind};
use crate::segment::Segment;

/// A session and the weights it was made over.
pub(crate) struct LoadedSession {
    /// Declared first: the session goes before the weights it points to, and those before the
    /// container that holds their packed copies.
    pub(crate) session: tokio::sync::Mutex<Session>,
    pub(crate) crew: Arc<Crew>,
    _weights: Vec<Borrowed>,
    _packed: PrepackedWeights,
    pub(crate) inputs: Vec<Value>,
    pub(crate) outputs: Vec<Value>,
    /// The large weights: blob and size, each once.
    pub(crate) contents: Vec<(Digest, u64)>,
    pub(crate) took: std::time::Duration,
}

/// Makes a session of a segment. The graph runs as it is: it was optimised when it was lowered.
pub(crate) fn load(
    runtime: &Runtime,
    store: &Store,
    segment: &Segment,
    threads: usize,
    packed: &PrepackedWeights,
) -> Result<LoadedSession, DeviceError> {
    let started = Instant::now();
    let unreadable =
        |error| DeviceError::caused(ErrorKind::Caller, "cannot read the segment", error);
    let model = store.open_graph(&segment.graph).map_err(unreadable)?;
    let graph_bytes = store.blob(&segment.graph.graph).map_err(unreadable)?;

    let mut weights = Vec::new();
    let mut names = Vec::new();
    for initializer in external_initializers(&graph_bytes)? {
        let attached = model.graph().initializer.iter().find(|tensor| tensor.name == initializer);
        let tensor = attached.and_then(|tensor| Tensor::from_proto(tensor).ok());
        let tensor = tensor.ok_or_else(|| {
            DeviceError::caller(format!("weight `{initializer}` of the segment is unusable"))
        })?;
        weights.push(borrow(&tensor).map_err(|error| engine_error("cannot use a weight", error))?);
        names.push(initializer);
    }

    let crew = Arc::new(Crew::default());
    let build = || -> ort::Result<Session> {
        let mut builder = base_builder(runtime, store, threads, &crew)?
            .with_optimization_level(GraphOptimizationLevel::Disable)?
            .with_env_allocators()?
            .with_prepacked_weights(packed)?;
        for (name, size) in &segment.dims {
            builder = builder.with_dimension_override(name, *size as i64)?;
        }
        for (name, weight) in names.iter().zip(&weights) {
            builder = builder.with_initializer(name, weight.value().clone())?;
        }
        builder.commit_from_memory(&graph_bytes)
    };
    let session = build().map_err(|error| engine_error("cannot load the segment", error))?;
    let mut contents: Vec<(Digest, u64)> =
        segment.graph.weights.iter().map(|weight| (weight.content, weight.bytes)).collect();
    contents.sort();
    contents.dedup();
    // The engine has packed copies of most weights by now and reads only those from here on.
    store.release_pages(contents.iter().map(|(digest, _)| *digest));
    Ok(LoadedSession {
        session: session.into(),
        crew,
        _weights: weights,
        _packed: packed.clone(),
        inputs: bound(model.inputs(), &segment.dims),
        outputs: bound(model.outputs(), &segment.dims),
        contents,
        took: started.elapsed(),
    })
}

/// Values with the sizes that the segment's dimensions are bound to.
fn bound(mut values: Vec<Value>, dims: &BTreeMap<String, usize>) -> Vec<Value> {
    for dim in values.iter_mut().filter_map(|value| value.dims.as_mut()).flatten() {
        if let Dim::Named(name) = dim
            && let Some(size) = dims.get(name)
        {
            *dim = Dim::Fixed(*size);
        }
    }
    values
}

/// What every session is built from.
pub(crate) fn base_builder(
    runtime: &Runtime,
    store: &Store,
    threads: usize,
    crew: &Arc<Crew>,
) -> ort::Result<SessionBuilder> {
    let blobs = store.blobs_folder().to_string_lossy().into_owned();
    let builder = Session::builder(&runtime.environment)?
        .with_intra_threads(threads)?
        .with_thread_manager(Helpers(crew.clone()))?
        .with_config_entry("session.intra_op.spin_duration_us", SPIN_MICROSECONDS)?
        .with_config_entry("session.force_spinning_stop", "1")?
        .with_config_entry("session.model_external_initializers_file_folder_path", blobs)?;
    Ok(builder)
}

/// How long a session's threads look for more work before they sleep: long enough for the pause
/// between most operators, too short to hold on to a core that another session could have. By default
/// they look on for so long that two models at once take over a third more time than one after the
/// other. Several models want a short time and one model a long one. In short runs of three rounds, which
/// differ by 0.05 and more, two and four at once had 0.96 and 0.95 of what the cores allow with 5 µs, 0.87
/// and 0.86 with 30, 0.93 and 0.93 with 50, 0.83 and 0.85 with 100, and 0.62 and 0.69 with 1,000. One model
/// in batches had 0.91 to 0.93 of a bare loop with 5 µs, 0.97 with 50, 1.07 with 100 and 1.06 with 1,000
/// (100 and 1,000 in one run each). Programs that run at once are what this is for.
const SPIN_MICROSECONDS: &str = "5";

/// The initializers whose bytes are blobs, by name.
fn external_initializers(graph: &Bytes) -> Result<Vec<String>, DeviceError> {
    use holdfast_graph::proto::{DataLocation, ModelProto};
    let proto = <ModelProto as holdfast_graph::Message>::decode(graph.clone())
        .map_err(|e| DeviceError::caused(ErrorKind::Caller, "cannot read the segment", e))?;
    let initializers = proto.graph.into_iter().flat_map(|graph| graph.initializer);
    let external = DataLocation::External as i32;
    Ok(initializers
        .filter(|tensor| tensor.data_location == external)
        .map(|tensor| tensor.name)
        .collect())
}
