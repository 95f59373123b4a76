//! Kinds of devices: those of one kind compute the same bits, so that what was proven on one of them
//! goes for all.

use std::sync::Arc;

use holdfast_devices::DeviceInfo;
use holdfast_wire::{Backend, Hello, WebGpuInfo};

use super::member::Member;

/// What computes on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Equal for devices of one kind.
    pub(crate) name: Arc<str>,
    /// Whether it means the same in the next process.
    pub(crate) lasts: bool,
}

impl Kind {
    /// The kind of a device that tells all there is to know.
    pub(crate) fn of(info: &DeviceInfo) -> Kind {
        Kind { name: Member::kind_of(info), lasts: true }
    }

    /// The kind of a lane. The engine comes with Holdfast's page, so a page of another version may
    /// compute in another way. Where the browser does not say what the hardware is, only lanes of
    /// one page are known to have the same.
    pub(crate) fn of_lane(info: &DeviceInfo, hello: &Hello) -> Kind {
        let (version, platform) = (&hello.version, &hello.browser.platform);
        let lasts = match hello.backend {
            Backend::Wasm => true,
            Backend::Webgpu => is_named(&hello.webgpu),
            Backend::Webnn => false,
        };
        let page = if lasts { String::new() } else { format!(", page {:?}", hello.page) };
        let known = Member::kind_of(info);
        Kind { name: format!("{known}, Holdfast {version:?} on {platform}{page}").into(), lasts }
    }
}

fn is_named(webgpu: &WebGpuInfo) -> bool {
    match webgpu {
        WebGpuInfo::Available { vendor, architecture, device, .. } => {
            [vendor, architecture, device].iter().any(|name| !name.is_empty())
        }
        WebGpuInfo::Missing { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use holdfast_wire::{
        BrowserInfo, MachineInfo, PowerInfo, StorageInfo, StorageKind, WasmInfo, WebNnInfo,
    };

    use super::*;

    fn hello(backend: Backend, vendor: &str) -> Hello {
        Hello {
            protocol: 1,
            version: "1.0".into(),
            page: "one".into(),
            lane: 0,
            backend,
            browser: BrowserInfo {
                name: "Scripted".into(),
                version: "1".into(),
                platform: "Linux".into(),
                mobile: false,
            },
            machine: MachineInfo { cores: 2, memory_gib: None, cross_origin_isolated: true },
            webgpu: WebGpuInfo::Available {
                vendor: vendor.into(),
                architecture: String::new(),
                device: String::new(),
                description: String::new(),
                fallback: false,
                features: vec![],
                limits: Default::default(),
            },
            webnn: WebNnInfo::Available { device_types: vec![], chosen: "gpu".into() },
            wasm: WasmInfo { simd: true, threads: 2, jspi: true },
            storage: StorageInfo { kind: StorageKind::None, quota_bytes: None, used_bytes: 0 },
            power: PowerInfo::FULL,
            resume: None,
        }
    }

    fn kind(hello: &Hello) -> Kind {
        let info = DeviceInfo {
            name: "lane".into(),
            backend: hello.backend.name().into(),
            engine: "engine".into(),
            adapter: "adapter".into(),
            accelerated: false,
            calibration: None,
        };
        Kind::of_lane(&info, hello)
    }

    #[test]
    fn a_page_of_another_version_or_platform_is_another_kind() {
        for (backend, vendor) in [(Backend::Wasm, ""), (Backend::Webgpu, "vendor")] {
            let one = hello(backend, vendor);
            let newer = Hello { version: "1.1".into(), ..one.clone() };
            let mut elsewhere = one.clone();
            elsewhere.browser.platform = "Windows".into();
            let elsewhen = Hello { page: "two".into(), ..one.clone() };
            assert!(kind(&one).lasts);
            assert_ne!(kind(&one), kind(&newer));
            assert_ne!(kind(&one), kind(&elsewhere));
            assert_eq!(kind(&one), kind(&elsewhen));
        }
    }

    #[test]
    fn hardware_without_a_name_is_known_for_one_page_only() {
        for backend in [Backend::Webgpu, Backend::Webnn] {
            let one = hello(backend, "");
            let other = Hello { page: "two".into(), ..one.clone() };
            let same = Hello { lane: 1, ..one.clone() };
            assert!(!kind(&one).lasts);
            assert_ne!(kind(&one), kind(&other));
            assert_eq!(kind(&one), kind(&same));
        }
    }
}
