//! What runs a program: the [`Device`] trait and the in-process CPU engine.
//!
//! A [`Segment`] is a graph in the store, ready to load. A [`Program`] is what a device is
//! asked to do in one go: steps, each a loaded segment with inputs and what becomes of its
//! outputs. A [`Device`] does it: today the [`CpuEngine`](cpu::CpuEngine), later also a lane
//! in a browser.

pub mod cpu;
mod device;
mod error;
mod memory;
mod program;
mod segment;

pub use device::{Device, DeviceInfo, Event, Loaded, Stats};
pub use error::{DeviceError, ErrorKind};
pub use memory::{ProcessMemory, process_memory};
pub use program::{
    Input, Outcome, Output, Program, RequestId, Returned, Step, StepTiming, TensorId,
};
pub use segment::{Segment, SegmentId};
