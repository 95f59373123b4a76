//! Shared tensors on disk: what is saved here is there again after a restart, under its name.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use holdfast_graph::Tensor;
use holdfast_models::StoreError;
use holdfast_models::tensors::{Compression, SavedLimits, SavedTensor, SavedTensors};
use holdfast_tensors::{Key, SharingError, TensorId};
use tokio::sync::OnceCell;

use super::{Home, Moving, SharedTensorError, SharedTensors};

/// How a tensor is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaveOptions {
    /// Whether it is made smaller.
    pub compression: Compression,
}

impl Default for SaveOptions {
    /// As it is: weights and activations hardly get smaller.
    fn default() -> SaveOptions {
        SaveOptions { compression: Compression::None }
    }
}

/// The folder of saved tensors, opened by whoever needs it first.
pub(super) struct Saved {
    folder: PathBuf,
    limits: SavedLimits,
    opened: OnceCell<Arc<SavedTensors>>,
}

impl Saved {
    pub(super) fn new(folder: PathBuf, limits: SavedLimits) -> Saved {
        Saved { folder, limits, opened: OnceCell::new() }
    }

    /// Works with the folder, where waiting for a disk holds up nobody.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SavedTensors) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, SharedTensorError> {
        let open = || async {
            let (folder, limits) = (self.folder.clone(), self.limits.clone());
            blocking(move || {
                let saved = SavedTensors::open(folder, limits)?;
                saved.expire(SystemTime::now())?;
                Ok(Arc::new(saved))
            })
            .await
        };
        let saved = self.opened.get_or_try_init(open).await?.clone();
        blocking(move || work(&saved)).await
    }
}

impl SharedTensors {
    /// Saves a tensor, or what a view shows, in place of what was saved under its name. What is too
    /// old goes, and the oldest where there is no room.
    pub async fn save(
        &self,
        home: &Home,
        id: TensorId,
        options: SaveOptions,
    ) -> Result<SavedTensor, SharedTensorError> {
        let mut name = (String::new(), String::new());
        let moving = Moving::begin(self, home, |manager| {
            let tensor = manager.tensor(id).ok_or(SharingError::Gone { id })?;
            name = (tensor.namespace().to_owned(), tensor.name().to_owned());
            manager.depart(id)
        })?;
        let departure = moving.departure(id)?;
        let bytes = self.read(home, departure).await?;
        let tensor = Tensor::new(departure.dtype, departure.dims.clone(), bytes)?;
        let (namespace, name) = name;
        let save = move |saved: &SavedTensors| {
            let now = SystemTime::now();
            saved.expire(now)?;
            saved.save(&namespace, &name, &tensor, options.compression, now)
        };
        self.shared.saved.with(save).await
    }

    /// Brings a saved tensor back to this process, under its name; `None` if none was saved, or only
    /// one that is too old by now.
    pub async fn restore(&self, key: Key<'_>) -> Result<Option<TensorId>, SharedTensorError> {
        let (namespace, name) = (key.namespace.to_owned(), key.name.to_owned());
        let load = move |saved: &SavedTensors| saved.load(&namespace, &name, SystemTime::now());
        let Some(tensor) = self.shared.saved.with(load).await? else { return Ok(None) };
        let id = self.with(&Home::Host, |manager| manager.register(key, tensor.into())).await??;
        Ok(Some(id))
    }

    /// The saved tensors of a namespace, by name. What cannot be read is left out, and named in the
    /// log.
    pub async fn saved(&self, namespace: &str) -> Result<Vec<SavedTensor>, SharedTensorError> {
        let namespace = namespace.to_owned();
        let list = move |saved: &SavedTensors| {
            saved.expire(SystemTime::now())?;
            saved.list(&namespace)
        };
        let (found, unreadable) = self.shared.saved.with(list).await?;
        for error in unreadable {
            tracing::warn!("a saved tensor is left out: {}", crate::pool::explain(&error));
        }
        Ok(found)
    }

    /// Removes a saved tensor, damaged or not. False if there was none.
    pub async fn remove_saved(&self, key: Key<'_>) -> Result<bool, SharedTensorError> {
        let (namespace, name) = (key.namespace.to_owned(), key.name.to_owned());
        self.shared.saved.with(move |saved| saved.remove(&namespace, &name)).await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, SharedTensorError> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|error| SharedTensorError::Ended(error.to_string()))??)
}
