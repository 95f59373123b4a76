//! Transfers: bytes on their way to or from a device.
//!
//! The manager reaches no device. It says what has to be moved, keeps the source and the room for
//! the target meanwhile, and is told how it went. Until then, the target's name means what it
//! meant before; if it fails, nothing is left.

use std::sync::Arc;

use bytes::Bytes;
use holdfast_graph::DataType;

use crate::slots::TensorId;
use crate::storage::Place;
use crate::window::Layout;

/// What came of asking for a copy.
#[derive(Debug)]
#[must_use = "a transfer has to be carried out, and completed or failed"]
pub enum Copied {
    /// The copy is there.
    Done(TensorId),
    /// The owner has to carry it out.
    UnderWay(Box<Transfer>),
}

/// A copy that the owner of the devices carries out. Both halves have to be given back to the
/// manager, with [`complete`](crate::TensorSharingManager::complete) or
/// [`fail`](crate::TensorSharingManager::fail): they keep the source and the room until then.
#[derive(Debug)]
#[must_use = "a transfer has to be completed or failed"]
pub struct Transfer {
    /// What is read.
    pub departure: Departure,
    /// What is written.
    pub arrival: Arrival,
}

/// The source of a copy. It stays until it has departed.
#[derive(Debug)]
#[must_use = "the source is kept until it has departed"]
pub struct Departure {
    pub(crate) source: TensorId,
    /// The element type.
    pub dtype: DataType,
    /// The dimensions.
    pub dims: Vec<usize>,
    /// How many bytes are to be moved.
    pub byte_len: u64,
    /// Where they are.
    pub from: Place,
    /// The bytes themselves, or how to read them from the device.
    pub content: Departing,
}

/// What departs.
#[derive(Debug)]
pub enum Departing {
    /// Bytes of the host.
    Host(Bytes),
    /// A tensor of the device.
    Device {
        /// What the tensor is called there.
        name: Arc<str>,
        /// The part of it that is to be read; `None` for all of it.
        window: Option<Layout>,
    },
}

/// The target of a copy. Its room is reserved until it has arrived or was abandoned.
#[derive(Debug)]
#[must_use = "room is reserved until the bytes have arrived or are abandoned"]
pub struct Arrival {
    pub(crate) target: TensorId,
    /// Where the bytes go.
    pub to: Place,
    /// How many bytes.
    pub byte_len: u64,
    /// What to call the tensor on the device; `None` on the host.
    pub device_name: Option<Arc<str>>,
}

/// A tensor that its owner has to drop on a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dropped {
    /// The device.
    pub device: Arc<str>,
    /// What the tensor is called there.
    pub name: Arc<str>,
}
