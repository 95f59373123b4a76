//! Lanes against a scripted browser. The real one is in the server's tests.

use holdfast_wire::{
    Backend, BrowserInfo, Hello, MachineInfo, PROTOCOL_VERSION, PowerInfo, StorageInfo,
    StorageKind, WasmInfo, WebGpuInfo, WebNnInfo,
};

pub(super) fn hello(backend: Backend) -> Hello {
    Hello {
        protocol: PROTOCOL_VERSION,
        version: "0.1.0".into(),
        page: "page".into(),
        lane: 0,
        backend,
        browser: BrowserInfo {
            name: "Scripted".into(),
            version: "1".into(),
            platform: "Linux".into(),
            mobile: false,
        },
        machine: MachineInfo { cores: 2, memory_gib: None, cross_origin_isolated: true },
        webgpu: WebGpuInfo::Missing { reason: "scripted".into() },
        webnn: WebNnInfo::Missing { reason: "scripted".into() },
        wasm: WasmInfo { simd: true, threads: 2, jspi: true },
        storage: StorageInfo { kind: StorageKind::None, quota_bytes: None, used_bytes: 0 },
        power: PowerInfo::FULL,
        resume: None,
    }
}
