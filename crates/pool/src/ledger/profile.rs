//! A device, as far as costs depend on it.

use holdfast_devices::{Calibration, DeviceInfo};
use holdfast_predict::{DeviceProfile, Rates};

use super::sighting::is_software;
use crate::scheduler::member::Member;

/// What measurements of a device are kept under. Lanes of one browser, backend and adapter are one;
/// the adapter of a lane on WebAssembly tells its threads.
pub(super) fn key_of(info: &DeviceInfo, threads: usize) -> String {
    let kind = Member::kind_of(info);
    match info.backend.as_str() {
        "cpu" => format!("{kind}, {threads} threads"),
        _ => kind.to_string(),
    }
}

/// What is known of the devices of one kind. `slots` is how many programs they run at once.
pub(crate) fn profile(
    info: &DeviceInfo,
    threads: usize,
    slots: usize,
    rates: Option<Rates>,
) -> DeviceProfile {
    DeviceProfile {
        key: key_of(info, threads),
        backend: info.backend.clone(),
        adapter: info.adapter.clone(),
        software_adapter: is_software(info),
        slots,
        threads: match info.backend.as_str() {
            "cpu" => threads,
            "wasm" => wasm_threads(&info.adapter).unwrap_or(1),
            _ => 1,
        },
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        rates,
    }
}

/// `WebAssembly on 2 of 4 cores`: two.
fn wasm_threads(adapter: &str) -> Option<usize> {
    adapter.strip_prefix("WebAssembly on ")?.split(' ').next()?.parse().ok()
}

/// What a calibration says, for a predictor.
pub(crate) fn rates(calibration: &Calibration) -> Rates {
    Rates {
        matmul_flops: calibration.matmul_flops,
        memory_bytes_per_second: calibration.memory_bytes_per_second,
        launch_seconds: calibration.launch.as_secs_f64(),
        upload_bytes_per_second: calibration.upload_bytes_per_second,
        download_bytes_per_second: calibration.download_bytes_per_second,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_lane_are_read_off_its_adapter() {
        assert_eq!(wasm_threads("WebAssembly on 2 of 4 cores"), Some(2));
        assert_eq!(wasm_threads("google swiftshader (software adapter)"), None);
    }
}
