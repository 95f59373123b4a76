//! Shared tensors: kept once, used by many models.
//!
//! Three nouns carry this crate. A [`SharedTensor`] is bytes with a type, dimensions and a name,
//! on the host or on a device, that models *acquire* and *release*: it stays for as long as one
//! holds it. A [`SharedTensorView`] is a window into one, and copies nothing. The
//! [`TensorSharingManager`] keeps them all within a budget: what nothing holds may go when others
//! need the room, and what was not used for the longest time goes first.
//!
//! A name belongs to a namespace ([`Key`]); a caller reaches no other. Registering a name again
//! makes a new version, and whoever holds the old one keeps it. A tensor may be declared before
//! its bytes arrive.
//!
//! The crate is pure: it has no clock, no threads and no network. The owner says what time it is
//! ([`TensorSharingManager::advance_to`]). Copies to and from devices are [`Transfer`]s that the
//! owner carries out, and what was freed on a device it drops there
//! ([`TensorSharingManager::take_dropped`]). There is one manager for each device and one for the
//! host.
//!
//! What all this means in detail is written down in `spec/tensor-sharing/`, as scenarios that run
//! as tests.
//!
//! ```
//! use holdfast_graph::Tensor;
//! use holdfast_tensors::{Limits, NewTensor, Span, TensorSharingManager};
//!
//! let mut manager = TensorSharingManager::new(Limits::budget(1 << 20));
//! let hidden = Tensor::from_slice(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! let id = manager.register("hidden", NewTensor::from(hidden).made_by("bert"))?;
//!
//! // Two models use it; while one of them does, it cannot be freed.
//! manager.share(id, "bert", &["classifier", "reranker"])?;
//! assert!(manager.release(id, "classifier"));
//! assert!(!manager.release(id, "classifier"), "it holds none any more");
//! assert!(!manager.can_be_freed(id));
//!
//! // A view of the last row looks into the same bytes.
//! let row = manager.create_view(id, "last row", &[Span::new(1, 1), Span::new(0, 3)])?;
//! let row = manager.get("last row")?.to_tensor()?;
//! assert_eq!(row.to_vec::<f32>()?, [4.0, 5.0, 6.0]);
//!
//! assert_eq!(manager.release_model_tensors("", "reranker"), 1);
//! assert!(manager.can_be_freed(id));
//! assert_eq!(manager.stats().hit_rate, Some(1.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod families;
mod gather;
mod holds;
mod index;
mod interned;
mod key;
mod manager;
mod opportunities;
mod order;
mod recommend;
mod slots;
mod stats;
mod storage;
mod tensor;
mod transfer;
mod usage;
mod view;
mod window;

pub use error::{HeldTensor, Holder, OverBudget, SharingError};
pub use families::{Family, SharedKind};
pub use key::{Key, MAX_NAME_BYTES};
pub use manager::{Declaration, Limits, NewTensor, Source, TensorSharingManager};
pub use opportunities::{SameBytes, SharingOpportunities};
pub use recommend::Recommendation;
pub use slots::TensorId;
pub use stats::Stats;
pub use storage::{Place, Storage, UnknownStorage};
pub use tensor::SharedTensor;
pub use transfer::{Arrival, Copied, Departing, Departure, Dropped, Transfer};
pub use usage::{ModelUsage, Optimized, TensorUsage};
pub use view::SharedTensorView;
pub use window::{Layout, Span, WindowError};
