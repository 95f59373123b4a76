//! Copies, within one manager and between two.

use std::sync::Arc;

use bytes::Bytes;

use super::TensorSharingManager;
use super::register::{Declaration, NewTensor, checked_byte_len};
use crate::error::SharingError;
use crate::key::Key;
use crate::slots::{Content, Flags, Record, TensorId};
use crate::storage::Place;
use crate::transfer::{Arrival, Copied, Departing, Departure, Transfer};

impl TensorSharingManager {
    /// Copies a tensor, or what a view shows, to a place under a name. From the host to the host
    /// this happens at once; to or from a device, the owner has to carry out the transfer.
    pub fn copy_to<'k>(
        &mut self,
        id: TensorId,
        key: impl Into<Key<'k>>,
        to: Place,
    ) -> Result<Copied, SharingError> {
        let key = key.into();
        if to.is_host()
            && let Some(slot) = self.slots.resolve(id)
            && let Some(bytes) = self.copied_bytes(slot)
        {
            let Record { dtype, ref dims, .. } = *self.slots.record(slot);
            let tensor = holdfast_graph::Tensor::new(dtype, dims.to_vec(), bytes)
                .map_err(|source| SharingError::Tensor { name: key.name.to_owned(), source })?;
            self.begin_transfer(slot);
            let copied = self.register(key, NewTensor::from(tensor));
            self.end_transfer(slot);
            return copied.map(Copied::Done);
        }
        let departure = self.depart(id)?;
        let target = Declaration {
            dtype: departure.dtype,
            dims: departure.dims.clone(),
            place: to,
            producer: None,
            consumers: Vec::new(),
        };
        match self.arrive(key, target) {
            Ok(arrival) => Ok(Copied::UnderWay(Box::new(Transfer { departure, arrival }))),
            Err(error) => {
                self.departed(departure);
                Err(error)
            }
        }
    }

    /// A transfer was carried out. To the host, it brings the bytes.
    pub fn complete(
        &mut self,
        transfer: Transfer,
        bytes: Option<Bytes>,
    ) -> Result<TensorId, SharingError> {
        self.departed(transfer.departure);
        self.arrived(transfer.arrival, bytes)
    }

    /// A transfer could not be carried out. All is as before it was asked for.
    pub fn fail(&mut self, transfer: Transfer) {
        self.departed(transfer.departure);
        self.abandon(transfer.arrival);
    }

    /// The first half of a copy to another manager: keeps the source and says how to read it.
    pub fn depart(&mut self, id: TensorId) -> Result<Departure, SharingError> {
        let slot = self.resolve(id)?;
        let root = self.root_of(slot);
        let layout = self.layout(slot);
        let record = self.slots.record(root);
        let is_view = root != slot;
        let content = match &record.content {
            Content::Host(bytes) if !is_view => Departing::Host(bytes.clone()),
            Content::Host(bytes) => Departing::Host(layout.read(record.dtype, bytes)),
            Content::Device(name) => {
                Departing::Device { name: name.clone(), window: is_view.then(|| layout.clone()) }
            }
            Content::Awaited | Content::View { .. } => {
                return Err(SharingError::NotReady { name: self.name_of(slot) });
            }
        };
        let departure = Departure {
            source: id,
            dtype: record.dtype,
            dims: layout.dims().to_vec(),
            byte_len: record.dtype.byte_len(layout.elements() as u64).unwrap_or_default(),
            from: record.place.clone(),
            content,
        };
        self.begin_transfer(slot);
        Ok(departure)
    }

    /// The source of a copy is no longer needed.
    pub fn departed(&mut self, departure: Departure) {
        if let Some(slot) = self.slots.resolve(departure.source) {
            self.end_transfer(slot);
        }
    }

    /// The second half of a copy from another manager: reserves room for it. The name means what
    /// it did until the copy has arrived.
    pub fn arrive<'k>(
        &mut self,
        key: impl Into<Key<'k>>,
        target: Declaration,
    ) -> Result<Arrival, SharingError> {
        let key = key.into();
        let Declaration { dtype, dims, place, producer, consumers } = target;
        let byte_len = checked_byte_len(key, dtype, &dims)?;
        let mut record = Record::new(dtype, &dims, place.clone(), Content::Awaited);
        record.producer = producer.map(Into::into);
        record.consumers = consumers.into_iter().map(Into::into).collect();
        record.transfers = 1;
        let hash = self.hash(key);
        self.declared(key, self.current(key, hash), &record)?;
        self.check_room(key, byte_len, true)?;
        self.make_room(byte_len, true);
        let slot = self.add(key, hash, record, byte_len);
        self.counters.arriving += 1;
        self.counters.arriving_bytes += byte_len;
        self.slots[slot].flags.set(Flags::ARRIVING, true);
        let target = self.slots.id(slot);
        let device_name = (!place.is_host()).then(|| Arc::from(format!("shared-{target}")));
        if let Some(name) = &device_name {
            self.slots.record_mut(slot).content = Content::Device(Arc::clone(name));
        }
        self.keep(slot);
        Ok(Arrival { target, to: place, byte_len, device_name })
    }

    /// A copy has arrived: its name means it from now on. To the host, it brings the bytes; if
    /// these are not as many as they have to be, the copy counts as abandoned.
    pub fn arrived(
        &mut self,
        arrival: Arrival,
        bytes: Option<Bytes>,
    ) -> Result<TensorId, SharingError> {
        let slot = self.resolve(arrival.target)?;
        let found = bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        if arrival.to.is_host() && found != arrival.byte_len {
            let expected = arrival.byte_len;
            self.abandon(arrival);
            return Err(SharingError::WrongLength { expected, found });
        }
        let name = compact_str::CompactString::from(self.slots.name(slot));
        let namespace = compact_str::CompactString::from(self.namespace_of(slot));
        let key = Key::new(&namespace, &name);
        let old = self.current(key, self.slots[slot].hash);
        let declared = match self.declared(key, old, self.slots.record(slot)) {
            Ok(declared) => declared,
            Err(error) => {
                self.abandon(arrival);
                return Err(error);
            }
        };
        let record = self.slots.record_mut(slot);
        if let (Place::Host, Some(bytes)) = (&arrival.to, bytes) {
            record.content = Content::Host(bytes);
        }
        record.transfers = 0;
        if let Some(declared) = declared {
            // The declaration keeps its id and its holders; the arrival was only a place for it.
            let content = std::mem::replace(&mut record.content, Content::Awaited);
            let (dtype, dims) = (record.dtype, record.dims.clone());
            let new = Record::new(dtype, &dims, arrival.to, content);
            self.let_go(slot);
            self.fulfil(declared, new, arrival.byte_len);
            return Ok(self.slots.id(declared));
        }
        if let Some(old) = old {
            let version = self.slots.record(old).version.saturating_add(1);
            self.slots.record_mut(slot).version = version;
            self.supersede(old);
        }
        self.counters.arriving -= 1;
        self.counters.arriving_bytes -= arrival.byte_len;
        let flags = &mut self.slots[slot].flags;
        flags.set(Flags::ARRIVING, false);
        flags.set(Flags::READY, true);
        self.publish(slot);
        self.let_go(slot);
        Ok(arrival.target)
    }

    /// A copy will not arrive. Its room is free again. What a device may have of it is among
    /// what has to be dropped there.
    pub fn abandon(&mut self, arrival: Arrival) {
        if let Some(slot) = self.slots.resolve(arrival.target) {
            self.let_go(slot);
        }
    }

    /// A copy of what a tensor or view of the host shows. The bytes themselves are not shared
    /// meanwhile: to count that would mean one more look into memory.
    fn copied_bytes(&self, slot: u32) -> Option<Bytes> {
        let root = self.root_of(slot);
        let record = self.slots.record(root);
        match &record.content {
            Content::Host(bytes) if root == slot => Some(Bytes::copy_from_slice(bytes)),
            Content::Host(bytes) => {
                Some(Bytes::copy_from_slice(&self.layout(slot).read(record.dtype, bytes)))
            }
            _ => None,
        }
    }

    /// Keeps what is copied, and what a view looks into.
    fn begin_transfer(&mut self, slot: u32) {
        let root = self.root_of(slot);
        for slot in [Some(slot), (root != slot).then_some(root)].into_iter().flatten() {
            self.slots.record_mut(slot).transfers += 1;
            self.keep(slot);
        }
    }

    fn end_transfer(&mut self, slot: u32) {
        let root = self.root_of(slot);
        for slot in [Some(slot), (root != slot).then_some(root)].into_iter().flatten() {
            self.slots.record_mut(slot).transfers -= 1;
            self.let_go(slot);
        }
    }
}
