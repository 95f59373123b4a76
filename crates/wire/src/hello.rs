//! Who a lane is and what it can do, as its browser tells it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// The first message of a lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    /// The protocol that the page speaks.
    pub protocol: u32,
    /// The version of Holdfast that the page came from.
    pub version: String,
    /// Chosen by the page at random, the same for all its lanes and across its reconnections.
    pub page: String,
    /// The lane's number within the page.
    pub lane: u32,
    /// What the lane computes on.
    pub backend: Backend,
    /// The browser.
    pub browser: BrowserInfo,
    /// The machine, as far as the browser tells.
    pub machine: MachineInfo,
    /// The GPU.
    pub webgpu: WebGpuInfo,
    /// The neural network API.
    pub webnn: WebNnInfo,
    /// WebAssembly.
    pub wasm: WasmInfo,
    /// Where blobs are kept.
    pub storage: StorageInfo,
    /// What its machine can spare.
    pub power: PowerInfo,
    /// Set after a cut: what the lane still has.
    pub resume: Option<Resume>,
}

/// What a lane computes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Backend {
    Webgpu,
    Webnn,
    Wasm,
}

impl Backend {
    /// Its name, as people type it.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Webgpu => "webgpu",
            Backend::Webnn => "webnn",
            Backend::Wasm => "wasm",
        }
    }
}

/// What a lane's machine can spare, as far as the browser tells. It changes: see
/// [`FromLane::Power`](crate::FromLane::Power).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(rename_all = "camelCase")]
pub struct PowerInfo {
    /// Whether it runs on its battery; null if the browser does not tell.
    pub on_battery: Option<bool>,
    /// How full the battery is, from 0 to 1; null if the browser does not tell.
    pub battery_level: Option<f64>,
    /// Whether its owner wants to save data.
    pub saves_data: bool,
    /// Whether the page is in the background.
    pub hidden: bool,
    /// How much of what it could do the lane offers, from 0 (nothing, for now) to 1.
    pub share: f64,
}

impl PowerInfo {
    /// A machine that is plugged in, and offers everything.
    pub const FULL: PowerInfo = PowerInfo {
        on_battery: None,
        battery_level: None,
        saves_data: false,
        hidden: false,
        share: 1.0,
    };
}

/// A browser.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "camelCase")]
pub struct BrowserInfo {
    /// Such as `Chromium`.
    pub name: String,
    /// Such as `147.0.7727.0`.
    pub version: String,
    /// Such as `Linux`.
    pub platform: String,
    /// Whether it runs on a phone or tablet.
    pub mobile: bool,
}

/// A machine, as far as a browser tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(rename_all = "camelCase")]
pub struct MachineInfo {
    /// Logical cores.
    pub cores: u32,
    /// Memory in GiB, rounded and capped by browsers; null where they do not tell.
    pub memory_gib: Option<f64>,
    /// Whether the page may use shared memory, and so threads.
    pub cross_origin_isolated: bool,
}

/// The GPU, as far as a browser tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum WebGpuInfo {
    /// There is an adapter. It may be software: see `fallback` and the names.
    Available {
        /// Such as `nvidia`, or `google` for the software adapter.
        vendor: String,
        /// Such as `ampere`, or `swiftshader`.
        architecture: String,
        /// The device, where the browser tells.
        device: String,
        /// A description, where the browser gives one.
        description: String,
        /// Whether the browser itself says that this is a fallback in software.
        fallback: bool,
        /// The optional features.
        features: Vec<String>,
        /// The limits.
        limits: BTreeMap<String, f64>,
    },
    /// There is none.
    Missing {
        /// Why, and where it can be known, what to do.
        reason: String,
    },
}

/// The neural network API, as far as a browser tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum WebNnInfo {
    /// There are contexts.
    Available {
        /// The kinds of device for which a context opens: `cpu`, `gpu`, `npu`. A browser may
        /// give all three and compute on the processor.
        device_types: Vec<String>,
        /// The kind in use.
        chosen: String,
    },
    /// There is none.
    Missing {
        /// Why, and where it can be known, what to do.
        reason: String,
    },
}

/// WebAssembly, as far as a browser has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "camelCase")]
pub struct WasmInfo {
    /// Whether it computes on vectors.
    pub simd: bool,
    /// Threads that the engine uses.
    pub threads: u32,
    /// Whether it can suspend for promises (JSPI).
    pub jspi: bool,
}

/// Where blobs are kept for the next time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "camelCase")]
pub struct StorageInfo {
    /// The kind.
    pub kind: StorageKind,
    /// Bytes that the browser grants, where it tells.
    pub quota_bytes: Option<u64>,
    /// Bytes of blobs that are there.
    pub used_bytes: u64,
}

/// Kinds of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum StorageKind {
    /// The origin's private file system.
    Opfs,
    /// IndexedDB.
    IndexedDb,
    /// None: what is downloaded is gone with the page.
    None,
}

/// What a lane still has after a cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "camelCase")]
pub struct Resume {
    /// From the last welcome.
    pub session: String,
    /// Requests that the lane knows: it works on them, or has their results and sends them once
    /// it is welcome. All others have to be asked again.
    pub requests: Vec<u64>,
}
