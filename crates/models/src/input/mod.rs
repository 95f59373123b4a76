//! Input as people have it: text, pictures, sound and `.npy` files become the tensors that a
//! model asks for, and its answers become embeddings and labels.
//!
//! Everything works from the bytes of the small files that come with a model, its [`Sidecars`],
//! and from the model's own description of its inputs. [`TextInput`], [`ImageInput`] and
//! [`AudioInput`] are built once per model and then prepare any number of batches. What a
//! sidecar asks for and Holdfast cannot do is an error, never an approximation.
//!
//! ```no_run
//! use holdfast_graph::Model;
//! use holdfast_models::input::{Sidecars, TextInput};
//!
//! let model = Model::open("all-MiniLM-L6-v2/onnx/model.onnx")?;
//! let sidecars = Sidecars::from_folder("all-MiniLM-L6-v2")?;
//! let prepared = TextInput::new(&sidecars, &model.inputs())?.prepare(&["a first text", "a second"])?;
//! for (name, tensor) in &prepared.tensors {
//!     println!("{name}: {}{:?}", tensor.dtype(), tensor.dims());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod audio;
mod error;
mod image;
mod labels;
mod mel;
pub mod npy;
mod pixels;
mod pooling;
mod recipe;
mod resize;
mod sidecars;
mod source;
mod tensors;
mod text;
mod wav;

pub use audio::AudioInput;
pub use error::InputError;
pub use image::ImageInput;
pub use labels::{Activation, Labels, Scored};
pub use pooling::{Pooling, PoolingMode, pool};
pub use sidecars::Sidecars;
pub use source::Source;
pub use tensors::check_input;
pub use text::TextInput;

use holdfast_graph::Tensor;

/// A batch made ready for a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// The tensors, by the names of the model's inputs. Inputs that this kind of data says
    /// nothing about, such as a key-value cache, are not among them.
    pub tensors: Vec<(String, Tensor)>,
    /// For text: i64 `[batch, sequence]`, 1 where there is a token and 0 where there is padding,
    /// whether the model asks for it or not, because pooling needs it.
    pub mask: Option<Tensor>,
    /// Which items of the batch were cut because the model takes no more, counted from 0.
    pub truncated: Vec<usize>,
}
