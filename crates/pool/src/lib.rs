//! Picks what a model runs on, and runs it there.
//!
//! A [`Request`] names a model, its inputs and, in order, the [`Choice`]s of what to run it on.
//! The [`Pool`] has the in-process engine and the lanes of browsers; it starts a browser when a
//! choice needs one and none is there. The [`Answer`] says what computed it, and which choices
//! were passed over and why.

mod browser;
mod choice;
mod pool;
mod request;

pub use browser::BrowserOptions;
pub use choice::{Choice, Choices};
pub use pool::{Pool, PoolOptions, explain};
pub use request::{Answer, PassedOver, Request, RunError};
