//! One file per command.

pub(crate) mod bench;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod gc;
pub(crate) mod history;
pub(crate) mod import;
pub(crate) mod join;
pub(crate) mod models;
pub(crate) mod pool;
pub(crate) mod predict;
pub(crate) mod pull;
pub(crate) mod refine;
pub(crate) mod report;
pub(crate) mod rm;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod share;
pub(crate) mod show;
pub(crate) mod synth;
pub(crate) mod validate;
pub(crate) mod verify;
