//! Models built in code, for tests, benchmarks and `holdfast synth`.
//!
//! Everything is seeded and deterministic: a [`Recipe`] always gives the same bytes.
//! [`Architecture`]s are written with the operators that real exports use; [`families`] have
//! weights in common; [`Builder`] makes small graphs by hand. [`hub`] serves a repository on this
//! machine; [`crash`] kills processes.

mod architecture;
mod attention;
pub mod attribute;
mod bert;
mod builder;
mod clip;
pub mod crash;
mod distilbert;
mod error;
pub mod families;
pub mod feed;
pub mod hub;
mod layers;
mod llama;
mod mask;
mod numbers;
pub mod random;
mod recipe;
mod rotary;
pub mod synth;
mod t5;
mod vit;
mod weights;
mod whisper;

pub use architecture::Architecture;
pub use bert::bert;
pub use builder::{Builder, DEFAULT_OPSET, fixed, named};
pub use clip::{clip, clip_text, clip_vision};
pub use distilbert::distilbert;
pub use error::{BuildError, UnknownName};
pub use families::Member;
pub use llama::{llama, llama_with_past};
pub use numbers::Numbers;
pub use recipe::{Adapter, LayerNorm, NEWEST_OPSET, OLDEST_OPSET, Recipe, Size, Style};
pub use t5::t5_encoder;
pub use vit::vit;
pub use weights::{Init, Weights};
pub use whisper::whisper_encoder;
