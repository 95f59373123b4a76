//! What became of the first measurements of lanes: one that fails at it too often is left alone, so
//! that it is in nobody's way who could be served by another.

use std::collections::HashMap;
use std::sync::Mutex;

use holdfast_devices::Device;
use holdfast_devices::lane::{Lane, Lanes};
use holdfast_wire::Backend;

use crate::pool::lock;

/// How often a lane is measured that fails at it. An engine may be lost then as at any other time.
pub(crate) const MEASUREMENTS: usize = 3;

/// The failures of the lanes that are there.
#[derive(Default)]
pub(crate) struct Measurements {
    /// Why, each time, by the lanes' names.
    failed: Mutex<HashMap<String, Vec<String>>>,
}

impl Measurements {
    /// A lane has failed.
    pub(crate) fn failed(&self, lane: &Lane, reason: &str, lanes: &Lanes) {
        let there = lanes.all();
        let mut failed = lock(&self.failed);
        failed.retain(|name, _| there.iter().any(|lane| lane.info().name == *name));
        failed.entry(lane.info().name.clone()).or_default().push(reason.to_owned());
    }

    /// How often a lane has failed.
    pub(crate) fn failures(&self, lane: &Lane) -> usize {
        lock(&self.failed).get(&lane.info().name).map_or(0, Vec::len)
    }

    /// Why a lane is not measured again, if that is so.
    pub(crate) fn given_up(&self, lane: &Lane) -> Option<String> {
        let failed = lock(&self.failed);
        let reasons = failed.get(&lane.info().name)?;
        (reasons.len() >= MEASUREMENTS).then(|| reasons.join("; "))
    }

    /// Why none of these lanes will do for a backend, although there are some on it.
    pub(crate) fn useless<'a>(
        &self,
        lanes: impl IntoIterator<Item = &'a Lane>,
        backend: Backend,
    ) -> Option<String> {
        let on_it = lanes.into_iter().filter(|lane| lane.backend() == backend);
        let mut reasons = on_it.map(|lane| self.given_up(lane));
        let first = reasons.next()??;
        reasons.all(|reason| reason.is_some()).then_some(first)
    }
}
