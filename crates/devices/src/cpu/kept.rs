//! The tensors that callers left on the engine, and how many bytes they are.

use std::collections::HashMap;
use std::sync::Arc;

use super::execute::Kept;
use crate::error::{DeviceError, ErrorKind};
use crate::program::TensorId;

/// Tensors by name. Their bytes are counted as they come and go: there may be thousands, and every
/// program may add some.
#[derive(Default)]
pub(crate) struct KeptTensors {
    tensors: HashMap<TensorId, Arc<Kept>>,
    bytes: u64,
}

impl KeptTensors {
    pub(crate) fn get(&self, id: &TensorId) -> Result<Arc<Kept>, DeviceError> {
        self.tensors.get(id).cloned().ok_or_else(|| not_kept(id))
    }

    /// Keeps tensors, all or none. One of the same name is replaced.
    pub(crate) fn keep(
        &mut self,
        new: HashMap<TensorId, Arc<Kept>>,
        limit: u64,
    ) -> Result<(), DeviceError> {
        let replaced: u64 = new.keys().filter_map(|id| self.tensors.get(id)).map(bytes).sum();
        let staying = self.bytes - replaced;
        let added: u64 = new.values().map(bytes).sum();
        if staying + added > limit {
            let message = format!(
                "keeping {added} more bytes beside {staying} passes the limit of {limit}; \
                 drop {} bytes of tensors first",
                staying + added - limit
            );
            return Err(DeviceError::new(ErrorKind::Memory, message));
        }
        self.bytes = staying + added;
        self.tensors.extend(new);
        Ok(())
    }

    pub(crate) fn remove(&mut self, id: &TensorId) -> Result<Arc<Kept>, DeviceError> {
        let removed = self.tensors.remove(id).ok_or_else(|| not_kept(id))?;
        self.bytes -= removed.byte_len();
        Ok(removed)
    }

    pub(crate) fn len(&self) -> usize {
        self.tensors.len()
    }

    pub(crate) fn byte_len(&self) -> u64 {
        self.bytes
    }
}

fn bytes(kept: &Arc<Kept>) -> u64 {
    kept.byte_len()
}

fn not_kept(id: &TensorId) -> DeviceError {
    DeviceError::caller(format!("no tensor `{id}` is kept on this device"))
}
