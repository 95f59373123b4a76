//! Shared tensors with their bytes where they belong: in this process, or on a device of the pool.
//!
//! The rules are those of `holdfast_tensors`, with one manager for the host and one for each
//! device. This carries out what they only decide: bytes travel to devices and back, and what was
//! freed here is let go there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use holdfast_devices::{DeviceError, ErrorKind};
use holdfast_graph::{Tensor, TensorError};
use holdfast_tensors::{
    Arrival, Declaration, Departing, Departure, Key, Limits, Place, SharingError, Storage,
    TensorId, TensorSharingManager,
};
use holdfast_wire::Backend;
use tokio::time::Instant;

use crate::choice::Choice;
use crate::pool::lock;
use crate::scheduler::Scheduler;
use crate::scheduler::member::Host;

/// Where shared tensors are: in this process, or on the device of this name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Home {
    /// In this process.
    Host,
    /// On a device of the pool.
    Device(String),
}

/// Why a shared tensor could not be copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The rules do not allow it, or there is no room.
    #[error(transparent)]
    Sharing(#[from] SharingError),
    /// There is no such device.
    #[error("no device `{0}` is there; `holdfast pool` lists them")]
    NoDevice(String),
    /// The device failed.
    #[error("the tensor could not be moved: {0}")]
    Device(#[from] DeviceError),
    /// What the device gave is not what it was said to be.
    #[error("the device gave something else: {0}")]
    Tensor(#[from] TensorError),
}

/// The shared tensors of a pool.
pub struct SharedTensors {
    scheduler: Scheduler,
    since: Instant,
    limits: Limits,
    /// Never held while anything is awaited.
    managers: Mutex<HashMap<Home, TensorSharingManager>>,
}

impl SharedTensors {
    pub(crate) fn new(scheduler: Scheduler, limits: Limits) -> SharedTensors {
        SharedTensors { scheduler, since: Instant::now(), limits, managers: Mutex::default() }
    }

    /// Works with the tensors of a home. What that freed on a device goes there as well.
    pub async fn with<T>(
        &self,
        home: &Home,
        work: impl FnOnce(&mut TensorSharingManager) -> T,
    ) -> T {
        let (result, dropped) = {
            let mut managers = lock(&self.managers);
            let new = || TensorSharingManager::new(self.limits.clone());
            let manager = managers.entry(home.clone()).or_insert_with(new);
            manager.advance_to(self.since.elapsed());
            let result = work(manager);
            (result, manager.take_dropped())
        };
        for dropped in dropped {
            if let Ok((device, _)) = self.device(&dropped.device) {
                // What is not there any more is gone, which is what was wanted.
                let name = holdfast_devices::TensorId(dropped.name.to_string());
                let _ = device.drop_tensor(&name).await;
            }
        }
        result
    }

    /// Copies a tensor, or what a view shows, from one home to another, under a name there. The
    /// name means what it did until the copy has arrived.
    pub async fn copy(
        &self,
        from: &Home,
        id: TensorId,
        to: &Home,
        key: Key<'_>,
    ) -> Result<TensorId, CopyError> {
        let target = self.target(to)?;
        let departure = self.with(from, |manager| manager.depart(id)).await?;
        let declaration = Declaration {
            dtype: departure.dtype,
            dims: departure.dims.clone(),
            place: target.as_ref().map_or(Place::Host, |(_, place)| place.clone()),
            producer: None,
            consumers: Vec::new(),
        };
        let arrival = self.with(to, |manager| manager.arrive(key, declaration)).await;
        let moved = match &arrival {
            Ok(arrival) => self.carry(from, &departure, target.map(|(d, _)| d), arrival).await,
            Err(_) => Ok(None),
        };
        self.with(from, |manager| manager.departed(departure)).await;
        let arrival = arrival?;
        match moved {
            Ok(bytes) => Ok(self.with(to, |manager| manager.arrived(arrival, bytes)).await?),
            Err(error) => {
                self.with(to, |manager| manager.abandon(arrival)).await;
                Err(error)
            }
        }
    }

    /// Moves the bytes. What is to arrive on the host comes back.
    async fn carry(
        &self,
        from: &Home,
        departure: &Departure,
        device: Option<Arc<dyn Host>>,
        arrival: &Arrival,
    ) -> Result<Option<Bytes>, CopyError> {
        let bytes = match (&departure.content, from) {
            (Departing::Host(bytes), _) => bytes.clone(),
            (Departing::Device { name, window }, Home::Device(source)) => {
                let (source_device, _) = self.device(source)?;
                let name = holdfast_devices::TensorId(name.to_string());
                let read = source_device.get(&name).await;
                if read.as_ref().is_err_and(|error| error.kind() == ErrorKind::StateLost) {
                    // Everything that it had is gone, so nothing of it is there to be found.
                    lock(&self.managers).remove(from);
                }
                let tensor = read?;
                match window {
                    None => tensor.bytes().clone(),
                    Some(window) => window.read(departure.dtype, tensor.bytes()),
                }
            }
            (Departing::Device { .. }, Home::Host) => {
                return Err(CopyError::NoDevice("host".to_owned()));
            }
        };
        let (Some(device), Some(name)) = (device, &arrival.device_name) else {
            return Ok(Some(bytes));
        };
        let tensor = Tensor::new(departure.dtype, departure.dims.clone(), bytes)?;
        device.put(holdfast_devices::TensorId(name.to_string()), tensor).await?;
        Ok(None)
    }

    fn target(&self, to: &Home) -> Result<Option<Reached>, CopyError> {
        match to {
            Home::Host => Ok(None),
            Home::Device(name) => self.device(name).map(Some),
        }
    }

    fn device(&self, name: &str) -> Result<Reached, CopyError> {
        let state = self.scheduler.state();
        let member = state.members.values().find(|member| member.info.name == name);
        let member = member.ok_or_else(|| CopyError::NoDevice(name.to_owned()))?;
        let storage = storage_of(member.options.choice);
        Ok((member.device.clone(), Place::device(name, storage)))
    }
}

/// A device, and what its memory is.
type Reached = (Arc<dyn Host>, Place);

/// What the memory of a device is.
pub(crate) fn storage_of(choice: Choice) -> Storage {
    match choice {
        Choice::Lane(Backend::Webgpu) => Storage::WebGpu,
        Choice::Lane(Backend::Webnn) => Storage::WebNn,
        Choice::Cpu | Choice::Lane(Backend::Wasm) => Storage::Cpu,
    }
}
