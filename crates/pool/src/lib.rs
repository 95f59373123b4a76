//! Picks what a model runs on, and runs it there.
//!
//! A [`Request`] names a model, its inputs and, in order, the [`Choice`]s of what to run it on.
//! The [`Pool`] has the in-process engine and the lanes of browsers; it starts browsers when a
//! choice needs one and none is there, more while work waits, and closes those that are idle. Requests wait in a bounded queue until a device is free;
//! those for one model may run together. The [`Answer`] says what computed it, which choices were
//! passed over and why, and which devices failed under it. [`Metrics`] say how the pool is.

mod account;
mod batch;
mod cache;
mod carry;
mod choice;
mod fleet;
mod histogram;
mod joining;
mod ledger;
mod measurements;
mod metrics;
mod placement;
mod play;
mod pool;
mod prepare;
mod program;
mod request;
mod route;
mod scheduler;
#[cfg(test)]
mod scripted;
mod tensors;
mod values;
mod workload;

pub use choice::{Choice, Choices};
pub use fleet::BrowserOptions;
pub use fleet::history::{ScalingEvent, ScalingStep};
pub use fleet::metrics::{BrowserMetrics, BrowserState, Failing, FleetMetrics};
pub use ledger::{Known, Ledger};
pub use metrics::{
    Batches, Connections, DeviceMetrics, KeptMetrics, LoadedModel, Metrics, ModelMetrics,
    QueueMetrics, Throughput, Times, TimesMetrics,
};
pub use pool::{Pool, PoolOptions, QueueOptions, WhenFull, explain};
pub use request::{Answer, Failure, PassedOver, Priority, Request, Reused, RunError};
pub use tensors::{Home, SaveOptions, SharedTensorError, SharedTensors};
pub use workload::{Compared, Comparison, Execution, Forecast, Workload, WorkloadError};
