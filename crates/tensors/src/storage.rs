//! Where a tensor's bytes live.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The kind of memory that holds a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub enum Storage {
    /// Ordinary memory.
    Cpu,
    /// A GPU buffer; also called `gpu`.
    WebGpu,
    /// An ML tensor of WebNN.
    WebNn,
}

impl Storage {
    /// Every storage.
    pub const ALL: [Storage; 3] = [Storage::Cpu, Storage::WebGpu, Storage::WebNn];

    /// Its name: `cpu`, `webgpu` or `webnn`.
    pub fn name(self) -> &'static str {
        match self {
            Storage::Cpu => "cpu",
            Storage::WebGpu => "webgpu",
            Storage::WebNn => "webnn",
        }
    }
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no storage of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no storage `{0}`; there are `cpu`, `webgpu` (or `gpu`) and `webnn`")]
pub struct UnknownStorage(pub String);

impl FromStr for Storage {
    type Err = UnknownStorage;

    fn from_str(name: &str) -> Result<Storage, UnknownStorage> {
        if name == "gpu" {
            return Ok(Storage::WebGpu);
        }
        let named = Storage::ALL.into_iter().find(|storage| storage.name() == name);
        named.ok_or_else(|| UnknownStorage(name.to_owned()))
    }
}

impl From<Storage> for &'static str {
    fn from(storage: Storage) -> &'static str {
        storage.name()
    }
}

impl TryFrom<String> for Storage {
    type Error = UnknownStorage;

    fn try_from(name: String) -> Result<Storage, UnknownStorage> {
        name.parse()
    }
}

/// Where a tensor's bytes are: in this process, or on a device that only its owner can reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In this process. The storage is [`Storage::Cpu`].
    Host,
    /// On a device.
    Device {
        /// What the owner of the device calls it.
        device: Arc<str>,
        /// Which of the device's memories. A lane of WebAssembly has [`Storage::Cpu`].
        storage: Storage,
    },
}

impl Place {
    /// A place on a device.
    pub fn device(device: &str, storage: Storage) -> Place {
        Place::Device { device: device.into(), storage }
    }

    /// The kind of memory.
    pub fn storage(&self) -> Storage {
        match self {
            Place::Host => Storage::Cpu,
            Place::Device { storage, .. } => *storage,
        }
    }

    /// Whether the bytes are in this process.
    pub fn is_host(&self) -> bool {
        *self == Place::Host
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Host => f.write_str("host"),
            Place::Device { device, storage } => write!(f, "{storage} of {device}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_gpu_is_an_alias() {
        for storage in Storage::ALL {
            assert_eq!(storage.name().parse(), Ok(storage));
        }
        assert_eq!("gpu".parse(), Ok(Storage::WebGpu));
    }

    #[test]
    fn other_names_are_refused() {
        for name in ["", "GPU", "cuda", "wasm"] {
            let error = name.parse::<Storage>().unwrap_err();
            assert!(error.to_string().contains("`webnn`"), "{error}");
        }
    }
}
