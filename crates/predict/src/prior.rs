//! What Holdfast takes for granted before anything was measured.
//!
//! Orders of magnitude for each backend, from the machines that Holdfast was written on. They are
//! only where learning starts; the intervals of an estimate that rests on them are wide.

use crate::device::{DeviceProfile, Rates};
use crate::work::INPUTS;

/// What is known of a device when nothing ran on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prior {
    pub(crate) rates: Rates,
    /// Seconds for each node, however small.
    pub(crate) node_seconds: f64,
    /// Seconds to load a session, and for each byte of its new weights.
    pub(crate) load_seconds: f64,
    pub(crate) load_seconds_per_byte: f64,
    /// Seconds that a first run takes in any case, and how often as long as another one.
    pub(crate) first_run_seconds: f64,
    pub(crate) first_run_factor: f64,
    /// Bytes of the process or browser with nothing loaded.
    pub(crate) base_bytes: f64,
    /// Bytes in memory for each byte of weights: the packed copies count too.
    pub(crate) packing: f64,
    /// The same for tables that rows are picked from.
    pub(crate) table_part: f64,
    /// Bytes of a session apart from its weights.
    pub(crate) session_bytes: f64,
}

impl Prior {
    pub(crate) fn of(profile: &DeviceProfile) -> Prior {
        let threads = profile.threads.clamp(1, 64) as f64;
        let mut prior = Prior::of_backend(&profile.backend, threads, profile.software_adapter);
        if let Some(rates) = profile.rates {
            prior.rates = or_shipped(rates, prior.rates);
        }
        prior
    }

    /// What ships for a backend. One that is not known is taken for `wasm`, the slowest.
    fn of_backend(backend: &str, threads: f64, software: bool) -> Prior {
        let cpu = Prior {
            rates: Rates {
                matmul_flops: 4e10 * threads,
                memory_bytes_per_second: 6e9 * threads.sqrt(),
                launch_seconds: 3e-5,
                upload_bytes_per_second: 5e9,
                download_bytes_per_second: 5e9,
            },
            node_seconds: 3e-6,
            load_seconds: 0.02,
            load_seconds_per_byte: 1.5e-9,
            first_run_seconds: 1e-3,
            first_run_factor: 1.3,
            base_bytes: 80e6,
            packing: 1.3,
            // Their file is mapped.
            table_part: 0.1,
            session_bytes: 2e6,
        };
        let wasm = Prior {
            rates: Rates {
                matmul_flops: 1.2e10 * threads,
                memory_bytes_per_second: 3e9 * threads.sqrt(),
                launch_seconds: 3e-4,
                upload_bytes_per_second: 2.5e8,
                download_bytes_per_second: 2.5e8,
            },
            node_seconds: 6e-6,
            load_seconds: 0.15,
            load_seconds_per_byte: 6e-9,
            first_run_seconds: 5e-3,
            first_run_factor: 1.3,
            base_bytes: 350e6,
            packing: 1.7,
            table_part: 1.2,
            session_bytes: 4e6,
        };
        let gpu = Prior {
            rates: Rates {
                matmul_flops: if software { 1e10 } else { 1e12 },
                memory_bytes_per_second: if software { 4e9 } else { 1e11 },
                launch_seconds: 2e-3,
                upload_bytes_per_second: 2.5e8,
                download_bytes_per_second: 2.5e8,
            },
            node_seconds: if software { 6e-5 } else { 2e-5 },
            load_seconds: 0.3,
            load_seconds_per_byte: 8e-9,
            first_run_seconds: 0.5,
            first_run_factor: 2.0,
            base_bytes: 450e6,
            packing: 1.2,
            table_part: 1.2,
            session_bytes: 8e6,
        };
        match backend {
            "cpu" => cpu,
            "webgpu" | "webnn" => gpu,
            _ => wasm,
        }
    }

    /// Seconds for each unit of [`Work`](crate::work::Work).
    pub(crate) fn unit_costs(&self) -> [f64; INPUTS] {
        let flop = 1.0 / self.rates.matmul_flops;
        let byte = 1.0 / self.rates.memory_bytes_per_second;
        [
            self.rates.launch_seconds,
            self.node_seconds,
            1.3 * flop,
            2.0 * flop,
            2.0 * flop,
            6.0 * flop,
            0.5 * byte,
            1.5 * byte,
            byte,
            byte,
            2.0 * byte,
        ]
    }
}

/// A calibration that measured nothing usable for a rate leaves the shipped one.
fn or_shipped(rates: Rates, shipped: Rates) -> Rates {
    let or = |rate: f64, shipped: f64| match rate.is_finite() && rate > 0.0 {
        true => rate.clamp(shipped * 1e-4, shipped * 1e4),
        false => shipped,
    };
    Rates {
        matmul_flops: or(rates.matmul_flops, shipped.matmul_flops),
        memory_bytes_per_second: or(rates.memory_bytes_per_second, shipped.memory_bytes_per_second),
        launch_seconds: or(rates.launch_seconds, shipped.launch_seconds),
        upload_bytes_per_second: or(rates.upload_bytes_per_second, shipped.upload_bytes_per_second),
        download_bytes_per_second: or(
            rates.download_bytes_per_second,
            shipped.download_bytes_per_second,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(backend: &str, rates: Option<Rates>) -> DeviceProfile {
        DeviceProfile { rates, ..DeviceProfile::made_up(backend) }
    }

    #[test]
    fn every_backend_has_costs_above_zero() {
        for backend in ["cpu", "wasm", "webgpu", "webnn", "other"] {
            let costs = Prior::of(&profile(backend, None)).unit_costs();
            assert!(costs.iter().all(|cost| cost.is_finite() && *cost > 0.0), "{backend}");
        }
    }

    #[test]
    fn a_calibration_replaces_what_ships() {
        let mut rates = Prior::of(&profile("cpu", None)).rates;
        rates.matmul_flops = 1e11;
        assert_eq!(Prior::of(&profile("cpu", Some(rates))).rates.matmul_flops, 1e11);
    }

    #[test]
    fn a_broken_calibration_does_not() {
        let shipped = Prior::of(&profile("cpu", None));
        let nothing = Rates {
            matmul_flops: 0.0,
            memory_bytes_per_second: f64::NAN,
            launch_seconds: -1.0,
            upload_bytes_per_second: f64::INFINITY,
            download_bytes_per_second: 0.0,
        };
        assert_eq!(Prior::of(&profile("cpu", Some(nothing))), shipped);
    }
}
