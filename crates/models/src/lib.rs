//! models

pub mod input;
