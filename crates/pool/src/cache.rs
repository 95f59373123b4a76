//! What a device has kept of what it computed: a second model starts where the first one left off.
//!
//! The rules are those of shared tensors: what a running program uses stays, and of the rest what
//! was not used for the longest time goes when there is no room.

use std::collections::HashMap;
use std::time::Duration;

use holdfast_devices::{SegmentId, TensorId};
use holdfast_graph::Digest;
use holdfast_tensors::{self as tensors, Limits, NewTensor, Source, Storage, TensorSharingManager};
use tokio::time::Instant;

use crate::metrics::KeptMetrics;
use crate::program::{Kept, KeptValue};

/// Values that may be kept, beside their bytes: each has a name and a buffer of its own there.
const ENTRIES: usize = 4096;

/// How long a value stays that nobody asks for.
const AGE: Duration = Duration::from_secs(600);

/// The values of one device.
pub(crate) struct Cache {
    since: Instant,
    device: String,
    storage: Storage,
    manager: TensorSharingManager,
    /// Which segment computed what, by its name on the device. There is an entry for each value
    /// that is kept, so every program may add and drop some: nothing here looks through them all
    /// but the unloading of a segment.
    made_by: HashMap<TensorId, (SegmentId, tensors::TensorId)>,
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
        let registered =
            if is_there { None } else { self.manager.register(key.as_str(), new).ok() };
        match registered {
            Some(id) => {
                self.made_by.insert(tensor.id.clone(), (*segment, id));
            }
            // Somebody was faster, or it is larger than all that may be kept.
            None => self.dropped.push(tensor.id.clone()),
        }
        self.collect();
    }

    /// The segment goes, and with it everybody who could ask for what it computed.
    pub(crate) fn forget(&mut self, segment: &SegmentId) {
        for (_, id) in self.made_by.values().filter(|(maker, _)| maker == segment) {
            // What is in use goes when its time comes.
            let _ = self.manager.free(*id);
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
    pub(crate) fn tidy(&mut self, now: Instant) {
        if self.manager.advance_to(now.saturating_duration_since(self.since)) > 0 {
            self.collect();
        }
    }

    fn collect(&mut self) {
        for dropped in self.manager.take_dropped() {
            let tensor = TensorId(dropped.name.to_string());
            self.made_by.remove(&tensor);
            self.dropped.push(tensor);
        }
    }
}

/// An output of a value, by position: names may be of any length.
fn name(value: &Digest, output: usize) -> String {
    format!("{value} {output}")
}

#[cfg(test)]
mod tests {
    use holdfast_devices::KeptTensor;
    use holdfast_graph::DataType;

    use super::*;

    fn digest(number: usize) -> Digest {
        Digest::of(&number.to_le_bytes())
    }

    fn kept(number: usize, segment: usize) -> Kept {
        let tensor =
            KeptTensor { id: TensorId(format!("t{number}")), dtype: DataType::F32, dims: vec![1] };
        Kept { value: digest(number), output: 0, segment: SegmentId(digest(segment)), tensor }
    }

    fn cache_of(values: usize) -> Cache {
        let mut cache = Cache::new("cpu", Storage::Cpu, u64::MAX);
        for number in 0..values {
            cache.add(&kept(number, number % 2), Instant::now());
        }
        cache
    }

    #[test]
    fn the_oldest_values_go_and_nothing_of_them_stays() {
        let mut cache = cache_of(ENTRIES + 3);
        let names: Vec<TensorId> = (0..3).map(|number| TensorId(format!("t{number}"))).collect();
        assert_eq!(cache.take_dropped(), names);
        assert_eq!((cache.stats().tensors, cache.made_by.len()), (ENTRIES, ENTRIES));
        assert!(!cache.has(&digest(2), 1) && cache.has(&digest(3), 1));
    }

    #[test]
    fn an_unloaded_segment_takes_its_values_along_and_no_others() {
        let mut cache = cache_of(4);
        cache.forget(&SegmentId(digest(1)));
        let mut dropped = cache.take_dropped();
        dropped.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(dropped, [TensorId("t1".to_owned()), TensorId("t3".to_owned())]);
        assert!(cache.has(&digest(0), 1) && cache.has(&digest(2), 1));
        assert_eq!(cache.made_by.len(), 2);
    }

    #[test]
    fn a_value_in_use_outlives_its_segment_until_it_is_released() {
        let mut cache = cache_of(1);
        let held = cache.acquire(&digest(0), &["y".to_owned()], "request", Instant::now());
        assert!(held.is_some());
        cache.forget(&SegmentId(digest(0)));
        assert_eq!(cache.take_dropped(), []);
        cache.release(&digest(0), 1, "request");
        cache.clear();
        assert_eq!(cache.take_dropped(), [TensorId("t0".to_owned())]);
    }
}
