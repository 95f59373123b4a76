//! What is known of a device before anything ran on it.

use serde::{Deserialize, Serialize};

/// A device, as far as costs depend on it. Measurements of one device say nothing of another;
/// lanes of the same browser, backend and adapter count as one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceProfile {
    /// What measurements are kept under: backend, engine, adapter and threads.
    pub key: String,
    /// `cpu`, `wasm`, `webgpu` or `webnn`.
    pub backend: String,
    /// What the hardware calls itself.
    pub adapter: String,
    /// Whether the adapter is software that pretends to be hardware.
    pub software_adapter: bool,
    /// Programs that run at the same time, over all devices of this kind that are there.
    pub slots: usize,
    /// Threads that one program computes with.
    pub threads: usize,
    /// Cores that the threads of all programs share.
    pub cores: usize,
    /// What a calibration measured; `None` if there was none.
    pub rates: Option<Rates>,
}

/// What a short calibration measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Operations a second of a large matrix product.
    pub matmul_flops: f64,
    /// Bytes a second that element-wise work reads and writes.
    pub memory_bytes_per_second: f64,
    /// Seconds that the smallest possible step takes.
    pub launch_seconds: f64,
    /// Bytes a second to the device.
    pub upload_bytes_per_second: f64,
    /// Bytes a second back.
    pub download_bytes_per_second: f64,
}

#[cfg(test)]
impl DeviceProfile {
    /// One core of a machine with two, without a calibration.
    pub(crate) fn made_up(backend: &str) -> DeviceProfile {
        DeviceProfile {
            key: backend.to_owned(),
            backend: backend.to_owned(),
            adapter: String::new(),
            software_adapter: false,
            slots: 1,
            threads: 1,
            cores: 2,
            rates: None,
        }
    }
}
