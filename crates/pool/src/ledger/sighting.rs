//! What is left of a request when it is over: what ran, where, and how long it took.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use holdfast_devices::{DeviceInfo, Loaded, SegmentId, StepTiming};
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
    /// How long the program took, as seen from here.
    pub(crate) took: Duration,
    /// How long it waited for its turn, in the pool and on the device.
    pub(crate) queued: Duration,
    /// How much of that was on the device, and so is in `took`.
    pub(crate) queued_there: Duration,
    /// What loading took, if it had to wait for that.
    pub(crate) loaded: Option<Loaded>,
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

    fn transfer(&self) -> Duration {
        self.took.saturating_sub(self.compute() + self.readback() + self.queued_there)
    }

    /// How long each segment took. `pieces` are the steps of the route.
    pub(super) fn runs(&self, pieces: &[Arc<Piece>], threads: usize) -> Vec<RunTime> {
        let device = key_of(&self.device, threads);
        let mut way = self.transfer();
        let run = |(segment, timing): &(SegmentId, StepTiming)| {
            let piece = pieces.iter().find(|piece| piece.segment == *segment)?;
            // The way there and back is told of the program, so it belongs to the first of it.
            let transfer = std::mem::take(&mut way) + timing.readback;
            Some(RunTime {
                device: device.clone(),
                segment: segment.0,
                features: piece.features.clone(),
                compute_seconds: timing.run.as_secs_f64(),
                transfer_seconds: transfer.as_secs_f64(),
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

    /// The row that is kept of it. `bytes_moved` are those of its inputs and outputs.
    pub(super) fn inference(&self, bytes_moved: u64) -> Inference {
        Inference {
            timestamp: self.at,
            model: self.model.clone(),
            browser: self.browser.clone(),
            backend: self.device.backend.clone(),
            adapter: self.device.adapter.clone(),
            software_adapter: is_software(&self.device),
            precision: None,
            batch: self.rows,
            batch_rows: self.shapes.batch(),
            queue_seconds: self.queued.as_secs_f64(),
            transfer_seconds: self.transfer().as_secs_f64(),
            compute_seconds: self.compute().as_secs_f64(),
            readback_seconds: self.readback().as_secs_f64(),
            load_seconds: self.loaded.as_ref().map(|loaded| loaded.took.as_secs_f64()),
            first_run_seconds: self
                .loaded
                .as_ref()
                .and_then(|loaded| loaded.first_run)
                .map(|took| took.as_secs_f64()),
            bytes_moved,
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
        queue_seconds: 0.0,
        transfer_seconds: 0.0,
        compute_seconds: 0.0,
        readback_seconds: 0.0,
        load_seconds: None,
        first_run_seconds: None,
        bytes_moved: 0,
        memory_bytes: None,
        reused_bytes: 0,
        error_class: Some(error.class().to_owned()),
    }
}
