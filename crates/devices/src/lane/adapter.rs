//! What a lane computes on, in words, and whether that is an accelerator.

use holdfast_wire::{Backend, Hello, WebGpuInfo, WebNnInfo};

use crate::calibration::Calibration;
use crate::cpu::Target;

/// Names under which adapters in software are known.
const SOFTWARE: [&str; 6] =
    ["swiftshader", "llvmpipe", "lavapipe", "softpipe", "basic render", "software"];

/// Below this rate a GPU is of no use as one, whatever it calls itself.
const GPU_FLOPS: f64 = 50e9;

/// What one core of a fast processor does at best.
const CORE_FLOPS: f64 = 100e9;

/// The adapter in words.
pub(crate) fn describe(hello: &Hello) -> String {
    let threads = hello.wasm.threads;
    let processor = format!("WebAssembly on {threads} of {} cores", hello.machine.cores);
    match (hello.backend, &hello.webgpu, &hello.webnn) {
        (Backend::Webgpu, WebGpuInfo::Available { vendor, architecture, device, .. }, _) => {
            let names = [vendor, architecture, device].map(String::as_str);
            let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
            // Firefox tells nothing about an adapter.
            let name = if names.is_empty() { "unnamed GPU".to_owned() } else { names.join(" ") };
            let software = if is_software(&hello.webgpu) { " (software adapter)" } else { "" };
            format!("{name}{software}")
        }
        (Backend::Webnn, _, WebNnInfo::Available { chosen, .. }) => {
            format!("WebNN, asked for {chosen}")
        }
        // A lane on a backend that its own hello calls missing is refused before this.
        _ => processor,
    }
}

/// Whether the lane computes on an accelerator: it does not say or show that it is software, and
/// its measured rate is not what a processor does.
pub(crate) fn is_accelerated(hello: &Hello, calibration: Option<&Calibration>) -> bool {
    let reaches =
        |flops| calibration.is_some_and(|measured: &Calibration| measured.matmul_flops >= flops);
    match hello.backend {
        Backend::Wasm => false,
        Backend::Webgpu => !is_software(&hello.webgpu) && reaches(GPU_FLOPS),
        // A browser opens contexts for `gpu` and `npu` that compute on the processor, and does not
        // tell. So the rate alone decides: it has to be more than the processor can do.
        Backend::Webnn => reaches(CORE_FLOPS * f64::from(hello.machine.cores.max(1))),
    }
}

/// Whether a backend that the lane claims is there by its own account.
pub(crate) fn is_there(hello: &Hello) -> bool {
    match hello.backend {
        Backend::Wasm => true,
        Backend::Webgpu => matches!(hello.webgpu, WebGpuInfo::Available { .. }),
        Backend::Webnn => matches!(hello.webnn, WebNnInfo::Available { .. }),
    }
}

/// Takes out of a hello what could do harm where it is printed, and cuts what is too long.
pub(crate) fn clean(hello: &mut Hello) {
    let clean = |text: &mut String| {
        text.retain(|c| !c.is_control());
        if let Some((end, _)) = text.char_indices().nth(200) {
            text.truncate(end);
        }
    };
    let browser = &mut hello.browser;
    [&mut browser.name, &mut browser.version, &mut browser.platform].into_iter().for_each(clean);
    match &mut hello.webgpu {
        WebGpuInfo::Available { vendor, architecture, device, description, .. } => {
            [vendor, architecture, device, description].into_iter().for_each(clean);
        }
        WebGpuInfo::Missing { reason } => clean(reason),
    }
    match &mut hello.webnn {
        WebNnInfo::Available { device_types, chosen } => {
            device_types.iter_mut().chain([chosen]).for_each(clean);
        }
        WebNnInfo::Missing { reason } => clean(reason),
    }
}

/// What graphs for a backend are lowered for.
pub(crate) fn target(backend: Backend) -> Target {
    match backend {
        Backend::Wasm => Target::Wasm,
        Backend::Webgpu => Target::WebGpu,
        Backend::Webnn => Target::WebNn,
    }
}

fn is_software(webgpu: &WebGpuInfo) -> bool {
    let WebGpuInfo::Available { vendor, architecture, device, description, fallback, .. } = webgpu
    else {
        return false;
    };
    let names = format!("{vendor} {architecture} {device} {description}").to_lowercase();
    *fallback || SOFTWARE.iter().any(|known| names.contains(known))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::hello;
    use super::*;

    fn gpu(vendor: &str, architecture: &str, fallback: bool) -> Hello {
        let webgpu = WebGpuInfo::Available {
            vendor: vendor.into(),
            architecture: architecture.into(),
            device: String::new(),
            description: String::new(),
            fallback,
            features: vec![],
            limits: Default::default(),
        };
        Hello { webgpu, ..hello(Backend::Webgpu) }
    }

    fn at(gigaflops: f64) -> Calibration {
        Calibration {
            memory_bytes_per_second: 1e9,
            matmul_flops: gigaflops * 1e9,
            launch: Duration::from_micros(50),
            upload_bytes_per_second: 1e9,
            download_bytes_per_second: 1e9,
        }
    }

    #[test]
    fn a_software_adapter_is_called_one() {
        let hello = gpu("google", "swiftshader", true);
        assert_eq!(describe(&hello), "google swiftshader (software adapter)");
        assert!(!is_accelerated(&hello, Some(&at(1000.0))));
        assert!(!is_accelerated(&gpu("mesa", "llvmpipe", false), Some(&at(1000.0))));
        assert!(!is_accelerated(&gpu("nvidia", "ampere", true), Some(&at(1000.0))));
    }

    #[test]
    fn an_adapter_that_is_not_named_is_called_so() {
        assert_eq!(describe(&gpu("", "", true)), "unnamed GPU (software adapter)");
        assert_eq!(describe(&gpu("", "", false)), "unnamed GPU");
    }

    #[test]
    fn hardware_is_believed_once_it_was_measured() {
        let hello = gpu("nvidia", "ampere", false);
        assert_eq!(describe(&hello), "nvidia ampere");
        assert!(is_accelerated(&hello, Some(&at(1000.0))));
        assert!(!is_accelerated(&hello, Some(&at(1.0))));
        assert!(!is_accelerated(&hello, None));
    }

    #[test]
    fn webnn_has_to_be_faster_than_all_cores_together() {
        let hello = hello(Backend::Webnn);
        assert!(!is_accelerated(&hello, Some(&at(150.0))));
        assert!(is_accelerated(&hello, Some(&at(250.0))));
    }

    #[test]
    fn what_a_browser_calls_itself_cannot_reach_the_terminal() {
        let mut hello = gpu("\u{1b}[2Jevil\n", &"x".repeat(1000), false);
        clean(&mut hello);
        assert_eq!(describe(&hello), format!("[2Jevil {}", "x".repeat(200)));
    }

    #[test]
    fn webassembly_is_never_an_accelerator() {
        assert!(!is_accelerated(&hello(Backend::Wasm), Some(&at(1000.0))));
    }
}
