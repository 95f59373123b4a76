//! A lane: a place in a browser that computes, at the far end of a socket.
//!
//! A [`Lane`] is a [`Device`] like the CPU engine. It outlives its connection: when that is cut,
//! requests wait, and when the browser comes back with the same session, it goes on where it
//! was. [`Lanes`] takes connections in and tells which lanes there are. What carries the frames
//! is not its business: a [`Link`] is two channels.

mod accept;
mod adapter;
mod ask;
mod connection;
mod convert;
mod diagnostics;
mod outbox;
mod retries;
mod state;
mod timeouts;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use holdfast_graph::{Digest, Tensor, blob_name};
use holdfast_models::Store;
use holdfast_wire::{Backend, BlobRef, BodyWriter, FromLane, Hello, ToLane};
use tokio::sync::{Notify, broadcast};

pub use accept::{JoinError, Lanes};
pub use connection::Link;
pub use convert::read_tensor;
pub use diagnostics::{Diagnostics, Operation};
pub use retries::Retries;
pub use timeouts::Timeouts;

use crate::calibration::{Calibration, calibrate};
use crate::cpu::Target;
use crate::device::{Device, DeviceInfo, Event, Loaded, Stats};
use crate::error::{DeviceError, ErrorKind};
use crate::program::{Outcome, Program, RequestId, TensorId};
use crate::segment::{Segment, SegmentId};
use retries::{if_busy, if_lost_or_busy, retry};
use state::{LoadedSegment, State};
use timeouts::Slowest;

/// How lanes are treated.
#[derive(Clone, Debug)]
pub struct LaneOptions {
    /// How long operations may take.
    pub timeouts: Timeouts,
    /// How often they are tried.
    pub retries: Retries,
    /// Requests that may wait on one lane; one more is refused.
    pub queue: usize,
    /// How often a lane is pinged. Unheard for three times as long, its connection is cut.
    pub heartbeat: Duration,
    /// How long a lane that was cut may stay away before it counts as gone.
    pub grace: Duration,
    /// Bytes of blobs that a browser may keep for the next time.
    pub cache_bytes: u64,
    /// Bytes of tensors that a lane may keep.
    pub tensor_bytes: u64,
}

impl Default for LaneOptions {
    fn default() -> LaneOptions {
        LaneOptions {
            timeouts: Timeouts::default(),
            retries: Retries::default(),
            queue: 256,
            heartbeat: Duration::from_secs(5),
            grace: Duration::from_secs(30),
            cache_bytes: 8 << 30,
            tensor_bytes: 1 << 30,
        }
    }
}

/// A lane. Cheap to clone: clones are the same lane.
#[derive(Clone)]
pub struct Lane {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    session: String,
    blob_key: String,
    hello: Hello,
    store: Arc<Store>,
    options: LaneOptions,
    info: Mutex<Arc<DeviceInfo>>,
    events: broadcast::Sender<Event>,
    /// There is something to send.
    outgoing: Notify,
    /// Segments load one at a time under this, by id, so that two callers do not fetch one twice.
    loading: Mutex<std::collections::HashMap<SegmentId, Arc<tokio::sync::Mutex<()>>>>,
    /// Programs by the caller's name for them.
    running: Mutex<std::collections::HashMap<RequestId, u64>>,
    /// Never held while anything is awaited.
    state: Mutex<State>,
}

impl Lane {
    fn new(
        name: String,
        session: String,
        blob_key: String,
        hello: Hello,
        store: Arc<Store>,
        options: LaneOptions,
    ) -> Lane {
        let browser = &hello.browser;
        let info = DeviceInfo {
            name,
            backend: hello.backend.name().to_owned(),
            engine: format!("ONNX Runtime Web in {} {}", browser.name, browser.version),
            adapter: adapter::describe(&hello),
            accelerated: false,
            calibration: None,
        };
        let shared = Shared {
            session,
            blob_key,
            hello,
            store,
            options,
            info: Mutex::new(Arc::new(info)),
            events: broadcast::channel(64).0,
            outgoing: Notify::new(),
            loading: Mutex::default(),
            running: Mutex::default(),
            state: Mutex::new(State::new()),
        };
        Lane { shared: Arc::new(shared) }
    }

    /// What the lane said of itself when it joined.
    pub fn hello(&self) -> &Hello {
        &self.shared.hello
    }

    /// What it computes on.
    pub fn backend(&self) -> Backend {
        self.shared.hello.backend
    }

    /// What graphs for it are lowered for.
    pub fn target(&self) -> Target {
        adapter::target(self.backend())
    }

    /// Why the lane is gone, if it is.
    pub fn gone(&self) -> Option<String> {
        match &self.state().connection {
            state::Connection::Gone { reason, .. } => Some(reason.clone()),
            _ => None,
        }
    }

    /// Whether the lane can be heard right now.
    pub fn is_connected(&self) -> bool {
        self.state().is_up()
    }

    /// Requests without an answer.
    pub fn in_flight(&self) -> usize {
        self.state().pending.len()
    }

    /// An account of the connection.
    pub fn diagnostics(&self) -> Diagnostics {
        self.state().diagnostics.clone()
    }

    /// Measures what the lane really does, and decides whether that is an accelerator.
    pub async fn calibrate(&self) -> Result<Calibration, DeviceError> {
        let measured = calibrate(self, &self.shared.store).await?;
        let mut info = lock(&self.shared.info);
        *info = Arc::new(DeviceInfo {
            accelerated: adapter::is_accelerated(&self.shared.hello, Some(&measured)),
            calibration: Some(measured),
            ..info.as_ref().clone()
        });
        Ok(measured)
    }

    /// A blob that one of the lane's segments needs; `None` for any other.
    pub fn blob(&self, digest: &Digest) -> Option<Result<Bytes, holdfast_models::StoreError>> {
        // Not under the lock: the blob is mapped and its hash checked, which takes a while.
        let needed = self.state().blobs.contains_key(digest);
        needed.then(|| self.shared.store.blob(digest))
    }

    /// Tells the browser that Holdfast ends, and counts the lane as gone.
    pub fn leave(&self, reason: &str, come_back: bool) {
        let message = ToLane::Leave { reason: reason.to_owned(), come_back };
        // A short text always fits.
        let _ = self.state().outbox.push_control(&message);
        self.shared.outgoing.notify_one();
        self.end(reason, ErrorKind::Device);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared.state)
    }

    fn emit(&self, event: Event) {
        // Nobody need be listening.
        let _ = self.shared.events.send(event);
    }
}

#[async_trait]
impl Device for Lane {
    fn info(&self) -> Arc<DeviceInfo> {
        lock(&self.shared.info).clone()
    }

    async fn load(&self, segment: Segment) -> Result<Loaded, DeviceError> {
        let id = segment.id();
        let turn = lock(&self.shared.loading).entry(id).or_default().clone();
        let loaded = {
            let _one_at_a_time = turn.lock().await;
            match self.loaded(id) {
                Some(loaded) => Ok(loaded),
                None => {
                    let attempts = self.shared.options.retries.load;
                    retry(attempts, if_lost_or_busy, || self.load_once(&segment)).await
                }
            }
        };
        let mut loading = lock(&self.shared.loading);
        // This one and the map's: nobody else waits.
        if Arc::strong_count(&turn) <= 2 {
            loading.remove(&id);
        }
        loaded
    }

    async fn unload(&self, segment: SegmentId) -> Result<(), DeviceError> {
        self.known_segment(segment)?;
        let timeout = self.shared.options.timeouts.for_transfer(0);
        let message = |request| ToLane::Unload { request, segment: segment.0.to_string() };
        self.ask("unload", message, vec![], timeout).await?;
        let mut state = self.state();
        if let Some(unloaded) = state.segments.remove(&segment) {
            state.forbid(unloaded.blobs.into_iter().map(|(digest, _)| digest));
        }
        Ok(())
    }

    async fn put(&self, id: TensorId, tensor: Tensor) -> Result<(), DeviceError> {
        let timeout = self.shared.options.timeouts.for_transfer(tensor.bytes().len() as u64);
        retry(self.shared.options.retries.transfer, if_lost_or_busy, || async {
            let mut body = BodyWriter::default();
            let value = convert::push_tensor(&mut body, &tensor)?;
            let message = |request| ToLane::Put { request, tensor: id.0.clone(), value };
            self.ask("put", message, body.finish(), timeout).await
        })
        .await?;
        let mut state = self.state();
        state.lost_tensors.remove(&id);
        state.tensors.insert(id);
        Ok(())
    }

    async fn get(&self, id: &TensorId) -> Result<Tensor, DeviceError> {
        self.known_tensor(id)?;
        // How large it is, only the lane knows.
        let timeout = self.shared.options.timeouts.for_transfer(self.shared.options.tensor_bytes);
        let message = |request| ToLane::Get { request, tensor: id.0.clone() };
        let answer = retry(self.shared.options.retries.transfer, if_busy, || {
            self.ask("get", message, vec![], timeout)
        })
        .await?;
        match &answer.message {
            FromLane::Tensor { value, .. } => {
                convert::read_tensor(value, &answer.body).map_err(|lie| self.broke_protocol(lie))
            }
            other => Err(self.broke_protocol(format!("`get` answered by {other:?}"))),
        }
    }

    async fn drop_tensor(&self, id: &TensorId) -> Result<(), DeviceError> {
        self.known_tensor(id)?;
        let timeout = self.shared.options.timeouts.for_transfer(0);
        let message = |request| ToLane::Drop { request, tensor: id.0.clone() };
        self.ask("drop", message, vec![], timeout).await?;
        self.state().tensors.remove(id);
        Ok(())
    }

    async fn run(&self, program: Program) -> Result<Outcome, DeviceError> {
        let arrived = Instant::now();
        let attempts = self.shared.options.retries.run;
        let outcome = retry(attempts, if_busy, || self.run_once(&program, arrived)).await;
        let mut state = self.state();
        match &outcome {
            Ok(_) => state.succeeded += 1,
            Err(_) => state.failed += 1,
        }
        outcome
    }

    fn cancel(&self, request: &RequestId) -> bool {
        let number = lock(&self.shared.running).get(request).copied();
        number.is_some_and(|number| self.give_up(number, ErrorKind::Cancelled))
    }

    async fn stats(&self) -> Result<Stats, DeviceError> {
        let timeout = self.shared.options.timeouts.for_transfer(0);
        let answer =
            self.ask("stats", |request| ToLane::Stats { request }, vec![], timeout).await?;
        let FromLane::Stats { stats, .. } = answer.message else {
            return Err(self.broke_protocol("`stats` answered by something else".to_owned()));
        };
        let state = self.state();
        let weights: std::collections::HashMap<Digest, u64> =
            state.segments.values().flat_map(|segment| segment.blobs.iter().copied()).collect();
        Ok(Stats {
            segments: state.segments.len(),
            weight_bytes: weights.values().sum(),
            tensors: stats.tensors as usize,
            tensor_bytes: stats.tensor_bytes,
            in_flight: state.pending.len(),
            succeeded: state.succeeded,
            failed: state.failed,
        })
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.events.subscribe()
    }
}

impl Lane {
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
            placement: segment.placement.clone(),
        })
    }

    async fn load_once(&self, segment: &Segment) -> Result<Loaded, DeviceError> {
        let started = Instant::now();
        let id = segment.id();
        let (store, stored) = (self.shared.store.clone(), segment.graph.clone());
        // Reads and checks every weight, which also warms the pages that are sent next.
        let opened = tokio::task::spawn_blocking(move || {
            let model = store.open_graph(&stored)?;
            Ok::<_, holdfast_models::StoreError>((model, store.blob(&stored.graph)?.len() as u64))
        });
        let failed =
            |error| DeviceError::caused(ErrorKind::Device, "loading was interrupted", error);
        let in_store =
            |error| DeviceError::caused(ErrorKind::Caller, "cannot read the segment", error);
        let (model, graph_bytes) = opened.await.map_err(failed)?.map_err(in_store)?;
        let (inputs, outputs) = (model.inputs(), model.outputs());

        let mut blobs: Vec<(Digest, u64)> =
            segment.graph.weights.iter().map(|weight| (weight.content, weight.bytes)).collect();
        blobs.sort();
        blobs.dedup();
        let warm_up = match self.backend() {
            Backend::Wasm => Vec::new(),
            Backend::Webgpu | Backend::Webnn => convert::warm_up_shapes(&inputs, &segment.dims),
        };
        let reference =
            |&(digest, byte_len): &(Digest, u64)| BlobRef { name: blob_name(&digest), byte_len };
        let graph = (segment.graph.graph, graph_bytes);
        let message = |request| ToLane::Load {
            request,
            segment: id.0.to_string(),
            graph: reference(&graph),
            weights: blobs.iter().map(reference).collect(),
            dims: segment.dims.iter().map(|(name, &size)| (name.clone(), size as u64)).collect(),
            warm_up,
            outputs: outputs.iter().map(|output| output.name.clone()).collect(),
        };
        let needed: Vec<Digest> =
            blobs.iter().map(|(digest, _)| *digest).chain([graph.0]).collect();
        self.state().allow(needed.iter().copied());
        let permission = Permission { lane: self, digests: needed };
        let timeout = self.shared.options.timeouts.for_load(segment.kind);
        let answer = self.ask("load", message, vec![], timeout).await?;
        drop(permission);
        let FromLane::Loaded { traffic, warm_up_ms, placement, .. } = answer.message else {
            return Err(self.broke_protocol("`load` answered by something else".to_owned()));
        };

        let mut state = self.state();
        let held: std::collections::HashSet<Digest> = state
            .segments
            .values()
            .flat_map(|segment| segment.blobs.iter().map(|(digest, _)| *digest))
            .collect();
        let new = blobs.iter().filter(|(digest, _)| !held.contains(digest));
        let loaded = Loaded {
            id,
            inputs: inputs.clone(),
            outputs: outputs.clone(),
            weight_bytes: blobs.iter().map(|(_, bytes)| bytes).sum(),
            new_weight_bytes: new.map(|(_, bytes)| bytes).sum(),
            downloaded_bytes: traffic.downloaded_bytes,
            took: started.elapsed(),
            first_run: warm_up_ms.map(convert::milliseconds),
            placement: placement.clone(),
        };
        state.lost_segments.remove(&id);
        state.allow(blobs.iter().map(|(digest, _)| *digest));
        let kind = segment.kind;
        let segment = LoadedSegment { inputs, outputs, blobs, kind, placement, slowest: None };
        state.segments.insert(id, segment);
        Ok(loaded)
    }

    async fn run_once(&self, program: &Program, arrived: Instant) -> Result<Outcome, DeviceError> {
        for step in &program.steps {
            self.known_segment(step.segment)?;
            for (_, input) in &step.inputs {
                if let crate::Input::Kept(id) = input {
                    self.known_tensor(id)?;
                }
            }
        }
        let timeouts = &self.shared.options.timeouts;
        let (encoded, patience) = {
            let state = self.state();
            let encoded = convert::encode_program(program, &state.segments)?;
            let segments =
                program.steps.iter().filter_map(|step| state.segments.get(&step.segment));
            let patience: Duration = segments
                .map(|segment| timeouts.for_run(segment.kind, encoded.input_bytes, segment.slowest))
                .sum();
            // Those that wait before it may take as long.
            (encoded, patience * (1 + state.pending.len() as u32))
        };
        let limit = program
            .deadline
            .map_or(patience, |deadline| deadline.saturating_sub(arrived.elapsed()));
        let (steps, input_bytes) = (encoded.steps, encoded.input_bytes);
        let message = |request| ToLane::Run { request, deadline_ms: 0, steps };
        let answer = self.ask_run(&program.request, message, encoded.body, limit).await?;
        let FromLane::Outcome { outputs, queued_ms, steps, .. } = answer.message else {
            return Err(self.broke_protocol("`run` answered by something else".to_owned()));
        };
        let mut sent = answer.parts;
        sent.push((outputs, answer.body));
        let mut state = self.state();
        let returned = match convert::read_outputs(program, &state.segments, &sent) {
            Ok(returned) => returned,
            Err(lie) => {
                drop(state);
                return Err(self.broke_protocol(lie));
            }
        };
        let steps = convert::read_steps(&steps);
        for (step, timing) in program.steps.iter().zip(&steps) {
            if let Some(segment) = state.segments.get_mut(&step.segment)
                && segment.slowest.is_none_or(|slowest| slowest.took < timing.run)
            {
                segment.slowest = Some(Slowest { took: timing.run, input_bytes });
            }
        }
        for id in convert::kept_names(program) {
            state.lost_tensors.remove(id);
            state.tensors.insert(id.clone());
        }
        drop(state);
        let queued = convert::milliseconds(queued_ms);
        Ok(Outcome { outputs: returned, steps, queued, device: self.info() })
    }

    /// Whether a segment is there; the error says whether it was.
    fn known_segment(&self, id: SegmentId) -> Result<(), DeviceError> {
        let state = self.state();
        if state.segments.contains_key(&id) {
            Ok(())
        } else if state.lost_segments.contains(&id) {
            Err(lost(&format!("segment {id}"), &state))
        } else {
            Err(DeviceError::caller(format!("segment {id} is not loaded on this device")))
        }
    }

    /// Whether a tensor is there; the error says whether it was.
    fn known_tensor(&self, id: &TensorId) -> Result<(), DeviceError> {
        let state = self.state();
        if state.tensors.contains(id) {
            Ok(())
        } else if state.lost_tensors.contains(id) {
            Err(lost(&format!("tensor `{id}`"), &state))
        } else {
            Err(DeviceError::caller(format!("no tensor `{id}` is kept on this device")))
        }
    }

    /// Ends a lane that broke the protocol: nothing that it says can be believed any more.
    fn broke_protocol(&self, how: String) -> DeviceError {
        let reason = format!("{} broke the protocol: {how}", self.info().name);
        self.end(&reason, ErrorKind::Protocol);
        DeviceError::new(ErrorKind::Protocol, reason)
    }
}

/// Lets a lane fetch blobs for as long as a load goes on.
struct Permission<'a> {
    lane: &'a Lane,
    digests: Vec<Digest>,
}

impl Drop for Permission<'_> {
    fn drop(&mut self) {
        self.lane.state().forbid(self.digests.drain(..));
    }
}

fn lost(what: &str, state: &State) -> DeviceError {
    let reason = state.diagnostics.last_loss.as_deref().unwrap_or("the engine was replaced");
    let message = format!("{what} is gone ({reason}); load it again");
    DeviceError::new(ErrorKind::StateLost, message)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code panics while holding this lock")
}

#[cfg(test)]
mod tests;
