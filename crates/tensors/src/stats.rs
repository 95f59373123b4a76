//! How full a manager is, and how well it serves.

use serde::Serialize;

use crate::manager::Limits;

/// Figures of a manager. Those that count events do so since its start.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stats {
    /// Tensors whose bytes are there, old versions included.
    pub tensors: usize,
    /// Views.
    pub views: usize,
    /// Declared tensors whose bytes have not arrived.
    pub declared: usize,
    /// Tensors and views that were replaced, and that something still keeps.
    pub old_versions: usize,
    /// Tensors and views that are pinned.
    pub pinned: usize,
    /// Copies under way to this manager.
    pub arriving: usize,
    /// Bytes of all tensors, those included that are arriving.
    pub bytes: u64,
    /// Bytes that are reserved for what is arriving.
    pub arriving_bytes: u64,
    /// Bytes of tensors that nothing keeps.
    pub idle_bytes: u64,
    /// What `bytes` may come to.
    pub budget_bytes: u64,
    /// Lookups that found a tensor.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
    /// The part of lookups that found a tensor; nothing if there were none.
    pub hit_rate: Option<f64>,
    /// Tensors and views that went because others needed the room.
    pub evicted: u64,
    /// Tensors and views that went because of their age.
    pub expired: u64,
}

/// What the manager counts as it goes.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) views: usize,
    pub(crate) declared: usize,
    pub(crate) old_versions: usize,
    pub(crate) pinned: usize,
    pub(crate) arriving: usize,
    pub(crate) bytes: u64,
    pub(crate) arriving_bytes: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) evicted: u64,
    pub(crate) expired: u64,
}

impl Counters {
    pub(crate) fn stats(&self, limits: &Limits, entries: usize, idle_bytes: u64) -> Stats {
        let lookups = self.hits + self.misses;
        Stats {
            tensors: entries - self.views - self.declared - self.arriving,
            views: self.views,
            declared: self.declared,
            old_versions: self.old_versions,
            pinned: self.pinned,
            arriving: self.arriving,
            bytes: self.bytes,
            arriving_bytes: self.arriving_bytes,
            idle_bytes,
            budget_bytes: limits.budget_bytes,
            hits: self.hits,
            misses: self.misses,
            hit_rate: (lookups > 0).then(|| self.hits as f64 / lookups as f64),
            evicted: self.evicted,
            expired: self.expired,
        }
    }
}
