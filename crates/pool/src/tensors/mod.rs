//! Shared tensors with their bytes where they belong: in this process, or on a device of the pool.
//!
//! The rules are those of `holdfast_tensors`, with one manager for the host and one for each
//! device. This carries out what they only decide: bytes travel to devices and back, and what was
//! freed here is let go there.

mod saved;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use holdfast_devices::{DeviceError, ErrorKind, Window};
use holdfast_graph::{DataType, Tensor, TensorError};
use holdfast_models::StoreError;
use holdfast_models::tensors::SavedLimits;
use holdfast_tensors::{
    Arrival, Declaration, Departing, Departure, Dropped, Key, Layout, Limits, Place, SharingError,
    Storage, TensorId, TensorSharingManager,
};
use holdfast_wire::Backend;
use tokio::time::Instant;

use crate::choice::Choice;
use crate::pool::lock;
use crate::scheduler::Scheduler;
use crate::scheduler::member::{Host, MemberId};
use saved::Saved;

pub use saved::SaveOptions;

/// Where shared tensors are: in this process, or on the device of this name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Home {
    /// In this process.
    Host,
    /// On a device of the pool.
    Device(String),
}

/// Why something could not be done with a shared tensor.
#[derive(Debug, thiserror::Error)]
pub enum SharedTensorError {
    /// The rules do not allow it, or there is no room.
    #[error(transparent)]
    Sharing(#[from] SharingError),
    /// There is no such device.
    #[error("no device `{0}` is there; `holdfast pool` lists them")]
    NoDevice(String),
    /// The device failed.
    #[error("the tensor could not be moved: {0}")]
    Device(#[from] DeviceError),
    /// The disk failed, or what is on it is damaged.
    #[error(transparent)]
    Disk(#[from] StoreError),
    /// Work came to no end.
    #[error("it ended before it was done: {0}")]
    Ended(String),
    /// What the device gave is not what it was said to be.
    #[error("the device gave something else: {0}")]
    Tensor(#[from] TensorError),
}

/// The shared tensors of a pool. Cheap to clone: clones are the same.
#[derive(Clone)]
pub struct SharedTensors {
    shared: Arc<Shared>,
}

struct Shared {
    scheduler: Scheduler,
    since: Instant,
    limits: Limits,
    saved: Saved,
    /// One for the host, and one for each device that is there and was asked for. Never held while
    /// anything is awaited.
    managers: Mutex<HashMap<Home, Managed>>,
}

/// The manager of a home.
struct Managed {
    manager: TensorSharingManager,
    /// Which device it is for; `None` for the host.
    of: Option<Incarnation>,
}

/// A device from one loss of all that it had to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Incarnation {
    member: MemberId,
    losses: u64,
}

impl SharedTensors {
    /// Those that are saved are in a folder, which is made once it is needed.
    pub(crate) fn new(
        scheduler: Scheduler,
        limits: Limits,
        folder: PathBuf,
        on_disk: SavedLimits,
    ) -> SharedTensors {
        let (since, managers) = (Instant::now(), Mutex::default());
        let saved = Saved::new(folder, on_disk);
        SharedTensors { shared: Arc::new(Shared { scheduler, since, limits, saved, managers }) }
    }

    /// Works with the tensors of a home. What that freed on a device goes there as well. A device
    /// that has lost what it had begins anew: ids from before mean nothing.
    pub async fn with<T>(
        &self,
        home: &Home,
        work: impl FnOnce(&mut TensorSharingManager) -> T,
    ) -> Result<T, SharedTensorError> {
        let (result, dropped) = self.change(home, work)?;
        self.drop_there(dropped).await;
        Ok(result)
    }

    /// Copies a tensor, or what a view shows, from one home to another, under a name there. The
    /// name means what it did until the copy has arrived. Dropping the future leaves all as it was.
    pub async fn copy(
        &self,
        from: &Home,
        id: TensorId,
        to: &Home,
        key: Key<'_>,
    ) -> Result<TensorId, SharedTensorError> {
        let target = self.reach(to)?;
        let mut moving = Moving::begin(self, from, |manager| manager.depart(id))?;
        let departure = moving.departure(id)?;
        let declaration = Declaration {
            dtype: departure.dtype,
            dims: departure.dims.clone(),
            place: target.as_ref().map_or(Place::Host, |target| target.place.clone()),
            producer: None,
            consumers: Vec::new(),
        };
        moving.arrive(to, key, declaration)?;
        moving.drop_there().await;
        let (Some(departure), Some((_, arrival))) = (&moving.departure, &moving.arrival) else {
            return Err(SharingError::Gone { id }.into());
        };
        let device = target.map(|target| target.device);
        let moved = self.carry(from, departure, device, arrival).await;
        if let Err(SharedTensorError::Device(error)) = &moved
            && error.kind() == ErrorKind::StateLost
        {
            // What else is gone is known before anybody asks for it.
            self.shared.scheduler.refresh();
        }
        let arrived = moving.arrived(moved?);
        moving.drop_there().await;
        arrived
    }

    /// Moves the bytes. What is to arrive on the host comes back.
    async fn carry(
        &self,
        from: &Home,
        departure: &Departure,
        device: Option<Arc<dyn Host>>,
        arrival: &Arrival,
    ) -> Result<Option<Bytes>, SharedTensorError> {
        let (Some(device), Some(target)) = (device, &arrival.device_name) else {
            return Ok(Some(self.read(from, departure).await?));
        };
        let target = holdfast_devices::TensorId(target.to_string());
        if let Departing::Device { name, window } = &departure.content
            && departure.from == arrival.to
            && (window.is_none() || !is_packed(departure.dtype))
        {
            let source = holdfast_devices::TensorId(name.to_string());
            device.copy(&source, window.as_ref().map(part).as_ref(), target).await?;
            return Ok(None);
        }
        let bytes = self.read(from, departure).await?;
        let tensor = Tensor::new(departure.dtype, departure.dims.clone(), bytes)?;
        device.put(target, tensor).await?;
        Ok(None)
    }

    /// The bytes of what departs.
    async fn read(&self, from: &Home, departure: &Departure) -> Result<Bytes, SharedTensorError> {
        let (name, window) = match &departure.content {
            Departing::Host(bytes) => return Ok(bytes.clone()),
            Departing::Device { name, window } => (name, window.as_ref()),
        };
        let no_device = || SharedTensorError::NoDevice("host".to_owned());
        let source = self.reach(from)?.ok_or_else(no_device)?.device;
        let name = holdfast_devices::TensorId(name.to_string());
        let dtype = departure.dtype;
        let read = match window.filter(|_| !is_packed(dtype)) {
            Some(layout) => {
                return Ok(source.get_window(&name, &part(layout)).await?.bytes().clone());
            }
            None => source.get(&name).await?,
        };
        Ok(window.map_or_else(|| read.bytes().clone(), |layout| layout.read(dtype, read.bytes())))
    }

    /// Works with a manager, without waiting: what has to be dropped comes back.
    fn change<T>(
        &self,
        home: &Home,
        work: impl FnOnce(&mut TensorSharingManager) -> T,
    ) -> Result<(T, Vec<Dropped>), SharedTensorError> {
        let of = self.reach(home)?.map(|reached| reached.of);
        let mut managers = lock(&self.shared.managers);
        let mut dropped = Vec::new();
        if managers.get(home).is_some_and(|managed| managed.of != of)
            && let Some(lost) = managers.remove(home)
        {
            // What came after the loss but before this is still there.
            dropped = lost.manager.into_dropped();
        }
        if !managers.contains_key(home) {
            let names = self.device_names();
            managers.retain(|home, _| match home {
                Home::Host => true,
                Home::Device(name) => names.contains(name),
            });
        }
        let new = || Managed { manager: TensorSharingManager::new(self.shared.limits.clone()), of };
        let manager = &mut managers.entry(home.clone()).or_insert_with(new).manager;
        manager.advance_to(self.shared.since.elapsed());
        let result = work(manager);
        dropped.extend(manager.take_dropped());
        Ok((result, dropped))
    }

    async fn drop_there(&self, dropped: Vec<Dropped>) {
        for Dropped { device, name } in dropped {
            if let Ok(Some(reached)) = self.reach(&Home::Device(device.to_string())) {
                // What is not there any more is gone, which is what was wanted.
                let name = holdfast_devices::TensorId(name.to_string());
                let _ = reached.device.drop_tensor(&name).await;
            }
        }
    }

    fn device_names(&self) -> HashSet<String> {
        let state = self.shared.scheduler.state();
        state.members.values().map(|member| member.info.name.clone()).collect()
    }

    /// The device of a home; `None` for the host.
    fn reach(&self, home: &Home) -> Result<Option<Reached>, SharedTensorError> {
        let Home::Device(name) = home else { return Ok(None) };
        let state = self.shared.scheduler.state();
        let member = state.members.iter().find(|(_, member)| member.info.name == *name);
        let (id, member) = member.ok_or_else(|| SharedTensorError::NoDevice(name.to_owned()))?;
        Ok(Some(Reached {
            device: member.device.clone(),
            place: Place::device(name, storage_of(member.options.choice)),
            of: Incarnation { member: *id, losses: member.losses },
        }))
    }
}

/// A device, and what its memory is.
struct Reached {
    device: Arc<dyn Host>,
    place: Place,
    of: Incarnation,
}

/// A tensor that is on its way. However that ends, even if nobody waits for it any more, managers
/// get back what they gave for it, and what is to be dropped on devices is dropped.
struct Moving<'a> {
    tensors: &'a SharedTensors,
    from: &'a Home,
    departure: Option<Departure>,
    arrival: Option<(&'a Home, Arrival)>,
    dropped: Vec<Dropped>,
}

impl<'a> Moving<'a> {
    fn begin(
        tensors: &'a SharedTensors,
        from: &'a Home,
        depart: impl FnOnce(&mut TensorSharingManager) -> Result<Departure, SharingError>,
    ) -> Result<Moving<'a>, SharedTensorError> {
        let (departure, arrival, dropped) = (None, None, Vec::new());
        let mut moving = Moving { tensors, from, departure, arrival, dropped };
        moving.departure = Some(moving.change(from, depart)??);
        Ok(moving)
    }

    /// What departs; it is there until this goes.
    fn departure(&self, id: TensorId) -> Result<&Departure, SharingError> {
        self.departure.as_ref().ok_or(SharingError::Gone { id })
    }

    fn arrive(
        &mut self,
        to: &'a Home,
        key: Key<'_>,
        declaration: Declaration,
    ) -> Result<(), SharedTensorError> {
        let arrival = self.change(to, |manager| manager.arrive(key, declaration))??;
        self.arrival = Some((to, arrival));
        Ok(())
    }

    /// The bytes are there.
    fn arrived(&mut self, bytes: Option<Bytes>) -> Result<TensorId, SharedTensorError> {
        let Some((to, arrival)) = self.arrival.take() else {
            return Err(SharedTensorError::Ended("it had arrived before".to_owned()));
        };
        let (name, place) = (arrival.device_name.clone(), arrival.to.clone());
        let arrived = self.change(to, |manager| manager.arrived(arrival, bytes))?;
        if let (Err(_), Some(name), Place::Device { device, .. }) = (&arrived, name, place) {
            // The manager may not know of it any more, if the device lost all before it came.
            self.dropped.push(Dropped { device, name });
        }
        Ok(arrived?)
    }

    fn change<T>(
        &mut self,
        home: &Home,
        work: impl FnOnce(&mut TensorSharingManager) -> T,
    ) -> Result<T, SharedTensorError> {
        let (result, dropped) = self.tensors.change(home, work)?;
        self.dropped.extend(dropped);
        Ok(result)
    }

    async fn drop_there(&mut self) {
        self.tensors.drop_there(std::mem::take(&mut self.dropped)).await;
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        // Where the home is gone, so is what it kept.
        if let Some(departure) = self.departure.take() {
            let _ = self.change(self.from, |manager| manager.departed(departure));
        }
        if let Some((to, arrival)) = self.arrival.take() {
            let _ = self.change(to, |manager| manager.abandon(arrival));
        }
        // Without a runtime, there are no devices either.
        if !self.dropped.is_empty()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (tensors, dropped) = (self.tensors.clone(), std::mem::take(&mut self.dropped));
            runtime.spawn(async move { tensors.drop_there(dropped).await });
        }
    }
}

/// Whether elements share bytes, so that devices cannot tell them apart.
fn is_packed(dtype: DataType) -> bool {
    dtype.bits().is_some_and(|bits| bits < 8)
}

/// What a view shows, as devices are told.
fn part(layout: &Layout) -> Window {
    let (dims, strides) = (layout.dims().to_vec(), layout.strides().to_vec());
    Window { offset: layout.offset(), dims, strides }
}

/// What the memory of a device is.
pub(crate) fn storage_of(choice: Choice) -> Storage {
    match choice {
        Choice::Lane(Backend::Webgpu) => Storage::WebGpu,
        Choice::Lane(Backend::Webnn) => Storage::WebNn,
        Choice::Cpu | Choice::Lane(Backend::Wasm) => Storage::Cpu,
    }
}

#[cfg(test)]
mod tests;
