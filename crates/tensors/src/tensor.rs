//! A shared tensor, as one looks at it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast_graph::{DataType, Tensor};

use crate::error::{Holder, SharingError};
use crate::manager::TensorSharingManager;
use crate::slots::{Content, Flags, Record, Slot, TensorId};
use crate::storage::{Place, Storage};
use crate::view::SharedTensorView;

/// A tensor, declaration or view of a [`TensorSharingManager`].
#[derive(Clone, Copy)]
pub struct SharedTensor<'a> {
    manager: &'a TensorSharingManager,
    slot: u32,
}

impl<'a> SharedTensor<'a> {
    pub(crate) fn new(manager: &'a TensorSharingManager, slot: u32) -> SharedTensor<'a> {
        SharedTensor { manager, slot }
    }

    fn slot(&self) -> &'a Slot {
        &self.manager.slots()[self.slot]
    }

    fn record(&self) -> &'a Record {
        self.manager.slots().record(self.slot)
    }

    fn root(&self) -> &'a Record {
        self.manager.slots().record(self.manager.root_of(self.slot))
    }

    /// What identifies this version of it.
    pub fn id(&self) -> TensorId {
        self.manager.slots().id(self.slot)
    }

    /// Its name.
    pub fn name(&self) -> &'a str {
        self.manager.slots().name(self.slot)
    }

    /// The namespace of its name.
    pub fn namespace(&self) -> &'a str {
        self.manager.namespace_of(self.slot)
    }

    /// Which version of its name it is, counted from 1 for as long as the name is there.
    pub fn version(&self) -> u32 {
        self.record().version
    }

    /// Whether its name means it. Not so for an old version.
    pub fn is_current(&self) -> bool {
        self.slot().flags.has(Flags::CURRENT)
    }

    /// Whether its bytes are there. Not so for what is only declared.
    pub fn is_ready(&self) -> bool {
        self.manager.is_ready(self.slot)
    }

    /// The element type.
    pub fn dtype(&self) -> DataType {
        self.record().dtype
    }

    /// The dimensions.
    pub fn dims(&self) -> &'a [usize] {
        &self.record().dims
    }

    /// How many bytes its elements take. Those of a view are its tensor's.
    pub fn byte_len(&self) -> u64 {
        let elements = self.dims().iter().map(|&dim| dim as u64).product();
        self.dtype().byte_len(elements).unwrap_or_default()
    }

    /// Where its bytes are, or will be.
    pub fn place(&self) -> &'a Place {
        &self.root().place
    }

    /// The kind of memory.
    pub fn storage(&self) -> Storage {
        self.place().storage()
    }

    /// What the tensor, or the one that a view looks into, is called on its device.
    pub fn device_name(&self) -> Option<&'a Arc<str>> {
        match &self.root().content {
            Content::Device(name) => Some(name),
            _ => None,
        }
    }

    /// The model that made it.
    pub fn producer(&self) -> Option<&'a str> {
        self.record().producer.as_deref()
    }

    /// The models that it is meant for: those named when it was registered, and those it was
    /// shared with.
    pub fn consumers(&self) -> impl Iterator<Item = &'a str> {
        self.record().consumers.iter().map(|consumer| consumer.as_str())
    }

    /// How often a model has acquired it.
    pub fn references(&self, model: &str) -> u64 {
        let hold = self.manager.hold_of(self.slot, model);
        hold.map_or(0, |hold| self.manager.holds().get(hold).references)
    }

    /// How often all models have acquired it.
    pub fn all_references(&self) -> u64 {
        let holds = self.manager.holds().of_slot(self.manager.slots(), self.slot);
        holds.map(|hold| hold.references).sum()
    }

    /// Whether it is pinned.
    pub fn is_pinned(&self) -> bool {
        self.slot().flags.has(Flags::PINNED)
    }

    /// Whether nothing keeps it.
    pub fn can_be_freed(&self) -> bool {
        self.slot().busy == 0
    }

    /// What keeps it.
    pub fn held_by(&self) -> Vec<Holder> {
        self.manager.holders(self.slot)
    }

    /// How long ago it was last used.
    pub fn idle_for(&self) -> Duration {
        self.manager.age(self.slot)
    }

    /// Whether it is a view.
    pub fn is_view(&self) -> bool {
        self.slot().flags.has(Flags::VIEW)
    }

    /// The tensor that a view looks into; itself for a tensor.
    pub fn parent(&self) -> SharedTensor<'a> {
        SharedTensor::new(self.manager, self.manager.root_of(self.slot))
    }

    /// How many views look into it.
    pub fn views(&self) -> u32 {
        self.record().views
    }

    /// The bytes of a tensor on the host.
    pub fn bytes(&self) -> Option<&'a Bytes> {
        match &self.record().content {
            Content::Host(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// What it shows, as a value that lives on its own: a window of a tensor, or all of it.
    pub fn view(&self) -> SharedTensorView {
        SharedTensorView::new(*self, self.manager.layout(self.slot), self.parent().bytes().cloned())
    }

    /// Its elements, without a copy. A view whose elements do not lie together is refused.
    pub fn to_tensor(&self) -> Result<Tensor, SharingError> {
        match self.bytes() {
            Some(bytes) => Tensor::new(self.dtype(), self.dims().to_vec(), bytes.clone())
                .map_err(|source| SharingError::Tensor { name: self.name().to_owned(), source }),
            None => self.view().tensor(),
        }
    }
}

impl fmt::Debug for SharedTensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTensor")
            .field("name", &self.name())
            .field("version", &self.version())
            .field("dtype", &self.dtype())
            .field("dims", &self.dims())
            .field("place", &self.place())
            .field("held_by", &self.held_by())
            .finish_non_exhaustive()
    }
}
