//! What a device has kept of what it computed: a second model starts where the first one left off.
//!
//! The rules are those of shared tensors: what a running program uses stays, and of the rest what
//! was not used for the longest time goes when there is no room.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use holdfast_devices::{SegmentId, TensorId};
use holdfast_graph::Digest;
use holdfast_tensors::{Limits, NewTensor, Source, Storage, TensorSharingManager};
use tokio::time::Instant;

use crate::metrics::KeptMetrics;
use crate::program::{Kept, KeptValue};

/// Values that may be kept, beside their bytes: a device looks through them for every program.
const ENTRIES: usize = 4096;

/// How long a value stays that nobody asks for.
const AGE: Duration = Duration::from_secs(600);

/// The values of one device.
pub(crate) struct Cache {
    since: Instant,
    device: String,
    storage: Storage,
    manager: TensorSharingManager,
    /// The names of what each segment computed.
    made_by: HashMap<SegmentId, HashSet<Arc<str>>>,
    /// What the device has to let go.
    dropped: Vec<TensorId>,
}

impl Cache {
    pub(crate) fn new(device: &str, storage: Storage, budget_bytes: u64) -> Cache {
        let limits = Limits { budget_bytes, max_entries: ENTRIES, max_age: Some(AGE) };
        Cache {
            since: Instant::now(),
            device: device.to_owned(),
            storage,
            manager: TensorSharingManager::new(limits),
            made_by: HashMap::new(),
            dropped: Vec::new(),
        }
    }

    /// Whether a value is there, with as many outputs.
    pub(crate) fn has(&self, value: &Digest, outputs: usize) -> bool {
        (0..outputs).all(|output| self.manager.find(name(value, output).as_str()).is_some())
    }

    /// A value for use by somebody, who has to release it.
    pub(crate) fn acquire(
        &mut self,
        value: &Digest,
        outputs: &[String],
        user: &str,
        now: Instant,
    ) -> Option<KeptValue> {
        self.tidy(now);
        let mut ids = Vec::new();
        let mut kept = KeptValue::default();
        for (index, output) in outputs.iter().enumerate() {
            // A miss is counted by this too.
            let found = self.manager.get(name(value, index).as_str()).ok()?;
            let tensor = TensorId(found.device_name()?.to_string());
            kept.tensors.insert(output.clone(), (tensor, found.byte_len()));
            ids.push(found.id());
        }
        for id in ids {
            self.manager.acquire(id, user).ok()?;
        }
        Some(kept)
    }

    pub(crate) fn release(&mut self, value: &Digest, outputs: usize, user: &str) {
        for output in 0..outputs {
            let found = self.manager.find(name(value, output).as_str()).map(|found| found.id());
            if let Some(id) = found {
                self.manager.release(id, user);
            }
        }
    }

    /// The device has kept this.
    pub(crate) fn add(&mut self, kept: &Kept, now: Instant) {
        self.tidy(now);
        let Kept { value, output, segment, tensor } = kept;
        let key = name(value, *output);
        let new = NewTensor {
            source: Source::Device {
                device: self.device.clone(),
                storage: self.storage,
                name: tensor.id.0.clone(),
                dtype: tensor.dtype,
                dims: tensor.dims.clone(),
            },
            producer: None,
            consumers: Vec::new(),
        };
        let is_there = self.manager.find(key.as_str()).is_some();
        if is_there || self.manager.register(key.as_str(), new).is_err() {
            // Somebody was faster, or it is larger than all that may be kept.
            self.dropped.push(tensor.id.clone());
        } else {
            self.made_by.entry(*segment).or_default().insert(key.into());
        }
        self.collect();
    }

    /// The segment goes, and with it everybody who could ask for what it computed.
    pub(crate) fn forget(&mut self, segment: &SegmentId) {
        for name in self.made_by.remove(segment).unwrap_or_default() {
            let found = self.manager.find(name.as_ref()).map(|found| found.id());
            if let Some(id) = found {
                // What is in use goes when its time comes.
                let _ = self.manager.free(id);
            }
        }
        self.collect();
    }

    /// Everything that nobody uses goes.
    pub(crate) fn clear(&mut self) {
        self.manager.optimize_memory_usage();
        self.collect();
    }

    /// The device has lost everything.
    pub(crate) fn lose(&mut self) {
        let limits = self.manager.limits().clone();
        self.manager = TensorSharingManager::new(limits);
        self.since = Instant::now();
        self.made_by.clear();
        self.dropped.clear();
    }

    /// What the device has to let go.
    pub(crate) fn take_dropped(&mut self) -> Vec<TensorId> {
        std::mem::take(&mut self.dropped)
    }

    pub(crate) fn stats(&self) -> KeptMetrics {
        let stats = self.manager.stats();
        KeptMetrics {
            tensors: stats.tensors,
            bytes: stats.bytes,
            hits: stats.hits,
            misses: stats.misses,
        }
    }

    /// Lets go of what nobody asked for in a long time.
    fn tidy(&mut self, now: Instant) {
        if self.manager.advance_to(now.saturating_duration_since(self.since)) > 0 {
            self.collect();
        }
    }

    fn collect(&mut self) {
        let dropped = self.manager.take_dropped();
        if dropped.is_empty() {
            return;
        }
        self.dropped.extend(dropped.into_iter().map(|dropped| TensorId(dropped.name.to_string())));
        let manager = &self.manager;
        self.made_by.retain(|_, names| {
            names.retain(|name| manager.find(name.as_ref()).is_some());
            !names.is_empty()
        });
    }
}

/// An output of a value, by position: names may be of any length.
fn name(value: &Digest, output: usize) -> String {
    format!("{value} {output}")
}
