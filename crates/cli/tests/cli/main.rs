//! The `holdfast` program as its users meet it: real processes, their output and exit codes,
//! and what they leave on disk.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests may")]

mod support;

mod bad_input;
mod bench;
mod crash;
mod demo;
mod disk;
mod help;
mod history;
mod pipes;
mod predict;
mod pull;
mod run;
mod share;
mod store;
mod together;
