//! What runs a program: the [`Device`] trait, the in-process CPU engine, the lane over a socket.
//!
//! A [`Segment`] is a graph in the store, ready to load. A [`Program`] is what a device is
//! asked to do in one go: steps, each a loaded segment with inputs and what becomes of its
//! outputs. A [`Device`] does it: the [`CpuEngine`](cpu::CpuEngine) in this process, or a
//! [`Lane`](lane::Lane) in a browser.

mod calibration;
mod check;
pub mod cpu;
mod device;
mod error;
pub mod lane;
mod memory;
mod program;
mod secret;
mod segment;
mod window;

pub use calibration::{Calibration, calibrate};
pub use device::{Device, DeviceInfo, Event, Loaded, Stats};
pub use error::{DeviceError, ErrorKind};
pub use memory::{ProcessMemory, process_memory};
pub use program::{
    Input, KeptTensor, Outcome, Output, Program, RequestId, Returned, Step, StepTiming, TensorId,
};
pub use secret::Secret;
pub use segment::{LiftedInput, ModelKind, Segment, SegmentId};
pub use window::Window;
