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
mod effect;
mod lifted;
mod load;
mod outbox;
mod retries;
mod run;
mod state;
mod timeouts;
mod underway;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use holdfast_graph::{Digest, Tensor};
use holdfast_models::Store;
use holdfast_wire::{Backend, BodyWriter, FromLane, Hello, PowerInfo, TensorWindow, ToLane};
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
use crate::window::Window;
use effect::Effect;
use retries::{if_busy, if_lost_or_busy, retry, retry_until};
use state::State;
use underway::Underway;

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
    /// As it was told last.
    power: Mutex<PowerInfo>,
    events: broadcast::Sender<Event>,
    /// There is something to send.
    outgoing: Notify,
    /// Segments load one at a time under this, by id, so that two callers do not fetch one twice.
    loading: Mutex<std::collections::HashMap<SegmentId, Arc<tokio::sync::Mutex<()>>>>,
    /// Programs by the caller's name for them.
    running: Mutex<std::collections::HashMap<RequestId, underway::Entry>>,
    /// Never held while anything is awaited.
    state: Mutex<State>,
}

impl Shared {
    fn info(&self) -> Arc<DeviceInfo> {
        lock(&self.info).clone()
    }
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
        let power = Mutex::new(hello.power);
        let shared = Shared {
            power,
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

    /// What its machine can spare now; [`Lane::hello`] tells what it could spare when it joined.
    pub fn power(&self) -> PowerInfo {
        *lock(&self.shared.power)
    }

    /// Takes what the lane says, which may be anything.
    fn note_power(&self, power: PowerInfo) {
        let part = |value: f64| if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) };
        let (share, battery_level) = (part(power.share), power.battery_level.map(part));
        *lock(&self.shared.power) = PowerInfo { share, battery_level, ..power };
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
        self.shared.info()
    }

    async fn load(&self, segment: Segment) -> Result<Loaded, DeviceError> {
        self.load_segment(segment).await
    }

    async fn unload(&self, segment: SegmentId) -> Result<(), DeviceError> {
        self.known_segment(segment)?;
        // From now on nobody gets to use it here, whatever becomes of it there.
        self.state().let_go(segment);
        let patience = self.shared.options.timeouts.for_transfer(0);
        let message = |request| ToLane::Unload { request, segment: segment.0.to_string() };
        self.ask("unload", message, vec![], patience, Effect::None).await.map(drop)
    }

    async fn put(&self, id: TensorId, tensor: Tensor) -> Result<(), DeviceError> {
        let bytes = tensor.bytes().len() as u64;
        let patience = self.shared.options.timeouts.for_transfer(bytes);
        let attempts = self.shared.options.retries.transfer;
        let put = || async {
            let mut body = BodyWriter::default();
            let value = convert::push_tensor(&mut body, &tensor);
            let message = |request| ToLane::Put { request, tensor: id.0.clone(), value };
            let effect = Effect::Puts(id.clone(), bytes);
            self.ask("put", message, body.finish(), patience, effect).await
        };
        retry(attempts, if_lost_or_busy, put).await.map(drop)
    }

    async fn get(&self, id: &TensorId) -> Result<Tensor, DeviceError> {
        self.read_tensor(id, None).await
    }

    async fn get_window(&self, id: &TensorId, window: &Window) -> Result<Tensor, DeviceError> {
        let tensor = self.read_tensor(id, Some(convert::window(window))).await?;
        match tensor.dims() == window.dims {
            true => Ok(tensor),
            false => Err(self.broke_protocol(format!("{:?} for {window:?}", tensor.dims()))),
        }
    }

    async fn copy(
        &self,
        id: &TensorId,
        window: Option<&Window>,
        to: TensorId,
    ) -> Result<(), DeviceError> {
        self.known_tensor(id)?;
        // As if all of it were copied: of a part, only the lane knows how many bytes it has.
        let bytes = self.state().tensors.get(id).copied().unwrap_or(0);
        let patience = self.shared.options.timeouts.for_transfer(bytes);
        let message = |request| {
            let (tensor, to) = (id.0.clone(), to.0.clone());
            ToLane::Copy { request, tensor, window: window.map(convert::window), to }
        };
        let copy = || {
            let effect = Effect::Puts(to.clone(), bytes);
            self.ask("copy", &message, vec![], patience, effect)
        };
        retry(self.shared.options.retries.transfer, if_busy, copy).await.map(drop)
    }

    async fn drop_tensor(&self, id: &TensorId) -> Result<(), DeviceError> {
        self.known_tensor(id)?;
        self.state().tensors.remove(id);
        let patience = self.shared.options.timeouts.for_transfer(0);
        let message = |request| ToLane::Drop { request, tensor: id.0.clone() };
        self.ask("drop", message, vec![], patience, Effect::None).await.map(drop)
    }

    async fn run(&self, program: Program) -> Result<Outcome, DeviceError> {
        let arrived = Instant::now();
        let attempts = self.shared.options.retries.run;
        let outcome = async {
            let underway = Underway::enter(self, &program.request)?;
            let run = || self.run_once(&program, arrived, &underway);
            retry_until(underway.cancelled(), attempts, if_busy, run).await
        }
        .await;
        let mut state = self.state();
        match &outcome {
            Ok(_) => state.succeeded += 1,
            Err(_) => state.failed += 1,
        }
        outcome
    }

    fn cancel(&self, request: &RequestId) -> bool {
        self.cancel_program(request)
    }

    async fn stats(&self) -> Result<Stats, DeviceError> {
        let patience = self.shared.options.timeouts.for_transfer(0);
        let message = |request| ToLane::Stats { request };
        let answer = self.ask("stats", message, vec![], patience, Effect::None).await?;
        let FromLane::Stats { stats, .. } = answer.message else {
            return Err(self.broke_protocol("`stats` answered by something else".to_owned()));
        };
        let state = self.state();
        let weights: std::collections::HashMap<Digest, u64> =
            state.segments.values().flat_map(|segment| segment.blobs.iter().copied()).collect();
        Ok(Stats {
            segments: state.segments.len(),
            weight_bytes: weights.values().sum(),
            lifted_bytes: stats.lifted_bytes,
            tensors: stats.tensors as usize,
            tensor_bytes: stats.tensor_bytes,
            device_tensor_bytes: stats.device_tensor_bytes,
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

    /// Reads a tensor, or a part of it.
    async fn read_tensor(
        &self,
        id: &TensorId,
        window: Option<TensorWindow>,
    ) -> Result<Tensor, DeviceError> {
        self.known_tensor(id)?;
        // Lost between the two looks, it has none.
        let bytes = self.state().tensors.get(id).copied().unwrap_or(0);
        let patience = self.shared.options.timeouts.for_transfer(bytes);
        let message = |request| {
            let (tensor, window) = (id.0.clone(), window.clone());
            ToLane::Get { request, tensor, window }
        };
        let answer = retry(self.shared.options.retries.transfer, if_busy, || {
            self.ask("get", &message, vec![], patience, Effect::Gets(id.clone()))
        })
        .await?;
        match &answer.message {
            FromLane::Tensor { value, .. } => {
                convert::read_tensor(value, &answer.body).map_err(|lie| self.broke_protocol(lie))
            }
            other => Err(self.broke_protocol(format!("`get` answered by {other:?}"))),
        }
    }

    /// Whether a tensor is there; the error says whether it was.
    fn known_tensor(&self, id: &TensorId) -> Result<(), DeviceError> {
        let state = self.state();
        if state.tensors.contains_key(id) {
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
        self.dismiss(&reason);
        self.end(&reason, ErrorKind::Protocol);
        DeviceError::new(ErrorKind::Protocol, reason)
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
