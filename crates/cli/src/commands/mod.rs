//! One file per command.

pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod gc;
pub(crate) mod import;
pub(crate) mod join;
pub(crate) mod models;
pub(crate) mod pool;
pub(crate) mod pull;
pub(crate) mod rm;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod share;
pub(crate) mod show;
pub(crate) mod synth;
pub(crate) mod verify;
