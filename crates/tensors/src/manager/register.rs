//! Registering tensors, declaring them, and making views of them.

use compact_str::CompactString;
use holdfast_graph::{DataType, Tensor};

use super::TensorSharingManager;
use crate::error::SharingError;
use crate::index::NameHash;
use crate::key::Key;
use crate::slots::{Content, Flags, NONE, Record, TensorId};
use crate::storage::{Place, Storage};
use crate::window::{Layout, Span};

/// A tensor to register.
#[derive(Clone, Debug)]
pub struct NewTensor {
    /// Where its bytes are.
    pub source: Source,
    /// The model that made it.
    pub producer: Option<String>,
    /// The models that it is meant for.
    pub consumers: Vec<String>,
}

/// Where the bytes of a new tensor are.
#[derive(Clone, Debug)]
pub enum Source {
    /// In this process. They are shared, not copied.
    Host(Tensor),
    /// On a device, where its owner has put them.
    Device {
        /// What the owner calls the device.
        device: String,
        /// Which of the device's memories.
        storage: Storage,
        /// What the tensor is called on the device.
        name: String,
        /// The element type.
        dtype: DataType,
        /// The dimensions.
        dims: Vec<usize>,
    },
}

impl From<Tensor> for NewTensor {
    fn from(tensor: Tensor) -> NewTensor {
        NewTensor { source: Source::Host(tensor), producer: None, consumers: Vec::new() }
    }
}

impl NewTensor {
    /// The same, made by this model.
    pub fn made_by(self, producer: &str) -> NewTensor {
        NewTensor { producer: Some(producer.to_owned()), ..self }
    }

    /// The same, meant for these models.
    pub fn meant_for(self, consumers: &[&str]) -> NewTensor {
        NewTensor { consumers: consumers.iter().map(|&model| model.to_owned()).collect(), ..self }
    }
}

/// A tensor whose bytes are yet to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The element type.
    pub dtype: DataType,
    /// The dimensions.
    pub dims: Vec<usize>,
    /// Where its bytes will be.
    pub place: Place,
    /// The model that will make it.
    pub producer: Option<String>,
    /// The models that it is meant for.
    pub consumers: Vec<String>,
}

impl TensorSharingManager {
    /// Registers a tensor under a name.
    ///
    /// If the name was declared, this is what it waited for: who holds the declaration holds the
    /// tensor. If the name is in use, this is its next version: the old one is freed, or stays
    /// with those who hold it until they let go. If there is no room, idle tensors go, those that
    /// were not used for the longest time first; if that is not enough, nothing is changed.
    pub fn register<'k>(
        &mut self,
        key: impl Into<Key<'k>>,
        new: NewTensor,
    ) -> Result<TensorId, SharingError> {
        let key = key.into();
        let (mut record, bytes) = prepare(key, new.source)?;
        record.producer = new.producer.map(CompactString::from);
        record.consumers = new.consumers.into_iter().map(CompactString::from).collect();
        let hash = self.hash(key);
        let old = self.current(key, hash);
        if let Some(declared) = self.declared(key, old, &record)? {
            self.check_room(key, bytes, false)?;
            self.make_room(bytes, false);
            self.fulfil(declared, record, bytes);
            return Ok(self.slots.id(declared));
        }
        self.check_room(key, bytes, true)?;
        self.replace(old, &mut record);
        self.make_room(bytes, true);
        let slot = self.add(key, hash, record, bytes);
        self.slots[slot].flags.set(Flags::READY, true);
        self.publish(slot);
        Ok(self.slots.id(slot))
    }

    /// Declares a tensor: its name can be looked up, held and viewed before its bytes arrive.
    /// Declaring the same again changes nothing.
    pub fn declare<'k>(
        &mut self,
        key: impl Into<Key<'k>>,
        declaration: Declaration,
    ) -> Result<TensorId, SharingError> {
        let key = key.into();
        let Declaration { dtype, dims, place, producer, consumers } = declaration;
        checked_byte_len(key, dtype, &dims)?;
        let mut record = Record::new(dtype, &dims, place, Content::Awaited);
        record.producer = producer.map(CompactString::from);
        record.consumers = consumers.into_iter().map(CompactString::from).collect();
        let hash = self.hash(key);
        let old = self.current(key, hash);
        if let Some(declared) = self.declared(key, old, &record)? {
            self.touch(declared);
            return Ok(self.slots.id(declared));
        }
        if old.is_some() {
            return Err(SharingError::AlreadyThere { name: key.name.to_owned() });
        }
        self.check_room(key, 0, true)?;
        self.make_room(0, true);
        let slot = self.add(key, hash, record, 0);
        self.counters.declared += 1;
        self.publish(slot);
        Ok(self.slots.id(slot))
    }

    /// Makes a view: a window into a tensor, or into what another view shows, under a name of its
    /// own in the same namespace. It copies nothing. Whoever holds the view keeps the tensor; an
    /// idle view goes with its tensor.
    pub fn create_view(
        &mut self,
        of: TensorId,
        name: &str,
        spans: &[Span],
    ) -> Result<TensorId, SharingError> {
        let parent = self.resolve(of)?;
        let root = self.root_of(parent);
        let layout = self.layout(parent).window(spans);
        let layout =
            layout.map_err(|source| SharingError::Window { name: self.name_of(parent), source })?;
        let namespace = CompactString::from(self.namespace_of(root));
        let key = Key::new(&namespace, name);
        if !key.is_plain() {
            return Err(SharingError::BadName { name: name.to_owned() });
        }
        let hash = self.hash(key);
        let old = self.current(key, hash);
        if old == Some(root) {
            // The tensor would go as its own view takes its name.
            return Err(SharingError::AlreadyThere { name: name.to_owned() });
        }
        self.touch(parent);
        self.keep(root);
        let room = self.check_room(key, 0, true);
        if room.is_ok() {
            let from = self.slots.record(root);
            let mut record =
                Record::new(from.dtype, layout.dims(), from.place.clone(), Content::Awaited);
            record.content = Content::View { root, layout: Box::new(layout) };
            self.replace(old, &mut record);
            self.make_room(0, true);
            let slot = self.add(key, hash, record, 0);
            self.slots[slot].flags.set(Flags::VIEW, true);
            self.link_view(root, slot);
            self.publish(slot);
        }
        let made = self.slots.record(root).first_view;
        self.let_go(root);
        room.map(|()| self.slots.id(made))
    }

    /// Where the elements of a tensor or view lie.
    pub(crate) fn layout(&self, slot: u32) -> Layout {
        let record = self.slots.record(slot);
        match &record.content {
            Content::View { layout, .. } => (**layout).clone(),
            _ => Layout::whole(&record.dims),
        }
    }

    /// The declaration that waits for such a tensor; an error if it waits for another.
    pub(super) fn declared(
        &self,
        key: Key<'_>,
        old: Option<u32>,
        new: &Record,
    ) -> Result<Option<u32>, SharingError> {
        let Some(old) = old else { return Ok(None) };
        let record = self.slots.record(old);
        if !matches!(record.content, Content::Awaited) {
            return Ok(None);
        }
        let same =
            record.dtype == new.dtype && record.dims == new.dims && record.place == new.place;
        if same {
            return Ok(Some(old));
        }
        let describe = |record: &Record| {
            format!("{}{:?} on {}", record.dtype, record.dims.as_slice(), record.place)
        };
        Err(SharingError::DeclaredOtherwise {
            name: key.name.to_owned(),
            declared: describe(record),
            given: describe(new),
        })
    }

    /// Gives a declared tensor its bytes.
    pub(super) fn fulfil(&mut self, slot: u32, new: Record, bytes: u64) {
        self.counters.declared -= 1;
        self.counters.bytes += bytes;
        let record = self.slots.record_mut(slot);
        record.content = new.content;
        if new.producer.is_some() {
            record.producer = new.producer;
        }
        for consumer in new.consumers {
            if !record.consumers.contains(&consumer) {
                record.consumers.push(consumer);
            }
        }
        self.unlist(slot);
        self.slots.set_byte_len(slot, bytes);
        self.slots[slot].flags.set(Flags::READY, true);
        self.list_anew(slot);
    }

    /// Takes the name from its old version, if there is one.
    pub(super) fn replace(&mut self, old: Option<u32>, new: &mut Record) {
        if let Some(old) = old {
            new.version = self.slots.record(old).version.saturating_add(1);
            self.supersede(old);
        }
    }

    /// Puts a record into a slot, in no list and under no name yet.
    pub(super) fn add(&mut self, key: Key<'_>, hash: NameHash, record: Record, bytes: u64) -> u32 {
        let namespace = self.namespaces.add_use(&self.hasher, 0, key.namespace);
        let slot = self.slots.insert(namespace, key.name, hash, record);
        self.slots.set_byte_len(slot, bytes);
        self.counters.bytes += bytes;
        slot
    }

    /// From here on, the name means this slot.
    pub(super) fn publish(&mut self, slot: u32) {
        self.slots[slot].flags.set(Flags::CURRENT, true);
        self.names.insert(self.slots[slot].hash, slot);
        self.list_anew(slot);
    }

    fn link_view(&mut self, root: u32, view: u32) {
        self.counters.views += 1;
        let record = self.slots.record_mut(root);
        record.views += 1;
        let next = std::mem::replace(&mut record.first_view, view);
        self.slots.record_mut(view).next_view = next;
        if next != NONE {
            self.slots.record_mut(next).previous_view = view;
        }
    }
}

/// A record of a new tensor, and the bytes that it takes.
fn prepare(key: Key<'_>, source: Source) -> Result<(Record, u64), SharingError> {
    Ok(match source {
        Source::Host(tensor) => {
            let bytes = checked_byte_len(key, tensor.dtype(), tensor.dims())?;
            let mut record =
                Record::new(tensor.dtype(), tensor.dims(), Place::Host, Content::Awaited);
            // Not a share of them: its counter would be memory of its own.
            record.content = Content::Host(tensor.into_bytes());
            (record, bytes)
        }
        Source::Device { device, storage, name, dtype, dims } => {
            let bytes = checked_byte_len(key, dtype, &dims)?;
            let content = Content::Device(name.into());
            (Record::new(dtype, &dims, Place::device(&device, storage), content), bytes)
        }
    })
}

/// Checks what callers say about a tensor, and returns the bytes that it takes.
pub(super) fn checked_byte_len(
    key: Key<'_>,
    dtype: DataType,
    dims: &[usize],
) -> Result<u64, SharingError> {
    if !key.is_plain() {
        return Err(SharingError::BadName { name: key.name.to_owned() });
    }
    if dtype.bits().is_none() {
        return Err(SharingError::NoFixedSize { dtype });
    }
    // An overflow must not hide behind a zero: [2^40, 2^40, 0].
    let nonzero = dims.iter().filter(|&&dim| dim != 0);
    let most = nonzero.fold(1u64, |product, &dim| product.saturating_mul(dim as u64));
    let too_many = || {
        let dims = dims.iter().map(|&dim| dim as i64).collect();
        let source = holdfast_graph::TensorError::TooManyElements(dims);
        SharingError::Tensor { name: key.name.to_owned(), source }
    };
    if most > i64::MAX as u64 {
        return Err(too_many());
    }
    let elements = if dims.contains(&0) { 0 } else { most };
    dtype.byte_len(elements).ok_or_else(too_many)
}
