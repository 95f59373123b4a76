//! models

pub mod hub;
