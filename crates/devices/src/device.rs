//! The trait that everything which computes implements.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use holdfast_graph::{Tensor, Value};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use crate::calibration::Calibration;
use crate::error::DeviceError;
use crate::program::{Outcome, Program, RequestId, TensorId};
use crate::segment::{Segment, SegmentId};
use crate::window::Window;

/// Something that runs programs.
///
/// The trait is made for two very different things: an engine in this process, and a lane in
/// a browser at the far end of a socket. What that asks of it:
///
/// - **Everything waits.** A lane answers when it can, so every call is asynchronous, and no
///   call may hold up another: a `get` must not wait for a long `run` of somebody else.
/// - **One engine call at a time.** A lane runs one program after the other, because its
///   engine breaks on overlapping calls. So the unit of work is a whole [`Program`]: a device
///   may run several at once (the CPU engine does, up to its limit) or queue them, and the
///   caller cannot tell. Queues are bounded; past the bound the answer is `Busy`.
/// - **State can be lost.** A lane may lose its engine, its GPU or its connection at any time,
///   and with them all segments and tensors. That is an [`Event::Lost`] for everyone and a
///   `StateLost` error for whoever asks for what is gone; never a default, never zeros. Hence
///   `load` and `put` may be repeated: both are idempotent, and all that they need can be
///   had again from the store.
/// - **Kept tensors change only when a program succeeds.** Outputs to be kept replace what is
///   there after the last step, all of them or none. So a request that failed half-way can be
///   sent again, and a key-value cache that grows step by step is never half a step ahead.
/// - **Requests have ids** that the caller chooses, so that a request can be cancelled, and so
///   that after a reconnect a lane can be asked again for the result that it had ready.
///   `cancel` takes effect between or inside steps, as soon as the engine allows; the
///   cancelled call itself reports it.
/// - **Dimension bindings belong to `load`**, not to `run`: WebNN compiles for fixed sizes.
/// - **Bytes stay where they are.** Tensors that are kept, or passed between steps, do not
///   leave the device; only what is returned is copied.
#[async_trait]
pub trait Device: Send + Sync {
    /// What this device is. Every result can be labelled with it.
    fn info(&self) -> Arc<DeviceInfo>;

    /// Makes a segment ready to run. Loading one that is loaded already changes nothing.
    async fn load(&self, segment: Segment) -> Result<Loaded, DeviceError>;

    /// Lets a segment go. Programs that use it right now finish first.
    async fn unload(&self, segment: SegmentId) -> Result<(), DeviceError>;

    /// Keeps a tensor, replacing one of the same name.
    async fn put(&self, id: TensorId, tensor: Tensor) -> Result<(), DeviceError>;

    /// Reads a kept tensor back.
    async fn get(&self, id: &TensorId) -> Result<Tensor, DeviceError>;

    /// Reads a part of a kept tensor back. Where the device has a memory of its own, what is not
    /// asked for stays there.
    async fn get_window(&self, id: &TensorId, window: &Window) -> Result<Tensor, DeviceError> {
        window.of(&self.get(id).await?)
    }

    /// Keeps a copy of a kept tensor, or of a part of it, under another name. Where the device has a
    /// memory of its own, the bytes do not leave it.
    async fn copy(
        &self,
        id: &TensorId,
        window: Option<&Window>,
        to: TensorId,
    ) -> Result<(), DeviceError> {
        let tensor = match window {
            Some(window) => self.get_window(id, window).await?,
            None => self.get(id).await?,
        };
        self.put(to, tensor).await
    }

    /// Lets a kept tensor go. Programs that use it right now finish first.
    async fn drop_tensor(&self, id: &TensorId) -> Result<(), DeviceError>;

    /// Runs a program. Dropping the future cancels it.
    async fn run(&self, program: Program) -> Result<Outcome, DeviceError>;

    /// Asks a running or queued program to end. `false` if there is none of that id.
    fn cancel(&self, request: &RequestId) -> bool;

    /// What the device holds and has done.
    async fn stats(&self) -> Result<Stats, DeviceError>;

    /// What happens to the device from now on.
    fn events(&self) -> broadcast::Receiver<Event>;
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// A name for people, unique among the devices in use.
    pub name: String,
    /// What it computes on: `cpu`, `webgpu`, `webnn`, `wasm`.
    pub backend: String,
    /// The engine and its version.
    pub engine: String,
    /// What the hardware calls itself.
    pub adapter: String,
    /// Whether this is an accelerator, as opposed to the processor or a software adapter.
    pub accelerated: bool,
    /// What a short calibration measured; `None` until there was one.
    pub calibration: Option<Calibration>,
}

/// A segment that is ready to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Loaded {
    /// Its id.
    pub id: SegmentId,
    /// What it takes, except for weights that the device feeds itself.
    pub inputs: Vec<Value>,
    /// What it gives.
    pub outputs: Vec<Value>,
    /// Bytes of its large weights, lifted ones included.
    pub weight_bytes: u64,
    /// Those of them that no segment loaded before it had brought along.
    pub new_weight_bytes: u64,
    /// Bytes that had to be downloaded for it.
    pub downloaded_bytes: u64,
    /// How long loading took, the first run included; zero if it was loaded already.
    pub took: Duration,
    /// How long the first run took, on zeros, where the device makes one to compile shaders.
    pub first_run: Option<Duration>,
    /// Why there was none although the device makes one.
    pub first_run_error: Option<String>,
    /// What of it the device leaves to the processor; `None` for nothing.
    pub placement: Option<String>,
}

/// What a device holds and has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Segments that are loaded.
    pub segments: usize,
    /// Bytes of their weights, each weight counted once.
    pub weight_bytes: u64,
    /// Bytes of lifted weights that the device holds, as it tells: one copy of each.
    pub lifted_bytes: u64,
    /// Tensors that are kept.
    pub tensors: usize,
    /// Their bytes.
    pub tensor_bytes: u64,
    /// Those of them that lie in a memory of the device's own: GPU buffers or ML tensors.
    pub device_tensor_bytes: u64,
    /// Programs that are running or waiting.
    pub in_flight: usize,
    /// Programs that succeeded.
    pub succeeded: u64,
    /// Programs that failed.
    pub failed: u64,
}

/// Something that happened to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Everything that was loaded and kept is gone.
    Lost {
        /// Why.
        reason: String,
    },
    /// The connection is cut; the device may come back with all that it has.
    Disconnected {
        /// Why.
        reason: String,
    },
    /// It came back.
    Reconnected,
    /// It will not come back.
    Gone {
        /// Why.
        reason: String,
    },
}
