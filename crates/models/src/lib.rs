//! The model store.
//!
//! Three nouns carry this crate. A *blob* is a file named by the SHA-256 of its bytes: a
//! weight, a graph without its weights, a tokenizer. A [`Manifest`] says which blobs make up a
//! model. The [`Store`] is the folder that holds both, so that a weight that several models
//! have in common is there once.
//!
//! What was acknowledged as stored survives a crash: every file is written beside its place,
//! flushed and renamed, and a manifest is written after everything it names.

mod blobs;
mod error;
mod gc;
mod hash;
mod home;
pub mod hub;
mod import;
pub mod input;
mod layout;
mod manifest;
mod store;
pub mod tensors;
mod verdicts;
mod verify;
mod writing;

pub use blobs::Written;
pub use error::StoreError;
pub use gc::GcReport;
pub use hash::{hash_all, hashed_like, hashed_weights};
pub use home::default_home;
pub use import::{ImportOptions, Imported};
pub use layout::{Role, Variant, parse_stem};
pub use manifest::{
    Component, Manifest, Provenance, Source, StoredFile, StoredGraph, StoredWeight, Transposed,
};
pub use store::{Derived, MIN_BLOB_BYTES, Models, Store};
pub use verdicts::Verdict;
pub use verify::VerifyReport;
