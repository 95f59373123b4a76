//! What the demo ran on and with.

use holdfast_devices::Device;
use holdfast_devices::cpu::CpuEngine;
use serde_json::{Value, json};

/// A machine and the versions on it.
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    /// Where the system tells.
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) system: String,
    pub(crate) holdfast: &'static str,
    pub(crate) engine: String,
}

impl Machine {
    /// This one.
    pub(crate) fn this(engine: &CpuEngine) -> Machine {
        let info = engine.info();
        Machine {
            processor: info.adapter.clone(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_bytes(),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            holdfast: env!("CARGO_PKG_VERSION"),
            engine: info.engine.clone(),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "processor": self.processor,
            "cores": self.cores,
            "memory_bytes": self.memory_bytes,
            "system": self.system,
            "holdfast": self.holdfast,
            "cpu_engine": self.engine,
        })
    }
}

fn memory_bytes() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}
