//! What is left of a request when it is over: what ran, where, and how long it took.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use holdfast_devices::{DeviceInfo, Loaded, SegmentId, StepTiming};
use holdfast_graph::DataType;
use holdfast_predict::{Inference, LoadTime, RunTime};

use super::pieces::{Piece, Shapes};
use super::profile::key_of;
use crate::request::{Request, RunError};
use crate::route::Prepared;

/// A request that was answered.
pub(crate) struct Sighting {
    pub(crate) at: SystemTime,
    pub(crate) model: String,
    pub(crate) route: Arc<Prepared>,
    /// The sizes that ran, of the whole batch if it was in one.
    pub(crate) shapes: Shapes,
    /// Rows of its own.
    pub(crate) rows: usize,
    pub(crate) device: Arc<DeviceInfo>,
    pub(crate) browser: Option<String>,
    /// What the browser's page calls itself.
    pub(crate) page: Option<String>,
    /// Bytes of the device's memory, where they were measured.
    pub(crate) memory_bytes: Option<u64>,
    /// What was computed for it, and how long that took.
    pub(crate) segments: Vec<(SegmentId, StepTiming)>,
    /// What went by on the way to the device and back.
    pub(crate) transfer: Duration,
    /// How long it waited for its turn, in the pool and on the device.
    pub(crate) queued: Duration,
    /// What loading took, if it had to wait for that.
    pub(crate) loaded: Option<Loaded>,
    /// Bytes that went to the device for it, and came back.
    pub(crate) moved_bytes: u64,
    pub(crate) reused_bytes: u64,
    /// Whether nothing else ran at the same time.
    pub(crate) alone: bool,
}

impl Sighting {
    fn compute(&self) -> Duration {
        self.segments.iter().map(|(_, timing)| timing.run).sum()
    }

    fn readback(&self) -> Duration {
        self.segments.iter().map(|(_, timing)| timing.readback).sum()
    }

    /// How long each segment took. `pieces` are the steps of the route.
    pub(super) fn runs(&self, pieces: &[Arc<Piece>], threads: usize) -> Vec<RunTime> {
        let device = key_of(&self.device, threads);
        let (mut queued, mut transfer) = (self.queued, self.transfer);
        let run = |(segment, timing): &(SegmentId, StepTiming)| {
            let piece = pieces.iter().find(|piece| piece.segment == *segment)?;
            // Waiting and the way there and back are told of the program, and belong to the first
            // of it.
            let (queued, transfer) = (std::mem::take(&mut queued), std::mem::take(&mut transfer));
            Some(RunTime {
                device: device.clone(),
                segment: segment.0,
                features: piece.features.clone(),
                queue_seconds: queued.as_secs_f64(),
                transfer_seconds: transfer.as_secs_f64(),
                compute_seconds: timing.run.as_secs_f64(),
                readback_seconds: timing.readback.as_secs_f64(),
                first: self.loaded.is_some(),
                alone: self.alone,
            })
        };
        self.segments.iter().filter_map(run).collect()
    }

    /// What loading took, if it had to wait for that.
    pub(super) fn load(&self, threads: usize) -> Option<LoadTime> {
        let loaded = self.loaded.as_ref()?;
        Some(LoadTime {
            device: key_of(&self.device, threads),
            segment: self.route.id.0,
            new_weight_bytes: loaded.new_weight_bytes,
            load_seconds: loaded
                .took
                .saturating_sub(loaded.first_run.unwrap_or_default())
                .as_secs_f64(),
            first_run_seconds: loaded.first_run.map(|took| took.as_secs_f64()),
            memory_added_bytes: None,
        })
    }

    /// What most bytes of its weights are; `None` if that does not say it, as bytes may be packed.
    fn precision(&self) -> Option<&'static str> {
        let mut bytes: BTreeMap<DataType, u64> = BTreeMap::new();
        let weights = self.route.segments.iter().flat_map(|(_, segment)| &segment.graph.weights);
        weights.for_each(|weight| *bytes.entry(weight.dtype).or_default() += weight.bytes);
        let (dtype, _) = bytes.into_iter().max_by_key(|(_, bytes)| *bytes)?;
        match dtype {
            DataType::F32 => Some("fp32"),
            DataType::F16 => Some("fp16"),
            DataType::Bf16 => Some("bf16"),
            DataType::I8 => Some("int8"),
            _ => None,
        }
    }

    /// The row that is kept of it.
    pub(super) fn inference(&self) -> Inference {
        Inference {
            timestamp: self.at,
            model: self.model.clone(),
            browser: self.browser.clone(),
            backend: self.device.backend.clone(),
            adapter: self.device.adapter.clone(),
            software_adapter: is_software(&self.device),
            precision: self.precision().map(str::to_owned),
            batch: self.rows,
            batch_rows: self.shapes.batch(),
            queue_seconds: Some(self.queued.as_secs_f64()),
            transfer_seconds: Some(self.transfer.as_secs_f64()),
            compute_seconds: Some(self.compute().as_secs_f64()),
            readback_seconds: Some(self.readback().as_secs_f64()),
            load_seconds: self.loaded.as_ref().map(|loaded| loaded.took.as_secs_f64()),
            first_run_seconds: self
                .loaded
                .as_ref()
                .and_then(|loaded| loaded.first_run)
                .map(|took| took.as_secs_f64()),
            bytes_moved: self.moved_bytes,
            memory_bytes: self.memory_bytes,
            reused_bytes: self.reused_bytes,
            error_class: None,
        }
    }
}

/// Whether a device calls itself a GPU or an accelerator and is neither.
pub(super) fn is_software(device: &DeviceInfo) -> bool {
    matches!(device.backend.as_str(), "webgpu" | "webnn") && !device.accelerated
}

/// The row that is kept of a request that was not answered.
pub(super) fn failed(request: &Request, error: &RunError, at: SystemTime) -> Inference {
    Inference {
        timestamp: at,
        model: request.model.clone(),
        browser: None,
        backend: request.choices.to_string(),
        adapter: String::new(),
        software_adapter: false,
        precision: None,
        batch: Shapes::of(&request.inputs).batch(),
        batch_rows: 0,
        queue_seconds: None,
        transfer_seconds: None,
        compute_seconds: None,
        readback_seconds: None,
        load_seconds: None,
        first_run_seconds: None,
        bytes_moved: 0,
        memory_bytes: None,
        reused_bytes: 0,
        error_class: Some(error.class().to_owned()),
    }
}
