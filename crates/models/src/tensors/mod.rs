//! Tensors on disk: they survive a restart, and go when they are too old or too many.
//!
//! Each is one file in pieces of at most 1 MiB, so that a large one is written and read without
//! ever being in memory twice. Every piece has a hash of its own, which is checked before any byte
//! of it is handed out. A file is written beside its place, flushed and renamed: after a crash,
//! there is the old tensor or the new one.

mod file;
mod folder;
mod reader;
mod writer;

pub use folder::{SavedLimits, SavedTensor, SavedTensors};
pub use reader::TensorReader;
pub use writer::{Compression, TensorWriter};
