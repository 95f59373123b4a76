//! The pool with real models on the real engine.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod sharing;
mod support;
mod workloads;
