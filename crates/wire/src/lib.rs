//! The messages between Holdfast and a browser.
//!
//! A *message* is a header in JSON and a *body* of raw bytes, in which the tensors lie that the
//! header names. It travels as one or more *frames*, each a binary message of a WebSocket: the
//! first carries the header and the first bytes of the body, further ones the rest. Frames of
//! several messages may be mixed, so that a ping need not wait for a large tensor.
//!
//! A lane says [`FromLane::Hello`], Holdfast answers [`ToLane::Welcome`] or [`ToLane::Refused`].
//! Then Holdfast asks and the lane answers; what belongs together has the same request number.
//! The TypeScript types of all this are generated from here (`cargo xtask codegen`).
//!
//! ```
//! use bytes::Bytes;
//! use holdfast_wire::{Assembler, ToLane, split};
//!
//! let message = ToLane::Get { request: 7, tensor: "mask".into(), window: None };
//! let frame = split(1, &message, &[]).unwrap().next().unwrap();
//! let mut assembler = Assembler::<ToLane>::default();
//! let (received, body) = assembler.push(frame.head).unwrap().unwrap();
//! assert_eq!((received, body), (message, Bytes::new()));
//! ```

mod body;
mod frame;
mod from_lane;
mod hello;
mod segment;
mod to_lane;

pub use body::{BodyError, BodyWriter, TensorSlice};
pub use frame::{Assembler, Frame, FrameError, Split, split, split_within};
pub use from_lane::{
    ErrorKind, FromLane, KeptTensor, LaneStats, LoadPhase, OutputTensor, StepTiming, WeightTraffic,
};
pub use hello::{
    Backend, BrowserInfo, Hello, MachineInfo, PowerInfo, Resume, StorageInfo, StorageKind,
    WasmInfo, WebGpuInfo, WebNnInfo,
};
pub use segment::{BlobRef, LiftedWeight, TensorShape};
pub use to_lane::{Input, NamedInput, NamedOutput, Output, Step, TensorWindow, ToLane, Welcome};

/// The version of the protocol. Both sides have to have the same.
pub const PROTOCOL_VERSION: u32 = 1;

/// The WebSocket subprotocol.
pub const SUBPROTOCOL: &str = "holdfast.v1";

/// The token of the join link travels as a second subprotocol that starts with this, because a
/// page can set no header of a WebSocket, and an address ends up in logs.
pub const TOKEN_SUBPROTOCOL_PREFIX: &str = "holdfast.token.";

/// Bytes of body that one frame carries at most. Other messages wait for that long on a line.
pub const FRAME_BODY_LIMIT: usize = 16 << 20;

/// Bytes of JSON that a header has at most.
pub const HEADER_LIMIT: usize = 1 << 20;

/// Bytes that a frame has at most.
pub const FRAME_LIMIT: usize = 4 + HEADER_LIMIT + 8 + FRAME_BODY_LIMIT;

/// Bytes of the one frame that a hello has at most.
pub const HELLO_BYTES_LIMIT: usize = 256 << 10;

/// Bytes of body that a message has at most.
pub const BODY_LIMIT: u64 = 2 << 30;

/// Bytes of body that may have arrived for messages under way in parts, all together.
pub const OPEN_BYTES_LIMIT: u64 = 4 << 30;

/// Messages that may be under way in parts at the same time.
pub const OPEN_MESSAGES_LIMIT: usize = 64;
