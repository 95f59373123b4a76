//! Loading a segment onto a lane.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_graph::{Digest, Value, blob_name};
use holdfast_models::Store;
use holdfast_wire::{Backend, BlobRef, FromLane, ToLane};

use super::convert::{bind, milliseconds, warm_up_shapes};
use super::effect::Effect;
use super::lifted;
use super::retries::{if_lost_or_busy, retry};
use super::state::LoadedSegment;
use super::{Lane, lock};
use crate::device::Loaded;
use crate::error::{DeviceError, ErrorKind};
use crate::segment::{Segment, SegmentId};

impl Lane {
    /// Loads a segment, unless it is there; of several who ask for the same one, one loads it.
    pub(super) async fn load_segment(&self, segment: Segment) -> Result<Loaded, DeviceError> {
        let turn = Turn::new(self, segment.id());
        let _one_at_a_time = turn.turn.lock().await;
        match self.loaded(segment.id()) {
            Some(loaded) => Ok(loaded),
            None => {
                let attempts = self.shared.options.retries.load;
                retry(attempts, if_lost_or_busy, || self.load_once(&segment)).await
            }
        }
    }

    /// What is there already.
    fn loaded(&self, id: SegmentId) -> Option<Loaded> {
        let state = self.state();
        let segment = state.segments.get(&id)?;
        Some(Loaded {
            id,
            inputs: segment.inputs.clone(),
            outputs: segment.outputs.clone(),
            weight_bytes: segment.blobs.iter().map(|(_, bytes)| bytes).sum(),
            new_weight_bytes: 0,
            downloaded_bytes: 0,
            took: Duration::ZERO,
            first_run: None,
            first_run_error: None,
            placement: segment.placement.clone(),
        })
    }

    async fn load_once(&self, segment: &Segment) -> Result<Loaded, DeviceError> {
        let started = Instant::now();
        let id = segment.id();
        let Files { graph, weights, blobs, inputs, outputs } = self.files(segment).await?;
        let warm_up = match self.backend() {
            Backend::Wasm => Vec::new(),
            Backend::Webgpu | Backend::Webnn => warm_up_shapes(&inputs),
        };
        let reference =
            |&(digest, byte_len): &(Digest, u64)| BlobRef { name: blob_name(&digest), byte_len };
        let message = |request| ToLane::Load {
            request,
            segment: id.0.to_string(),
            graph: reference(&graph),
            weights: weights.iter().map(reference).collect(),
            lifted: segment.lifted.iter().map(lifted::encode).collect(),
            dims: segment.dims.iter().map(|(name, &size)| (name.clone(), size as u64)).collect(),
            warm_up,
            outputs: outputs.iter().map(|output| output.name.clone()).collect(),
        };
        let effect = LoadedSegment {
            inputs: inputs.clone(),
            outputs: outputs.clone(),
            blobs: blobs.clone(),
            kind: segment.kind,
            placement: None,
            slowest: None,
        };
        let needed = blobs.iter().chain([&graph]).map(|(digest, _)| *digest).collect();
        let permission = Permission::new(self, needed);
        let patience = self.shared.options.timeouts.for_load(segment.kind);
        let effect = Effect::Loads(id, Box::new(effect));
        let answer = self.ask("load", message, vec![], patience, effect).await?;
        drop(permission);
        let FromLane::Loaded { traffic, warm_up_ms, warm_up_error, placement, .. } = answer.message
        else {
            return Err(self.broke_protocol("`load` answered by something else".to_owned()));
        };
        let first_run = warm_up_ms.map(milliseconds).transpose();
        Ok(Loaded {
            id,
            inputs,
            outputs,
            weight_bytes: blobs.iter().map(|(_, bytes)| bytes).sum(),
            new_weight_bytes: answer.new_weight_bytes,
            downloaded_bytes: traffic.downloaded_bytes,
            took: started.elapsed(),
            first_run: first_run.map_err(|lie| self.broke_protocol(lie))?,
            first_run_error: warm_up_error,
            placement,
        })
    }

    /// What a segment is made of. Reads and checks every weight, which also warms the pages that
    /// are sent next.
    async fn files(&self, segment: &Segment) -> Result<Files, DeviceError> {
        let (store, segment) = (self.shared.store.clone(), segment.clone());
        let opened = tokio::task::spawn_blocking(move || Files::open(&store, &segment));
        let failed =
            |error| DeviceError::caused(ErrorKind::Device, "loading was interrupted", error);
        opened.await.map_err(failed)?
    }
}

/// What a segment is made of.
struct Files {
    graph: (Digest, u64),
    /// The weights that the graph refers to.
    weights: Vec<(Digest, u64)>,
    /// These and the lifted ones, each once.
    blobs: Vec<(Digest, u64)>,
    /// Without the lifted ones.
    inputs: Vec<Value>,
    outputs: Vec<Value>,
}

impl Files {
    fn open(store: &Store, segment: &Segment) -> Result<Files, DeviceError> {
        let in_store =
            |error| DeviceError::caused(ErrorKind::Caller, "cannot read the segment", error);
        let stored = &segment.graph;
        let model = store.open_graph(stored).map_err(in_store)?;
        let graph = store.blob(&stored.graph).map_err(in_store)?;
        let mut inputs = bind(model.inputs(), &segment.dims);
        lifted::take_out(&mut inputs, &segment.lifted, store)?;
        let weights: BTreeMap<Digest, u64> =
            stored.weights.iter().map(|weight| (weight.content, weight.bytes)).collect();
        let mut blobs = weights.clone();
        blobs.extend(segment.lifted.iter().map(|input| (input.content, lifted::bytes_of(input))));
        Ok(Files {
            graph: (stored.graph, graph.len() as u64),
            weights: weights.into_iter().collect(),
            blobs: blobs.into_iter().collect(),
            inputs,
            outputs: bind(model.outputs(), &segment.dims),
        })
    }
}

/// A place in the queue of those who want the same segment. The last one takes the queue along.
struct Turn<'a> {
    lane: &'a Lane,
    id: SegmentId,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Turn<'_> {
    fn new(lane: &Lane, id: SegmentId) -> Turn<'_> {
        let turn = lock(&lane.shared.loading).entry(id).or_default().clone();
        Turn { lane, id, turn }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut loading = lock(&self.lane.shared.loading);
        // This one and the map's: nobody else waits.
        if Arc::strong_count(&self.turn) <= 2 {
            loading.remove(&self.id);
        }
    }
}

/// Lets a lane fetch blobs for as long as a load goes on.
struct Permission<'a> {
    lane: &'a Lane,
    digests: Vec<Digest>,
}

impl Permission<'_> {
    fn new(lane: &Lane, digests: Vec<Digest>) -> Permission<'_> {
        lane.state().allow(digests.clone());
        Permission { lane, digests }
    }
}

impl Drop for Permission<'_> {
    fn drop(&mut self) {
        self.lane.state().forbid(std::mem::take(&mut self.digests));
    }
}
